"""When a simulated server was last heard: as over HTTP, on a virtual clock."""

from __future__ import annotations

import math

import pytest
import trio

from scavenge.testing import EngineSettings, SimulatedClient, SimulatedFleet, SimulatedServer, faults
from scavenge.testing.model import reply_to
from scavenge.types import ChatRequest, Endpoint, EndpointId, Lost, LostCause, Url

NEVER = -math.inf
SLOW = EngineSettings(token_s=1.0, load_s=0.0, noise=0.0)
LONG = next(
    text
    for text in (f"story {number}" for number in range(10_000))
    if len(reply_to([{"role": "user", "content": text}]).tokens) > 200
)


def a_fleet() -> SimulatedFleet:
    return SimulatedFleet([SimulatedServer("ep1", SLOW)])


def client_of(fleet: SimulatedFleet, name: str = "ep1") -> SimulatedClient:
    return fleet.open_client(Endpoint(EndpointId("sim"), "sim", Url(f"http://{name}.sim/v1")))


def asking(*, stream: bool = True, idle_timeout_s: float = 600.0) -> ChatRequest:
    return ChatRequest([{"role": "user", "content": LONG}], {}, stream, idle_timeout_s)


async def test_a_probe_is_heard(autojump_clock):
    async with a_fleet().open() as fleet:
        client = client_of(fleet)
        assert (client.heard_at, client.reached_at) == (NEVER, NEVER)
        await trio.sleep(1)
        await client.probe("/models")
        await trio.sleep(1)
        assert (client.heard_at, client.reached_at) == (1, 1)


async def test_a_refusal_by_status_is_heard(autojump_clock):
    async with a_fleet().open() as fleet:
        client = client_of(fleet)
        fleet.nodes["ep1"].apply(faults.Busy(retry_after_s=5))
        await trio.sleep(1)
        await client.ask(asking())
        await trio.sleep(1)
        assert client.heard_at == 1


async def test_a_stream_is_heard_all_the_time_until_the_server_freezes(autojump_clock):
    async with a_fleet().open() as fleet, trio.open_nursery() as nursery:
        client = client_of(fleet)
        nursery.start_soon(client.ask, asking())
        await trio.sleep(0.5)
        assert client.heard_at == NEVER, "it has no token yet"
        await trio.sleep(99.5)
        assert client.heard_at == 100
        fleet.nodes["ep1"].apply(faults.Freeze())
        await trio.sleep(20)
        assert client.heard_at == 100
        nursery.cancel_scope.cancel()
    assert client.heard_at == 100


async def test_without_a_stream_a_reply_is_heard_when_it_is_whole(autojump_clock):
    async with a_fleet().open() as fleet:
        client = client_of(fleet)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask, asking(stream=False))
            await trio.sleep(100)
            assert (client.heard_at, client.reached_at) == (NEVER, 0)
        assert client.heard_at == trio.current_time() > 200


async def test_a_frozen_server_takes_connections_and_is_not_heard(autojump_clock):
    async with a_fleet().open() as fleet:
        client = client_of(fleet)
        fleet.nodes["ep1"].apply(faults.Freeze())
        await trio.sleep(1)
        outcome = (await client.ask(asking(idle_timeout_s=30))).outcome
        assert isinstance(outcome, Lost)
        assert outcome.cause is LostCause.SILENT
        assert (client.heard_at, client.reached_at) == (NEVER, 1)


@pytest.mark.parametrize("fault", [faults.Kill(), faults.Restart()])
async def test_a_reset_is_a_sign_of_the_host(autojump_clock, fault):
    async with a_fleet().open() as fleet, trio.open_nursery() as nursery:
        client = client_of(fleet)
        nursery.start_soon(client.ask, asking(stream=False))
        await trio.sleep(10)
        fleet.nodes["ep1"].apply(fault)
        await trio.sleep(1)
        assert (client.heard_at, client.reached_at) == (NEVER, 10)


async def test_a_refused_connection_is_a_sign_of_the_host(autojump_clock):
    async with a_fleet().open() as fleet:
        client = client_of(fleet)
        fleet.nodes["ep1"].apply(faults.Kill())
        await trio.sleep(3)
        outcome = await client.probe("/models")
        assert isinstance(outcome, Lost)
        assert outcome.cause is LostCause.SERVER
        assert (client.heard_at, client.reached_at) == (NEVER, 3)


async def test_a_host_that_nobody_knows_gives_no_sign_and_may_be_this_machines_fault(autojump_clock):
    async with a_fleet().open() as fleet:
        client = client_of(fleet, "ep9")
        outcome = await client.probe("/models")
        assert isinstance(outcome, Lost)
        assert outcome.cause is LostCause.NETWORK
        assert (client.heard_at, client.reached_at) == (NEVER, NEVER)
