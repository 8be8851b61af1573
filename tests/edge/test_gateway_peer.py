"""The client at the other end, in memory and on a virtual clock: when it counts as gone."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from gateway_kit import Door, relayed, waiting
from memory_line import MemoryLine
from raw_client import TOKEN, post

from scavenge.edge.gateway.connection import serve_connection
from scavenge.edge.gateway.entrance import Entrance
from scavenge.edge.gateway.inbox import Inbox
from scavenge.edge.gateway.limits import GatewayLimits
from scavenge.edge.gateway.peer import Peer
from scavenge.edge.gateway.wire import Wire
from scavenge.errors import leaves


async def test_a_client_that_takes_a_little_now_and_then_is_not_gone(autojump_clock):
    line = MemoryLine(size=10, takes_s=59)
    peer = Peer(line, write_s=60)
    await peer.send(b"x" * 1000)
    assert trio.current_time() > 5000
    assert (line.taken, peer.gone) == (b"x" * 1000, False)


async def test_a_client_that_takes_nothing_for_too_long_is_gone_for_good(autojump_clock):
    line = MemoryLine(size=10, takes_s=61)
    peer = Peer(line, write_s=60)
    started = trio.current_time()
    await peer.send(b"x" * 1000)
    await peer.send(b"more")
    assert trio.current_time() == started + 60
    assert (line.taken, peer.gone) == (b"", True)
    assert await peer.receive() == b""


async def test_a_client_to_which_half_was_sent_gets_nothing_more(autojump_clock):
    line = MemoryLine(size=10, takes_s=1)
    peer = Peer(line, write_s=60)
    with trio.move_on_after(5.5):
        await peer.send(b"x" * 1000)
    await peer.send(b"more")
    assert (line.taken, peer.gone) == (b"x" * 50, True)


async def test_what_is_sent_to_a_client_that_hung_up_goes_nowhere(autojump_clock):
    line = MemoryLine(size=10, takes_s=1)
    line.fails_after = 500
    peer = Peer(line, write_s=60)
    await peer.send(b"x" * 1000)
    assert (len(line.taken), peer.gone) == (500, True)
    assert peer.is_quiet()
    peer.close()
    assert line.closed


class ShutLine(MemoryLine):
    """A connection that is closed while somebody waits for it."""

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        raise trio.ClosedResourceError

    def is_quiet(self) -> bool:
        raise ConnectionResetError


async def test_a_connection_that_is_closed_while_something_is_sent_is_gone():
    line = ShutLine(takes_s=1)
    peer = Peer(line, write_s=60)
    assert peer.is_quiet()
    await peer.send(b"x" * 1000)
    assert (line.taken, peer.gone) == (b"", True)


class BrokenLine(MemoryLine):
    """Fails in a way that no client can cause."""

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("our mistake")


async def test_a_bug_of_the_gateways_own_is_told_and_closes_the_connection():
    line, bugs = BrokenLine(), []
    await serve_connection(line, Entrance(Door(), "token", bugs.append, GatewayLimits()))
    assert [str(leaf) for bug in bugs for leaf in leaves(bug)] == ["our mistake"]
    assert line.closed


class EagerLine(MemoryLine):
    """A client that sends a request and then without end."""

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        self.reads += 1
        if self.reads > 100:
            await trio.sleep_forever()
        return post() if self.reads == 1 else b"x" * 65536


async def test_a_client_that_sends_a_lot_ahead_is_not_read_until_it_has_its_answer():
    line, (door, release) = EagerLine(), waiting()
    entrance = Entrance(door, TOKEN, pytest.fail, GatewayLimits(ahead_bytes=100_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, line, entrance)
        await trio.testing.wait_all_tasks_blocked()
        assert (door.under_way, line.reads) == (1, 3)
        release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (door.under_way, line.reads) == (0, 101)  # what it sent is no request, and thrown away
        nursery.cancel_scope.cancel()
    assert line.taken.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 431 " in line.taken
    assert line.closed


@pytest.mark.parametrize(("data", "answers"), [(b"", 0), (b"\r\n\r\n", 0), (post(), 1), (post(token=None), 1)])
async def test_a_connection_that_is_idle_is_closed_without_a_word(data, answers, autojump_clock):
    line, started = MemoryLine(data), trio.current_time()
    await serve_connection(line, Entrance(Door(), TOKEN, pytest.fail, GatewayLimits(idle_s=300, request_s=300)))
    assert trio.current_time() == started + 300
    assert (line.taken.count(b"HTTP/1.1 "), line.ended, line.closed) == (answers, False, True)


async def test_what_comes_after_the_last_answer_is_read_and_not_kept(autojump_clock):
    line, wire = MemoryLine(), Wire(1000, 1000)
    inbox = Inbox(Peer(line, write_s=60), wire, ahead_bytes=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.run_inbox)
        nursery.start_soon(inbox.wait_gone)
        for _ in range(3):
            await trio.testing.wait_all_tasks_blocked()
            line.send(b"x" * 100)
        await trio.testing.wait_all_tasks_blocked()
        assert (line.data, wire.held_bytes) == (b"", 0)
        line.send(b"")


async def test_waiting_for_a_reply_is_not_idle(autojump_clock):
    line, (door, release) = MemoryLine(post()), waiting()
    entrance = Entrance(door, TOKEN, pytest.fail, GatewayLimits(idle_s=1, request_s=1, write_s=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, line, entrance)
        await trio.sleep(1000)
        assert (door.under_way, line.closed) == (1, False)
        release.set()
    assert line.taken.startswith(b"HTTP/1.1 200 ")
    assert line.closed


async def test_what_a_client_had_asked_ahead_is_not_waited_for_once_it_has_hung_up(autojump_clock):
    line = MemoryLine(post() * 2)

    async def does(call, sink):
        if len(door.calls) > 1:
            await trio.sleep_forever()
        line.send(b"")  # it hangs up in the moment in which it has its answer
        await trio.lowlevel.checkpoint_if_cancelled()
        return relayed()

    door = Door(does)
    with trio.fail_after(10):
        await serve_connection(line, Entrance(door, TOKEN, pytest.fail, GatewayLimits()))
    assert line.taken.count(b"HTTP/1.1 200 ") == 1
    assert door.under_way == 0


async def test_a_hang_up_is_noticed_again_once_what_was_sent_ahead_is_read(autojump_clock):
    line = MemoryLine(post())
    go_on = trio.Event()

    async def does(call, sink):
        if len(door.calls) > 1:
            await trio.sleep_forever()
        await go_on.wait()
        return relayed()

    door = Door(does)
    entrance = Entrance(door, TOKEN, pytest.fail, GatewayLimits(ahead_bytes=len(post())))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, line, entrance)
        await trio.testing.wait_all_tasks_blocked()
        line.send(post())
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        assert door.under_way == 1
        line.send(b"")
        with trio.fail_after(10):
            while door.under_way:  # noqa: ASYNC110 (nothing rings a bell here)
                await trio.sleep(0.1)
    assert (len(door.calls), door.cancelled, line.closed) == (2, 1, True)


async def test_a_client_that_asks_a_lot_at_once_lets_others_have_their_turn(autojump_clock):
    line, turns = MemoryLine(post() * 100 + post(Connection="close")), 0

    async def does(call, sink):
        await trio.lowlevel.checkpoint_if_cancelled()
        return relayed()

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await serve_connection(line, Entrance(Door(does), TOKEN, pytest.fail, GatewayLimits(linger_s=0.0)))
        nursery.cancel_scope.cancel()
    assert line.taken.count(b"HTTP/1.1 200 ") == 101
    assert turns >= 100
