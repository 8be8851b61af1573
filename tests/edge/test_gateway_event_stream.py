"""A stream of events to a client in memory, on a virtual clock: its chunks, and the comments between them."""

from __future__ import annotations

import pytest
import trio
from gateway_kit import piece
from memory_line import MemoryLine
from raw_client import chunk

from scavenge.edge.gateway.chunks import DONE, WAITING
from scavenge.edge.gateway.framing import LAST_CHUNK, stream_head
from scavenge.edge.gateway.peer import Peer
from scavenge.edge.gateway.stream import EventStream

HEAD = stream_head(chunked=True, close=False)
COMMENT = chunk(WAITING)
A, B = chunk(piece("a")), chunk(piece("b"))


def stream_to(line: MemoryLine) -> tuple[EventStream, Peer, trio.CancelScope]:
    peer, scope = Peer(line, write_s=60), trio.CancelScope()
    return EventStream(peer, scope, lambda: HEAD, chunked=True), peer, scope


async def test_a_comment_comes_after_so_much_silence_each_time(autojump_clock):
    line = MemoryLine()
    stream, _, _ = stream_to(line)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_comments, 15.0)
        await trio.sleep(14)
        assert (line.taken, stream.opened) == (b"", False)
        await trio.sleep(2)
        assert (line.taken, stream.opened, stream.begun) == (HEAD + COMMENT, True, False)
        await trio.sleep(10)  # it is 26 now
        await stream.take(piece("a"))
        assert stream.begun
        await trio.sleep(14)
        assert line.taken == HEAD + COMMENT + A
        await trio.sleep(17)
        assert line.taken == HEAD + COMMENT + A + COMMENT * 2
        for _ in range(10):
            await stream.take(piece("b"))
            await trio.sleep(14.9)
        assert line.taken == HEAD + COMMENT + A + COMMENT * 2 + B * 10
        nursery.cancel_scope.cancel()
    await stream.end(DONE)
    assert line.taken.endswith(B + chunk(DONE) + LAST_CHUNK)


async def test_nothing_to_hand_on_is_no_end(autojump_clock):
    line = MemoryLine()
    stream, _, _ = stream_to(line)
    await stream.take(b"")
    assert (line.taken, stream.begun) == (b"", False)


async def test_a_comment_of_which_the_client_takes_a_part_is_ended_first(autojump_clock):
    line = MemoryLine(size=7, takes_s=1)
    line.ready = True
    stream, _, _ = stream_to(line)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_comments, 15.0)
        await trio.sleep(20)
        assert line.taken == HEAD[:7]
        line.ready = True
        await trio.sleep(15)
        assert line.taken == HEAD[:14]
        nursery.cancel_scope.cancel()
    await stream.take(piece("a"))
    assert line.taken == HEAD + COMMENT + A


class WillingLine(MemoryLine):
    """Takes a little at any time, but says so only now and then: a socket with a low-water mark."""

    def send_nowait(self, data: bytes) -> int:
        self.ready = True
        return super().send_nowait(data)


@pytest.mark.parametrize("kind", [MemoryLine, WillingLine])
async def test_no_comment_comes_between_the_parts_of_a_chunk(kind, autojump_clock):
    line = kind(size=40, takes_s=10)
    stream, _, _ = stream_to(line)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_comments, 3.0)
        await stream.take(piece("a"))
        nursery.cancel_scope.cancel()
    assert line.taken == HEAD + A


async def test_after_a_part_of_a_chunk_nothing_more_is_sent(autojump_clock):
    line = MemoryLine(size=10, takes_s=1)
    stream, peer, scope = stream_to(line)
    with trio.move_on_after(3.5):
        await stream.take(piece("a"))
    line.ready = True
    with scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.run_comments, 3.0)
            await trio.sleep(10)
            pytest.fail("nobody was told that this client is lost")
    assert (line.taken, peer.gone) == ((HEAD + A)[:30], True)
    with trio.CancelScope() as scope:
        stream = EventStream(peer, scope, lambda: HEAD, chunked=True)
        await stream.fail(piece("b"))
        pytest.fail("it went on")
    assert len(line.taken) == 30


async def test_a_comment_finds_a_client_gone(autojump_clock):
    line = MemoryLine()
    line.fails_after = 0
    stream, _, scope = stream_to(line)
    with scope:
        await stream.run_comments(15.0)
    assert scope.cancelled_caught
