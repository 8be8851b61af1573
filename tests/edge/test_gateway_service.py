"""The gateway as a service: its port, bugs, its end, and many clients at once."""

from __future__ import annotations

import errno
import resource
from contextlib import closing

import pytest
import trio
import trio.testing
from gateway_kit import Door, no_descriptor_left, open_gateway, raising, waiting
from raw_client import TOKEN, get, post, until

from scavenge.edge.gateway.listener import open_listener
from scavenge.edge.gateway.server import run_gateway
from scavenge.errors import InfrastructureError

STREAM = {"stream": True}


@pytest.mark.parametrize("body", [{}, STREAM])
@pytest.mark.parametrize("kind", [RuntimeError, InfrastructureError])
async def test_a_bug_costs_one_connection_and_is_told(body, kind):
    error = kind("our mistake")
    async with open_gateway(Door(raising(error))) as gateway, gateway.client() as client:
        reply = await client.ask(post(body))
        assert (reply.status, reply.headers["connection"]) == (500, "close")
        assert kind.__name__ in reply.error["message"]
        assert b"our mistake" not in reply.body  # who knows what is in there
        assert await client.at_end()
        assert gateway.bugs == [error]
        gateway.bugs.clear()
        async with gateway.client() as other:
            assert (await other.ask(get("/none"))).status == 404


async def test_a_bug_in_what_a_door_returns_is_told_too():
    async def does(call, sink):
        await trio.lowlevel.checkpoint()

    async with open_gateway(Door(does)) as gateway, gateway.client() as client:
        assert (await client.ask(post())).status == 500
        assert [type(bug) for bug in gateway.bugs] == [AttributeError]
        gateway.bugs.clear()


async def test_a_bug_is_written_to_the_log_where_nobody_else_wants_it(caplog):
    with closing(open_listener(TOKEN)) as listener:
        async with trio.open_nursery() as nursery:
            await nursery.start(run_gateway, listener, Door(raising(RuntimeError("our mistake"))))
            stream = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
            async with stream:
                await stream.send_all(post())
                while await stream.receive_some():
                    pass
            nursery.cancel_scope.cancel()
    assert [record.name for record in caplog.records] == ["scavenge"]
    assert "our mistake" in caplog.text
    assert "Traceback" in caplog.text


async def test_the_end_of_the_gateway_ends_every_connection_and_call():
    door, _ = waiting()
    with closing(open_listener(TOKEN)) as listener:
        port = listener.socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            await nursery.start(run_gateway, listener, door)
            streams = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(3)]
            await streams[0].send_all(post())
            await streams[1].send_all(post(STREAM))
            await until(lambda: door.under_way == 2)
            nursery.cancel_scope.cancel()
        assert door.cancelled == 2
        for stream in streams:
            assert await stream.receive_some() == b""
            await stream.aclose()
    with closing(open_listener(TOKEN, port=port)):
        pass  # the port is free again


@pytest.mark.parametrize("number", [errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN])
async def test_a_client_that_is_lost_before_it_is_accepted_costs_nobody_else(number, monkeypatch):
    accept, numbers = trio.SocketListener.accept, [number]

    async def accept_next(listener: trio.SocketListener) -> trio.SocketStream:
        if numbers:
            await trio.lowlevel.checkpoint()
            raise OSError(numbers.pop(), "the first one is lost")
        return await accept(listener)

    monkeypatch.setattr(trio.SocketListener, "accept", accept_next)
    async with open_gateway() as gateway, gateway.client() as client:
        assert (await client.ask(post())).status == 200
    assert numbers == []


async def test_a_thousand_connections_at_once_are_served():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard != resource.RLIM_INFINITY else 4096, hard))
    door, release = waiting()
    statuses: list[int] = []

    async def ask(gateway) -> None:
        async with gateway.client() as client:
            statuses.append((await client.ask(post())).status)

    try:
        async with open_gateway(door) as gateway, trio.open_nursery() as nursery:
            for _ in range(1000):
                nursery.start_soon(ask, gateway)
            await until(lambda: door.under_way == 1000)
            release.set()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert statuses == [200] * 1000


async def test_without_descriptors_a_client_waits_until_there_is_one_and_those_under_way_are_served():
    door, release = waiting()
    statuses: list[int] = []

    async def ask(client) -> None:
        statuses.append((await client.ask(post())).status)

    async with open_gateway(door) as gateway, gateway.client() as first, trio.open_nursery() as nursery:
        nursery.start_soon(ask, first)
        await until(lambda: door.under_way == 1)
        with trio.socket.socket() as outside:
            with no_descriptor_left():
                await outside.connect(gateway.listener.socket.getsockname())
                await outside.send(post())
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert (len(door.calls), statuses) == (1, [])
            await until(lambda: door.under_way == 2)
            release.set()
            assert (await outside.recv(100)).startswith(b"HTTP/1.1 200 ")
    assert statuses == [200]


async def test_without_descriptors_idle_connections_make_room_for_new_ones():
    async with open_gateway() as gateway, gateway.client() as idle:
        assert (await idle.ask(post())).status == 200
        with trio.socket.socket() as outside, no_descriptor_left():
            await outside.connect(gateway.listener.socket.getsockname())
            await outside.send(post())
            assert (await outside.recv(100)).startswith(b"HTTP/1.1 200 ")
            assert await idle.at_end()
