"""`PlainChannel` and an `Exchange` on it, on a pair of sockets: what a server that has gone has left behind."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from raw_server import reply

from scavenge.edge.http.channel import READ_BYTES, PlainChannel
from scavenge.edge.http.exchange import EARLY_REPLY_BYTES, Connection, Exchange, Pulse
from scavenge.edge.http.faults import HttpFault, NoReply
from scavenge.edge.http.request import RequestKind
from scavenge.edge.http.signs import Signs
from scavenge.types import LostCause

ASK = RequestKind(b"POST", b"/", ((b"host", b"h"),))


@asynccontextmanager
async def a_pair() -> AsyncIterator[tuple[PlainChannel, trio.SocketStream]]:
    ours, theirs = trio.socket.socketpair()
    channel = PlainChannel(trio.SocketStream(ours))
    try:
        yield channel, trio.SocketStream(theirs)
    finally:
        channel.close()
        theirs.close()


def exchange_on(channel: PlainChannel, kept: list[Connection]) -> Exchange:
    return Exchange(Connection(channel), kept.append, Pulse(trio.CancelScope()), Signs(), "http://h")


class OutOfReach(PlainChannel):
    """A connection whose peer the system gave up."""

    __slots__ = ()

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")


async def test_a_connection_that_the_system_gives_up_is_silent_and_no_sign_of_the_host() -> None:
    ours, theirs = trio.socket.socketpair()
    signs = Signs()
    channel = OutOfReach(trio.SocketStream(ours))
    exchange = Exchange(Connection(channel), [].append, Pulse(trio.CancelScope()), signs, "http://h")
    with pytest.raises(NoReply, match="timed out") as caught:
        await exchange.begin(ASK.request())
    assert caught.value.cause is LostCause.SILENT
    assert signs.reached_at == float("-inf")
    exchange.close()
    theirs.close()


async def test_what_does_not_fit_is_sent_when_there_is_room() -> None:
    data = bytes(range(256)) * 20_000
    async with a_pair() as (channel, peer):
        gone = 0
        while step := channel.send_nowait(data[gone:]):
            gone += step
        assert 0 < gone < len(data)
        got = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, memoryview(data)[gone:])
            while len(got) < len(data):
                got += await peer.receive_some()
        assert got == data


async def test_closing_wakes_who_waits_and_twice_is_no_more() -> None:
    async with a_pair() as (channel, _), trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await channel.receive()

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        channel.close()
        channel.close()


async def test_a_channel_is_quiet_until_something_comes() -> None:
    async with a_pair() as (channel, peer):
        assert channel.is_quiet()
        await peer.send_all(b"x" * (READ_BYTES + 1))
        assert not channel.is_quiet()
        assert len(await channel.receive()) <= READ_BYTES


async def test_what_a_server_said_before_it_closed_is_heard_though_nothing_can_be_sent() -> None:
    kept: list[Connection] = []
    async with a_pair() as (channel, peer):
        await peer.send_all(reply(b"too many", "429 Too Many Requests"))
        await peer.aclose()
        exchange = exchange_on(channel, kept)
        await exchange.begin(ASK.request(b"{}"))
        assert (exchange.head.status, await exchange.read(), await exchange.read()) == (429, b"too many", b"")
        exchange.close()
    assert kept == []


@pytest.mark.parametrize(("said", "kind"), [(b"", NoReply), (b"HTTP/1.1 200", HttpFault)])
async def test_a_server_that_said_nothing_is_told_from_one_that_broke_off(said: bytes, kind: type) -> None:
    async with a_pair() as (channel, peer):
        await peer.send_all(said)
        await peer.aclose()
        with pytest.raises(HttpFault) as caught:
            await exchange_on(channel, []).begin(ASK.request(b"{}"))
    assert type(caught.value) is kind


async def test_a_long_reply_before_the_request_was_read_is_not_held() -> None:
    async def flood(peer: trio.SocketStream) -> None:
        with pytest.raises(trio.BrokenResourceError):
            await peer.send_all(reply(b"x" * 4 * EARLY_REPLY_BYTES))

    async with a_pair() as (channel, peer), trio.open_nursery() as nursery:
        nursery.start_soon(flood, peer)
        exchange = exchange_on(channel, [])
        with pytest.raises(HttpFault, match="long reply"):
            await exchange.begin(ASK.request(b"x" * 10_000_000))
        exchange.close()


async def test_an_exchange_that_is_whole_keeps_its_connection() -> None:
    kept: list[Connection] = []
    async with a_pair() as (channel, peer):
        await peer.send_all(reply(b"hi"))
        exchange = exchange_on(channel, kept)
        await exchange.begin(ASK.request(b"{}"))
        exchange.close()  # the body came with the head, though nobody has read it
    assert [connection.channel for connection in kept] == [channel]
