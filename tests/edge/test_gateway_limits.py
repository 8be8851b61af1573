"""What clients can cost the gateway, and who has to go when there is no room."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest
import trio
import trio.testing
from gateway_kit import Door, no_descriptor_left, open_gateway, waiting
from raw_client import MESSAGES, chunk, chunked_head, get, post, until

from scavenge.edge.gateway.clients import Clients
from scavenge.edge.gateway.line import ASK_EVERY_S, ASK_TIMES, SILENT_S, SocketLine
from scavenge.edge.gateway.peer import Peer

# --- memory


async def test_bodies_beyond_what_all_may_hold_together_are_put_off():
    door, release = waiting()
    body = post({"messages": [{"content": "x" * 600}]})
    size = len(body.partition(b"\r\n\r\n")[2])
    async with open_gateway(door, max_held_bytes=2 * size) as gateway, gateway.client() as client:
        async with gateway.client() as first, gateway.client() as second:
            await first.send(body)
            await second.send(body)
            await until(lambda: door.under_way == 2)
            assert gateway.server._entrance.clients.held_bytes == 2 * size
            for data in (body, chunked_head() + chunk(b"x" * 600)):
                async with gateway.client() as third:
                    reply = await third.ask(data)
                    assert (reply.status, reply.error["code"]) == (503, "too_much_at_once")
                    assert (reply.headers["retry-after"], reply.headers["x-should-retry"]) == ("1", "true")
                    assert reply.error["type"] == "server_error"
            release.set()
            assert (await first.reply()).status == 200
            assert (await second.reply()).status == 200
            await until(lambda: gateway.server._entrance.clients.held_bytes == 0)
        assert (await client.ask(body)).status == 200


async def test_a_body_that_is_announced_only_holds_nothing():
    async with open_gateway(max_held_bytes=1000) as gateway, gateway.client() as client, gateway.client() as slow:
        await slow.send(post(b"x" * 990).partition(b"\r\n\r\n")[0] + b"\r\n\r\n{")
        await until(lambda: gateway.server._entrance.clients.held_bytes == 1)
        assert (await client.ask(post())).status == 200
        await slow.send(b"x" * 900)
        await until(lambda: gateway.server._entrance.clients.held_bytes == 901)
        assert (await client.ask(post({"x": "x" * 50}))).status == 503
        await slow.send(b"x" * 89)
        assert (await slow.reply()).status == 400  # it is no JSON, but all of it was taken


async def test_one_body_that_is_longer_than_all_may_be_is_refused_before_it_is_sent():
    async with open_gateway(max_held_bytes=1000) as gateway, gateway.client() as client:
        reply = await client.ask(post(b"x" * 1001).partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        assert reply.status == 503


# --- connections


async def test_a_client_that_vanishes_is_found_out_by_the_system():
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, await trio.open_tcp_stream(*listener.socket.getsockname()):
        line = SocketLine(await listener.accept())
        options = {
            name: line._socket.getsockopt(level, getattr(socket, name))
            for level, name in [
                (socket.SOL_SOCKET, "SO_KEEPALIVE"),
                (socket.IPPROTO_TCP, "TCP_NODELAY"),
                (socket.IPPROTO_TCP, "TCP_KEEPIDLE"),
                (socket.IPPROTO_TCP, "TCP_KEEPINTVL"),
                (socket.IPPROTO_TCP, "TCP_KEEPCNT"),
                (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT"),
            ]
        }
        line.close()
    assert options.pop("SO_KEEPALIVE")
    assert options.pop("TCP_NODELAY")
    assert list(options.values()) == [SILENT_S, ASK_EVERY_S, ASK_TIMES, 1000 * (SILENT_S + ASK_EVERY_S * ASK_TIMES)]


async def test_whoever_waits_for_a_client_finds_its_connection_closed():
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, await trio.open_tcp_stream(*listener.socket.getsockname()):
        line = SocketLine(await listener.accept())
        peer = Peer(line, write_s=60)
        received: list[bytes] = []

        async def receive() -> None:
            received.append(await peer.receive())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await line.receive()
            peer.close()
        peer.close()
        assert received == [b""]
        assert await peer.receive() == b""
        await peer.send(b"nobody hears it")


async def test_of_too_many_that_ask_nothing_the_one_that_was_first_has_to_go():
    async with open_gateway(max_waiting=3) as gateway, gateway.client() as first:
        await first.send(post()[:50])
        await until(lambda: gateway.server.connections == 1)
        async with gateway.client() as second, gateway.client(), gateway.client():
            await until(lambda: gateway.server.connections == 3)
            assert await first.at_end()
            assert (await second.ask(post())).status == 200


async def test_without_descriptors_those_that_ask_nothing_make_room():
    async with open_gateway(shed_after_s=0.0) as gateway, gateway.client() as loris, gateway.client() as silent:
        await loris.send(post()[:50])
        await until(lambda: gateway.server.connections == 2)
        with trio.socket.socket() as outside, no_descriptor_left():
            await outside.connect(gateway.listener.socket.getsockname())
            await outside.send(post())
            assert (await outside.recv(100)).startswith(b"HTTP/1.1 200 ")
            assert await loris.at_end()
            assert await silent.at_end()


async def test_without_descriptors_a_connection_that_is_new_has_time_for_its_request():
    async with open_gateway(shed_after_s=60.0) as gateway, gateway.client() as new:
        await until(lambda: gateway.server.connections == 1)
        with trio.socket.socket() as outside, no_descriptor_left():
            await outside.connect(gateway.listener.socket.getsockname())
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert (await new.ask(post())).status == 200  # and is between two requests from here on
            assert await new.at_end()
            await outside.send(post())
            assert (await outside.recv(100)).startswith(b"HTTP/1.1 200 ")


class Guest:
    """A connection of which nothing is to be seen."""

    is_between_requests = False

    def __init__(self, *, quiet: bool = True) -> None:
        self.is_quiet = quiet
        self.dropped = False

    def drop(self) -> None:
        self.dropped = True


async def test_a_request_that_does_not_come_holds_up_the_end_for_a_moment_only(autojump_clock):
    clients = Clients(max_waiting=100, shed_after_s=1, late_s=5)
    slow, quick, silent = Guest(quiet=False), Guest(quiet=False), Guest()
    for guest in (slow, quick, silent):
        clients.enter(guest)
    clients.stop()
    assert [guest.dropped for guest in (slow, quick, silent)] == [False, False, True]

    async def ask_and_be_answered() -> None:
        await trio.sleep(4)
        clients.asks(quick)
        await trio.sleep(100)
        clients.answered(quick, last=True)

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_and_be_answered)
        await clients.wait_answered()
        assert trio.current_time() - started == 104
    await clients.wait_answered()
    assert trio.current_time() - started == 109


async def test_those_go_that_have_waited_the_longest_some_at_a_time(autojump_clock):
    clients, guests = Clients(max_waiting=100, shed_after_s=10, late_s=5), [Guest() for _ in range(20)]
    for guest in guests:
        clients.enter(guest)
        await trio.sleep(1)
    clients.asks(guests[1])
    clients.answered(guests[1], last=False)
    assert clients.shed()  # those of the first ten seconds, but for the one that has had an answer since
    assert [guest.dropped for guest in guests] == [True, False] + [True] * 9 + [False] * 9
    assert not clients.shed()
    await trio.sleep(100)
    more = [Guest() for _ in range(10)]
    for guest in more:
        clients.enter(guest)
    await trio.sleep(100)
    assert clients.shed()
    assert sum(guest.dropped for guest in more) == 6  # 16 in all
    assert not more[-1].dropped


async def test_many_requests_of_one_client_do_not_keep_others_waiting():
    async with open_gateway() as gateway, gateway.client() as hasty, gateway.client() as other:
        await hasty.send(get("/v1/models") * 300)
        reply = await other.ask(post({"messages": MESSAGES}))
        assert reply.status == 200
        assert [(await hasty.reply()).status for _ in range(300)] == [200] * 300


async def test_nothing_is_kept_of_clients_that_came_and_went():
    async with open_gateway(Door()) as gateway:
        with ExitStack() as stack:
            for number in range(50):
                connecting = stack.enter_context(socket.create_connection(gateway.listener.socket.getsockname()))
                connecting.sendall(post()[: number * 5])
            await until(lambda: gateway.server.connections == 50)
        await until(lambda: gateway.server.connections == 0)
