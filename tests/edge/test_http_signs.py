"""When a server was last heard, over all connections to it."""

from __future__ import annotations

import math

import httpx
import pytest
import trio
import trio.testing
from http_cases import ASK, BEGUN, WHOLE, an_endpoint, client_of, cut, reset, silent
from raw_server import Conn, document, free_port, raw_server, reply, script_of

from scavenge.edge.http.dial import LAG_S
from scavenge.edge.model_http import HttpModelTransport, UnusableClient
from scavenge.types import ChatRequest, Lost, LostCause, Ok, Outcome

NEVER = -math.inf


def test_a_server_that_was_never_asked_was_never_heard() -> None:
    client = client_of(f"http://127.0.0.1:{free_port()}/v1")
    assert (client.heard_at, client.reached_at) == (NEVER, NEVER)


async def test_an_endpoint_that_cannot_be_asked_is_never_heard() -> None:
    client = HttpModelTransport().open_client(an_endpoint("http://127.0.0.1:9/v1", headers={"x": "\n"}))
    assert isinstance(client, UnusableClient)
    await client.ask(ASK)
    assert (client.heard_at, client.reached_at) == (NEVER, NEVER)


async def test_each_read_of_a_stream_is_heard() -> None:
    instants: list[float] = []

    async def wait_heard(conn: Conn) -> None:
        with trio.fail_after(5):
            while client.heard_at <= (instants or [NEVER])[-1]:  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.001)
        instants.append(client.heard_at)

    rest = WHOLE.removeprefix(b"HTTP/1.1 200 OK\r\n")
    async with raw_server(script_of(b"HTTP/1.1 200 OK\r\n", wait_heard, rest[:60], wait_heard, rest[60:])) as server:
        client = client_of(server.url)
        began = trio.current_time()
        assert isinstance((await client.ask(ASK)).outcome, Ok)
        assert began < instants[0] < instants[1] < client.heard_at <= trio.current_time()
        client.close()


async def test_a_probe_and_a_request_of_the_users_own_are_heard() -> None:
    async with raw_server(script_of(reply(document()))) as server:
        client = client_of(server.url)
        await client.probe("/models")
        probed_at = client.heard_at
        assert probed_at > NEVER
        assert client.reached_at == probed_at
        async with client.open_http() as http:
            assert (await http.post("chat/completions", content=b"{}")).status_code == 200
        assert client.heard_at > probed_at
        client.close()


async def test_bytes_that_are_no_http_are_heard_too() -> None:
    async with raw_server(script_of(b"SSH-2.0-OpenSSH\r\n", silent)) as server:
        client = client_of(server.url)
        assert isinstance((await client.ask(ASK)).outcome, Lost)
        assert client.heard_at > NEVER


async def test_a_server_that_accepts_and_says_nothing_is_reached_but_not_heard() -> None:
    async with raw_server(script_of(silent)) as server:
        client = client_of(server.url)
        began = trio.current_time()
        outcome = (await client.ask(ChatRequest(ASK.messages, idle_timeout_s=0.05))).outcome
        assert isinstance(outcome, Lost)
        assert outcome.cause is LostCause.SILENT
        assert client.heard_at == NEVER
        assert began < client.reached_at < trio.current_time() - 0.04


@pytest.mark.parametrize("end", [cut, reset])
async def test_the_end_of_a_connection_is_a_sign_of_the_host_and_no_byte(end: object) -> None:
    told_at: list[float] = []

    def note_asked(conn: Conn) -> None:
        told_at.append(trio.current_time())

    async with raw_server(script_of(note_asked, end)) as server:
        client = client_of(server.url)
        outcome = (await client.ask(ASK)).outcome
        assert isinstance(outcome, Lost)
        assert outcome.cause is LostCause.SERVER
        assert client.heard_at == NEVER
        assert client.reached_at > told_at[0]


async def test_a_refused_connection_is_a_sign_of_the_host() -> None:
    client = client_of(f"http://127.0.0.1:{free_port()}/v1")
    await client.probe("/models")
    assert client.heard_at == NEVER
    assert client.reached_at > NEVER


async def test_a_stream_that_falls_silent_was_heard_last_when_it_last_spoke() -> None:
    async with raw_server(script_of(BEGUN, silent)) as server:
        client = client_of(server.url)
        outcome = (await client.ask(ChatRequest(ASK.messages, idle_timeout_s=0.2))).outcome
        assert isinstance(outcome, Lost)
        assert outcome.cause is LostCause.SILENT
        assert NEVER < client.heard_at <= trio.current_time() - 0.2


async def test_a_silence_that_is_noticed_late_says_nothing_of_the_server(mock_clock: trio.testing.MockClock) -> None:
    asked = trio.Event()
    outcomes: list[Outcome] = []

    def note_asked(conn: Conn) -> None:
        asked.set()

    async def ask(url: str) -> None:
        outcomes.append((await client_of(url).ask(ChatRequest(ASK.messages, idle_timeout_s=1.0))).outcome)

    async with raw_server(script_of(note_asked, silent)) as server, trio.open_nursery() as nursery:
        nursery.start_soon(ask, server.url)
        await asked.wait()
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(1.5 + LAG_S)
    assert isinstance(outcomes[0], Lost)
    assert outcomes[0].cause is LostCause.LATE


async def test_the_observer_of_a_users_own_client_is_told_the_cause() -> None:
    seen: list[Outcome | None] = []
    client = client_of("http://224.0.0.1:9/v1")
    async with client.open_http(lambda outcome, since: seen.append(outcome)) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("models")
    assert isinstance(seen[0], Lost)
    assert seen[0].cause is LostCause.NETWORK
