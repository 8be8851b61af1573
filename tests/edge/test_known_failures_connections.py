"""Ways in which connections made other systems fail healthy servers, on real loopback; each test names the report."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from http_cases import ASK, WHOLE, an_endpoint
from raw_server import RawServer, document, raw_server, reply, script_of

import scavenge
from scavenge.edge.http.dial import CROWD_S
from scavenge.edge.model_http import HttpModelTransport
from scavenge.listings import EndpointSpec, Listing
from scavenge.types import Answer, Lost, LostCause, Ok

CHAT = [{"role": "user", "content": "hi"}]


async def test_150_requests_at_once_are_all_with_the_server_at_once() -> None:
    """UKGovernmentBEIS/inspect_ai#847, openai/openai-python#821: the HTTP pool stops at 100, whatever the limit."""
    everybody, inside = trio.Event(), 0

    async def wait_for_all(conn: object) -> None:
        nonlocal inside
        inside += 1
        if inside == 150:
            everybody.set()
        await everybody.wait()

    async with raw_server(script_of(wait_for_all, WHOLE)) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        answers: list[Answer] = []

        async def ask() -> None:
            answers.append(await client.ask(ASK))

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for _ in range(150):
                    nursery.start_soon(ask)
        assert all(isinstance(answer.outcome, Ok) for answer in answers)
        client.close()


@asynccontextmanager
async def small_backlog(backlog: int) -> AsyncIterator[RawServer]:
    """A quick server that lists its model, and whose kernel queues so few connections."""
    listener = trio.socket.socket()
    await listener.bind(("127.0.0.1", 0))
    listener.listen(backlog)
    server = RawServer(listener.getsockname()[1])

    async def serve(stream: trio.SocketStream) -> None:
        server.accepted += 1
        async with stream:
            rest = b""
            while data := await stream.receive_some():
                rest += data
                if rest.startswith(b"GET ") and rest.endswith(b"\r\n\r\n"):
                    await stream.send_all(reply(b'{"object": "list", "data": [{"id": "some/model"}]}'))
                    rest = b""
                elif rest.endswith(b"}"):
                    await stream.send_all(reply(document()))
                    rest = b""

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, serve, [trio.SocketListener(listener)])
        yield server
        nursery.cancel_scope.cancel()


async def test_a_thousand_requests_at_once_do_not_storm_a_server_with_a_short_backlog() -> None:
    """PrimeIntellect-ai/verifiers#2632: 1 024 connects at once timed out, and healthy engines were blamed."""
    async with small_backlog(16) as server:

        class Source:
            async def list_endpoints(self) -> Listing:
                return Listing([EndpointSpec("pool", "some/model", server.url)])

        admission = {"policy": "fixed", "limit": 1024}
        outcomes: list[list[str]] = []
        async with scavenge.open_pool(Source(), admission=admission, max_retries=0, stream=False) as pool:

            async def ask() -> None:
                outcomes.append([attempt.outcome for attempt in (await pool.chat(CHAT)).attempts])

            with trio.fail_after(20):
                async with trio.open_nursery() as nursery:
                    for _ in range(1024):
                        nursery.start_soon(ask)
            (endpoint,) = pool.status().endpoints
            assert endpoint.state == "live"
        assert outcomes == [["ok"]] * 1024


async def test_the_more_connect_at_once_the_longer_each_may_take() -> None:
    """PrimeIntellect-ai/verifiers#2632: five seconds were too short for the last of a thousand."""
    with socket.socket() as listener, socket.socket() as queued, socket.socket() as more:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        queued.connect(listener.getsockname())
        more.setblocking(False)
        more.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        client = HttpModelTransport(connect_deadline_s=0.05).open_client(an_endpoint(url))
        told: list[str] = []

        async def ask() -> None:
            outcome = (await client.ask(ASK)).outcome
            assert isinstance(outcome, Lost)
            assert outcome.cause is LostCause.SILENT
            told.append(outcome.message)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
        within_s = sorted(float(message.rpartition("within ")[2].removesuffix(" s")) for message in told)
        assert [round(seconds, 3) for seconds in within_s] == [round(0.05 + CROWD_S * n, 3) for n in range(20)]


async def test_the_connection_of_a_cancelled_request_is_closed_before_its_slot_is_lent_again() -> None:
    """PrimeIntellect-ai/prime-rl#3285: permits came back while the server still worked for who had left."""
    under_way: list[int] = []

    async def script(conn: object) -> None:
        await conn.request()  # type: ignore[attr-defined]
        under_way.append(server.accepted - server.gone)
        await conn.until_gone()  # type: ignore[attr-defined]

    async with raw_server(script) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        slot = trio.CapacityLimiter(1)

        async def ask_in_vain() -> None:
            async with slot:
                with trio.move_on_after(0.05):
                    await client.ask(ASK)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask_in_vain)
        await server.wait_gone(5)
        assert max(under_way) == 1
        client.close()
