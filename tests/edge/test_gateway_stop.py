"""The gateway's end: what is under way comes to its end, and nothing new begins."""

from __future__ import annotations

import os
from contextlib import closing

import pytest
import trio
import trio.testing
from gateway_kit import STREAMED, Door, open_gateway, piece, waiting
from memory_line import MemoryLine
from raw_client import TOKEN, get, post, until

from scavenge.edge.gateway.connection import serve_connection
from scavenge.edge.gateway.entrance import Entrance
from scavenge.edge.gateway.limits import GatewayLimits
from scavenge.edge.gateway.listener import open_listener
from scavenge.edge.gateway.server import Gateway

STREAM = {"stream": True}


async def test_idle_connections_are_closed_and_no_more_are_taken():
    async with open_gateway() as gateway, gateway.client() as new, gateway.client() as used:
        address = gateway.listener.socket.getsockname()
        assert (await used.ask(post())).status == 200
        await until(lambda: gateway.server.connections == 2)
        assert not gateway.server.stopping
        gateway.server.stop()
        assert gateway.server.stopping
        assert await new.at_end()
        assert await used.at_end()
        with pytest.raises(OSError), trio.socket.socket() as late:
            await late.connect(address)
        await gateway.server.wait_done()
        gateway.server.stop()  # once more does nothing


@pytest.mark.parametrize("body", [{}, STREAM])
async def test_an_answer_under_way_is_the_last_on_its_connection(body):
    door, release = waiting()
    async with open_gateway(door) as gateway, gateway.client() as client, trio.open_nursery() as nursery:
        await client.send(post(body) + post(body))
        await until(lambda: door.under_way)
        gateway.server.stop()
        done = trio.Event()
        nursery.start_soon(_tell, gateway.server.wait_done, done)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (done.is_set(), gateway.server.answering) == (False, 1)
        release.set()
        reply = await client.reply()
        await done.wait()
        assert (reply.status, reply.whole) == (200, True)
        assert reply.headers["connection"] == "close"
        assert await client.at_end()
        assert len(door.calls) == 1
        assert gateway.server.answering == 0


async def _tell(wait, event: trio.Event) -> None:
    await wait()
    event.set()


async def test_a_stream_under_way_comes_to_its_end():
    go_on = trio.Event()

    async def does(call, sink):
        await sink.take(piece("a"))
        await go_on.wait()
        await sink.take(piece("b"))
        return STREAMED

    async with open_gateway(Door(does)) as gateway, gateway.client() as client:
        await client.send(post(STREAM))
        await until(lambda: gateway.door.under_way)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gateway.server.stop()
        go_on.set()
        reply = await client.reply()
        assert (reply.whole, reply.events[-1], len(reply.events)) == (True, "[DONE]", 3)
        assert await client.at_end()


@pytest.mark.parametrize("part", [1, 60, -1])
@pytest.mark.parametrize("data", [post(), get("/v1/models")])
async def test_a_request_that_is_still_coming_in_is_told_that_it_is_too_late(data, part):
    async with open_gateway() as gateway, gateway.client() as client:
        await client.send(data[:part])
        await until(lambda: gateway.server.connections)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gateway.server.stop()
        reply = await client.ask(data[part:])
        if part == -1 and data.startswith(b"POST"):
            assert reply.status == 200  # it was let in by its head
        else:
            assert (reply.status, reply.error["code"]) == (503, "stopping")
            assert (reply.headers["retry-after"], reply.headers["x-should-retry"]) == ("10", "true")
        assert reply.headers["connection"] == "close"
        assert await client.at_end()


async def test_a_request_that_has_come_but_was_not_read_yet_is_not_lost():
    async with open_gateway() as gateway, gateway.client() as client:
        await until(lambda: gateway.server.connections)
        await trio.testing.wait_all_tasks_blocked(0.01)
        os.write(client.stream.socket.fileno(), post())  # while no task can read it
        gateway.server.stop()
        assert (await client.reply()).status == 503


async def test_a_request_that_comes_in_is_waited_for():
    async with open_gateway() as gateway, gateway.client() as client, trio.open_nursery() as nursery:
        await client.send(post()[:-1])
        await until(lambda: gateway.server.connections)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gateway.server.stop()
        done = [trio.Event(), trio.Event()]
        for event in done:
            nursery.start_soon(_tell, gateway.server.wait_done, event)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not any(event.is_set() for event in done)
        assert (await client.ask(post()[-1:])).status == 200
        for event in done:
            await event.wait()


async def test_a_request_that_will_not_come_is_not_waited_for_once_its_client_has_left():
    async with open_gateway() as gateway, gateway.client() as client:
        await client.send(post()[:-1])
        await until(lambda: gateway.server.connections)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gateway.server.stop()
        client.stream.socket.close()
        await gateway.server.wait_done()


async def test_whoever_connects_in_the_moment_of_the_stop_is_not_waited_for(autojump_clock):
    line, late = MemoryLine(), MemoryLine(post())
    entrance = Entrance(Door(), TOKEN, pytest.fail, GatewayLimits())
    entrance.clients.stop()
    started = trio.current_time()
    await serve_connection(line, entrance)
    assert (line.closed, line.taken, trio.current_time()) == (True, b"", started)
    await serve_connection(late, entrance)
    assert late.taken.startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize("data", [post(token=None), b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n"])
async def test_a_refusal_under_way_is_told_to_its_end(data, autojump_clock):
    line = MemoryLine(data, size=20, takes_s=1)
    entrance = Entrance(Door(), TOKEN, pytest.fail, GatewayLimits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, line, entrance)
        await trio.sleep(2.5)
        assert (len(line.taken), entrance.clients.answering) == (40, 1)
        entrance.clients.stop()
        await entrance.clients.wait_answered()
        assert line.taken.endswith(b"}}")


async def test_a_gateway_ends_by_itself_once_it_is_stopped_and_all_have_left():
    with closing(open_listener(TOKEN)) as listener:
        gateway = Gateway(listener, Door())
        async with trio.open_nursery() as nursery:
            await nursery.start(gateway.run_gateway)
            stream = await trio.open_tcp_stream(*listener.socket.getsockname())
            await until(lambda: gateway.connections == 1)
            gateway.stop()
            assert await stream.receive_some() == b""
            await stream.aclose()
        assert gateway.connections == 0


async def test_a_gateway_that_was_stopped_before_it_ran_serves_nobody():
    with closing(open_listener(TOKEN)) as listener:
        gateway = Gateway(listener, Door())
        gateway.stop()
        await gateway.run_gateway()
        await gateway.wait_done()
