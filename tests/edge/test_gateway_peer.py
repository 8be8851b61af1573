"""The client at the other end, in memory and on a virtual clock: when it counts as gone."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from gateway_kit import TOKEN, Door, post, waiting

from scavenge.edge.gateway.connection import Gate, GatewaySettings, serve_connection
from scavenge.edge.gateway.peer import Peer
from scavenge.errors import leaves


class SlowSocket:
    """Takes so many bytes at a time, after so many seconds; ``error`` is what it raises in the end."""

    def __init__(self, size: int, takes_s: float, error: OSError | None = None, least: int = 10**9) -> None:
        self.size, self.takes_s, self.error, self.least = size, takes_s, error, least
        self.taken = b""
        self.closed = False

    async def send(self, data: memoryview) -> int:
        await trio.sleep(self.takes_s)
        if self.error is not None and len(self.taken) >= self.least:
            raise self.error
        self.taken += data[: self.size]
        return min(self.size, len(data))

    def close(self) -> None:
        self.closed = True


class SlowStream:
    """As much of a stream as a peer uses for sending."""

    def __init__(self, socket: SlowSocket) -> None:
        self.socket = socket


async def test_a_client_that_takes_a_little_now_and_then_is_not_gone(autojump_clock):
    socket = SlowSocket(size=10, takes_s=59)
    peer = Peer(SlowStream(socket), write_s=60)
    await peer.send(b"x" * 1000)
    assert trio.current_time() > 5000
    assert (socket.taken, peer.gone) == (b"x" * 1000, False)


async def test_a_client_that_takes_nothing_for_too_long_is_gone_for_good(autojump_clock):
    socket = SlowSocket(size=10, takes_s=61)
    peer = Peer(SlowStream(socket), write_s=60)
    started = trio.current_time()
    await peer.send(b"x" * 1000)
    await peer.send(b"more")
    assert trio.current_time() == started + 60
    assert (socket.taken, peer.gone) == (b"", True)
    assert await peer.receive() == b""


class BrokenStream:
    """Fails in a way that no client can cause."""

    def __init__(self) -> None:
        self.socket = SlowSocket(size=1, takes_s=0)

    async def receive_some(self, size: int) -> bytes:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("our mistake")


async def test_a_bug_of_the_gateways_own_is_told_and_closes_the_connection():
    stream, bugs = BrokenStream(), []
    await serve_connection(stream, Gate(Door(), "token", bugs.append, GatewaySettings()))
    assert [str(leaf) for bug in bugs for leaf in leaves(bug)] == ["our mistake"]
    assert stream.socket.closed


class EagerStream:
    """A client that sends a request and then without end."""

    def __init__(self) -> None:
        self.socket = SlowSocket(size=1, takes_s=0)
        self.read = 0

    async def receive_some(self, size: int) -> bytes:
        await trio.lowlevel.checkpoint()
        self.read += 1
        if self.read > 100:
            await trio.sleep_forever()
        return post() if self.read == 1 else b"x" * size


async def test_a_client_that_sends_a_lot_ahead_is_not_read_until_it_has_its_answer():
    stream, (door, _) = EagerStream(), waiting()
    gate = Gate(door, TOKEN, pytest.fail, GatewaySettings(ahead_bytes=100_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, stream, gate)
        await trio.testing.wait_all_tasks_blocked()
        assert (door.under_way, stream.read) == (1, 3)
        nursery.cancel_scope.cancel()
    assert stream.socket.closed


async def test_what_is_sent_to_a_client_that_hung_up_goes_nowhere(autojump_clock):
    socket = SlowSocket(size=10, takes_s=1, error=BrokenPipeError(), least=500)
    peer = Peer(SlowStream(socket), write_s=60)
    await peer.send(b"x" * 1000)
    assert (len(socket.taken), peer.gone) == (500, True)
    peer.close()
    assert socket.closed


class PatientStream:
    """A client that sends a request and waits."""

    def __init__(self) -> None:
        self.socket = SlowSocket(size=10**6, takes_s=0)
        self.asked = False

    async def receive_some(self, size: int) -> bytes:
        if self.asked:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        self.asked = True
        return post()


async def test_waiting_for_a_reply_is_not_idle(autojump_clock):
    stream, (door, release) = PatientStream(), waiting()
    gate = Gate(door, TOKEN, pytest.fail, GatewaySettings(idle_s=1, request_s=1, write_s=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, stream, gate)
        await trio.sleep(1000)
        assert (door.under_way, stream.socket.closed) == (1, False)
        release.set()
    assert stream.socket.taken.startswith(b"HTTP/1.1 200 ")
    assert stream.socket.closed
