"""The gateway as a service: its port, bugs, its end, and many clients at once."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import trio
import trio.testing
from gateway_kit import TOKEN, Door, open_gateway, post, raising, until, waiting

from scavenge.edge.gateway.server import open_listener, run_gateway
from scavenge.errors import UsageError

GET = b"GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n"
STREAM = {"stream": True}


@pytest.mark.parametrize("body", [{}, STREAM])
async def test_a_bug_costs_one_connection_and_is_told(body):
    error = RuntimeError("our mistake")
    async with open_gateway(Door(raising(error))) as gateway, gateway.client() as client:
        reply = await client.ask(post(body))
        assert (reply.status, reply.headers["connection"]) == (500, "close")
        assert await client.at_end()
        assert gateway.bugs == [error]
        gateway.bugs.clear()
        async with gateway.client() as other:
            assert (await other.ask(GET)).status == 404


async def test_a_bug_in_what_a_door_returns_is_told_too():
    async def answer(session_id, messages, options):
        await trio.lowlevel.checkpoint()

    async with open_gateway(Door(answer)) as gateway, gateway.client() as client:
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


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", None), ("192.0.2.1", 0)])
def test_a_port_that_cannot_be_had_is_an_error_that_names_it(host, port):
    with (
        closing(open_listener(TOKEN)) as taken,
        pytest.raises(UsageError, match="the gateway cannot listen on") as raised,
    ):
        open_listener(TOKEN, host, taken.socket.getsockname()[1] if port is None else port)
    assert host in str(raised.value)


def test_a_port_that_cannot_be_had_for_want_of_descriptors_names_the_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno() + 1, hard))
        try:
            with pytest.raises(UsageError, match=r"Too many open files\): raise the limit \(ulimit -n\)"):
                open_listener(TOKEN)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_the_address_of_an_ipv6_host_is_in_brackets():
    with closing(open_listener(TOKEN, "::1")) as listener:
        assert listener.address("s1").base_url.startswith("http://[::1]:")


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


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno() + 1, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
