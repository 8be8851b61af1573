"""Which connections are used again, for how long, and which are closed."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from http_cases import (
    ASK,
    BEGUN,
    END_OF_STREAM,
    an_endpoint,
    asked,
    client_of,
    cut,
)
from raw_server import (
    STREAM_HEAD,
    Conn,
    document,
    raw_server,
    reply,
    script_of,
)

from scavenge.edge.http.exchange import Connection
from scavenge.edge.http.pool import ConnectionPool
from scavenge.edge.model_http import HttpModelTransport
from scavenge.types import (
    ChatRequest,
    Lost,
    Ok,
    Rejected,
)


async def test_connections_are_used_again_the_last_one_first() -> None:
    async with raw_server(script_of(STREAM_HEAD + END_OF_STREAM)) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        for _ in range(5):
            assert isinstance((await client.ask(ASK)).outcome, Ok)
        assert server.accepted == 1
        client.close()
        await server.wait_gone(1)
        assert isinstance((await client.ask(ASK)).outcome, Ok)  # a closed client keeps nothing
        await server.wait_gone(2)


async def test_a_used_connection_that_ends_before_a_byte_of_the_reply_is_replaced() -> None:
    async def script(conn: Conn) -> None:
        await conn.request()
        await conn.send(reply(document()))
        await conn.request()
        if conn.number == 1:
            conn.reset()  # with the request read: the client cannot have known
        await conn.send(reply(document("again")))

    async with raw_server(script) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        assert isinstance((await client.ask(ASK)).outcome, Ok)
        assert isinstance((await client.ask(ASK)).outcome, Ok)
        assert server.accepted == 2
        client.close()


async def test_a_connection_that_the_server_closed_is_not_used() -> None:
    async def script(conn: Conn) -> None:
        await conn.request()
        await conn.send(reply(document()))
        conn.cut()

    async with raw_server(script) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        for _ in range(3):
            assert isinstance((await client.ask(ASK)).outcome, Ok)
            await server.wait_gone(server.accepted)
        assert server.accepted == 3
        client.close()


async def test_what_comes_unasked_on_an_idle_connection_is_no_reply_to_the_next_request() -> None:
    stray = trio.Event()

    async def script(conn: Conn) -> None:
        await conn.request()
        await conn.send(reply(document("asked")))
        if conn.number == 1:
            await stray.wait()
            await conn.send(reply(document("unasked")))
        await conn.request()

    async with raw_server(script) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        assert isinstance((await client.ask(ASK)).outcome, Ok)
        stray.set()
        await trio.testing.wait_all_tasks_blocked()
        outcome = (await client.ask(ASK)).outcome
        assert isinstance(outcome, Ok)
        assert outcome.reply.text == "asked"
        assert server.accepted == 2
        client.close()


@pytest.mark.parametrize("field", ["connection: close", "Connection: x, CLOSE"])
async def test_a_connection_that_the_server_will_close_is_not_kept(field: str) -> None:
    async with raw_server(script_of(reply(document(), headers=field))) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        for _ in range(2):
            assert isinstance((await client.ask(ASK)).outcome, Ok)
        await server.wait_gone(2)
        client.close()


async def test_a_connection_on_which_a_request_went_out_in_part_is_not_kept() -> None:
    async def script(conn: Conn) -> None:
        await conn.stream.receive_some(1000)
        await conn.send(reply(b'{"error": "too large"}', "413 Content Too Large"))
        await conn.until_gone()

    async with raw_server(script) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        request = ChatRequest([{"role": "user", "content": "x" * 50_000_000}])
        with trio.fail_after(10):
            assert isinstance((await client.ask(request)).outcome, Rejected)
        await server.wait_gone(1)
        client.close()


async def test_a_fresh_connection_that_ends_at_once_is_not_replaced() -> None:
    async with raw_server(script_of(cut)) as server:
        outcome = (await asked(server.url)).outcome
        assert isinstance(outcome, Lost)
        assert server.accepted == 1


async def test_cancelling_a_request_closes_its_connection() -> None:
    gone = trio.Event()

    async def script(conn: Conn) -> None:
        await conn.request()
        await conn.send(BEGUN)
        await conn.until_gone()
        gone.set()

    async with raw_server(script) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        with trio.move_on_after(0.1) as scope:
            await client.ask(ASK)
        assert scope.cancelled_caught
        with trio.fail_after(5):
            await gone.wait()


async def test_idle_connections_expire(mock_clock: trio.testing.MockClock) -> None:
    closed: list[int] = []

    class Quiet:
        def __init__(self, number: int) -> None:
            self.number = number

        def is_quiet(self) -> bool:
            return True

        def close(self) -> None:
            closed.append(self.number)

    pool = ConnectionPool(client_of("http://h/v1")._pool.dialer, idle_expiry_s=3.0)
    for number in range(3):  # at 0, 2 and 4 seconds: the first is over its 3 when the last comes
        pool._give_back(Connection(Quiet(number)))  # type: ignore[arg-type]
        mock_clock.jump(2.0)
    assert (closed, pool.idle) == ([0], 2)
    newest = pool._take()  # at 6 seconds: the second is over its time too
    assert newest is not None
    assert isinstance(newest.channel, Quiet)
    assert (newest.channel.number, closed, pool.idle) == (2, [0, 1], 0)
    await trio.lowlevel.checkpoint()
