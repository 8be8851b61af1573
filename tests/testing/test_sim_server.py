"""Simulated servers on real sockets, in real and short time."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

import httpx
import pytest
import trio
import trio.testing
from sim_until import until

from scavenge.errors import ConfigError, UsageError
from scavenge.testing import EngineSettings, FleetPlan, HttpFleet, SimulatedServer, faults, open_http_fleet
from scavenge.testing.node import Node

QUICK = EngineSettings(token_s=0.0002, load_s=0.0, slots=4, tokens_per_event=1)
ENDLESS = EngineSettings(token_s=60.0, load_s=0.0, slots=4, tokens_per_event=1)
BODY = {"model": "sim", "messages": [{"role": "user", "content": "What is 2 + 3?"}]}


def plan(*names: str, engine: EngineSettings = QUICK, script: str = "") -> FleetPlan:
    return FleetPlan([SimulatedServer(name, engine) for name in names], script)


def port_of(node: Node) -> int:
    return httpx.URL(node.url).port


def ask_of(node: Node) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=node.url, trust_env=False, verify=False, timeout=10)


async def begin_request(node: Node) -> trio.SocketStream:
    stream = await trio.open_tcp_stream("127.0.0.1", port_of(node))
    body = b'{"model": "sim", "prompt": "hi", "stream": true}'
    await stream.send_all(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return stream


async def test_a_foreign_client_gets_its_reply():
    async with open_http_fleet(plan("ep1")) as fleet, ask_of(fleet.nodes["ep1"]) as client:
        whole = (await client.post("chat/completions", json=BODY)).json()
        assert whole["choices"][0]["message"]["content"].endswith("The answer is 5.")
        streamed = (await client.post("chat/completions", json={**BODY, "stream": True})).text
        assert streamed.endswith("data: [DONE]\n\n")
        assert (await client.get("models")).json()["data"][0]["id"] == "sim"


async def test_the_peak_is_measured_by_the_server():
    async with open_http_fleet(plan("ep1", engine=ENDLESS)) as fleet:
        node = fleet.nodes["ep1"]
        streams = [await begin_request(node) for _ in range(6)]
        await until(lambda: node.host.running + node.host.waiting == 6)
        assert node.host.running == 4
        for stream in streams:
            await stream.aclose()
        await until(lambda: fleet.truth["ep1"].cancelled == 6)
        assert fleet.truth["ep1"].peak_in_flight == 6
        assert node.host.running == node.host.waiting == 0


async def test_a_killed_server_resets_its_connections_and_refuses_new_ones_until_it_is_back():
    async with open_http_fleet(plan("ep1", engine=ENDLESS)) as fleet:
        node = fleet.nodes["ep1"]
        async with await begin_request(node) as busy, await trio.open_tcp_stream("127.0.0.1", port_of(node)) as idle:
            await until(lambda: node.host.running == 1)
            node.apply(faults.Kill())
            for stream in (busy, idle):
                with pytest.raises(trio.BrokenResourceError) as caught:
                    await stream.receive_some()
                assert isinstance(caught.value.__cause__, ConnectionResetError)
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", port_of(node))
        node.apply(faults.Restart())
        async with await begin_request(node):
            await until(lambda: node.host.running == 1)
        assert fleet.truth["ep1"].lost == 1


async def test_a_server_that_is_restarted_at_once_resets_its_connections_too():
    async with open_http_fleet(plan("ep1", engine=ENDLESS)) as fleet:
        node = fleet.nodes["ep1"]
        for lives in (1, 2):
            async with await begin_request(node) as stream:
                await until(lambda: node.host.running == 1)
                node.apply(faults.Restart())
                with pytest.raises(trio.BrokenResourceError):
                    await stream.receive_some()
            assert fleet.truth["ep1"].lost == lives


async def test_a_client_that_resets_its_connection_has_hung_up():
    async with open_http_fleet(plan("ep1", engine=ENDLESS)) as fleet:
        stream = await begin_request(fleet.nodes["ep1"])
        await until(lambda: fleet.nodes["ep1"].host.running == 1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()
        await until(lambda: fleet.truth["ep1"].cancelled == 1)


async def test_a_server_may_die_just_when_somebody_connects():
    async with open_http_fleet(plan("ep1")) as fleet, ask_of(fleet.nodes["ep1"]) as client:
        node = fleet.nodes["ep1"]
        for steps in [1, 2, 3] * 7:
            await trio.testing.wait_all_tasks_blocked()
            with socket.create_connection(("127.0.0.1", port_of(node))):
                for _ in range(steps):  # whether the server has noticed is up to the scheduler
                    await trio.lowlevel.checkpoint()
                node.apply(faults.Restart())
        assert (await client.get("models")).status_code == 200


async def test_a_port_stays_taken_while_its_server_is_down():
    async with open_http_fleet(plan("ep1", "ep2", script="t=1000 join ep2")) as fleet:
        fleet.nodes["ep1"].apply(faults.Kill())
        await trio.testing.wait_all_tasks_blocked(0.01)
        for node in fleet.nodes.values():
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port_of(node)))


async def test_a_server_that_joins_later_refuses_until_then():
    async with open_http_fleet(plan("ep1", "ep2", script="t=1000 join ep2")) as fleet:
        node = fleet.nodes["ep2"]
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", port_of(node))
        assert len((await fleet.list_endpoints()).endpoints) == 1
        node.apply(faults.Join())
        async with ask_of(node) as client:
            assert (await client.post("chat/completions", json=BODY)).status_code == 200
        assert [row.url for row in fleet.rows()] == [node.url for node in fleet.nodes.values()]


async def test_a_frozen_server_accepts_and_is_silent():
    async with open_http_fleet(plan("ep1")) as fleet:
        node = fleet.nodes["ep1"]
        node.apply(faults.Freeze())
        async with await begin_request(node) as stream:
            with trio.move_on_after(0.05) as silence:
                await stream.receive_some()
            assert silence.cancelled_caught
            node.apply(faults.Heal())
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")


async def test_the_script_runs_from_the_opening_and_tells_its_steps():
    seen: list[tuple[str, int]] = []

    def note(step: faults.Step, fleet: HttpFleet) -> None:
        seen.append((step.server, len(fleet.rows())))

    async with open_http_fleet(plan("ep1", "ep2", script="t=0 leave ep2; t=0.001 leave ep1"), note):
        await until(lambda: len(seen) == 2)
    assert seen == [("ep2", 1), ("ep1", 0)]


async def test_leaving_closes_everything_also_with_requests_under_way():
    async with open_http_fleet(plan("ep1", "ep2", engine=ENDLESS)) as fleet:
        nodes = list(fleet.nodes.values())
        streams = [await begin_request(node) for node in nodes]
        await until(lambda: all(node.host.running for node in nodes))
    for node, stream in zip(nodes, streams, strict=True):
        with suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""
        await stream.aclose()
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", port_of(node))
        assert node.host.truth.cancelled == 1


async def test_cancelling_closes_everything():
    with trio.CancelScope() as scope:
        async with open_http_fleet(plan("ep1")) as fleet:
            scope.cancel()
            await trio.sleep_forever()
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream("127.0.0.1", port_of(fleet.nodes["ep1"]))


async def test_an_error_of_the_body_comes_out_bare():
    with pytest.raises(ValueError, match="mine"):
        async with open_http_fleet(plan("ep1")):
            raise ValueError("mine")


async def test_a_port_that_is_taken_is_an_error_with_the_remedy_and_leaves_nothing_open():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} cannot be used .*: choose another one"):
            async with open_http_fleet(FleetPlan([SimulatedServer("ep1", QUICK)], first_port=port)):
                pytest.fail("it opened")


async def test_a_port_that_does_not_exist_is_an_error():
    with pytest.raises(UsageError, match="port 65536 does not exist"):
        async with open_http_fleet(FleetPlan([SimulatedServer("ep1", QUICK)], first_port=65536)):
            pytest.fail("it opened")


async def test_a_wrong_script_starts_nothing():
    with pytest.raises(ConfigError, match="unknown word"):
        async with open_http_fleet(plan("ep1", script="t=1 explode ep1")):
            pytest.fail("it opened")
