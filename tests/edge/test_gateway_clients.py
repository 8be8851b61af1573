"""The gateway and its clients over time: streams, those that leave, are slow or many, and the end of all."""

from __future__ import annotations

import resource
import socket
from contextlib import closing

import pytest
import trio
from gateway_kit import (
    ATTEMPT,
    DOCUMENT,
    TOKEN,
    Door,
    answering,
    chunked_head,
    open_gateway,
    post,
    raising,
    until,
    waiting,
)

from scavenge.core.chat import ReplyReader
from scavenge.edge.gateway import open_listener, run_gateway
from scavenge.errors import UsageError
from scavenge.types import Lost, Ok, Rejected, RequestFailed

GET = b"GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n"
STREAM = {"stream": True}


def failing(outcome) -> RequestFailed:
    return RequestFailed(outcome, (ATTEMPT,))


# --- streams


async def test_a_streamed_reply_says_what_the_whole_one_says():
    async with open_gateway() as gateway, gateway.client() as client:
        reply = await client.ask(post({"stream": True, "stream_options": {"include_usage": True}}))
        assert (await client.ask(post())).status == 200  # on the same connection
    assert reply.headers["content-type"] == "text/event-stream"
    reader = ReplyReader()
    reader.start(reply.status, reply.headers)
    reader.feed(reply.body)
    outcome = reader.finish()
    assert isinstance(outcome, Ok)
    told = dict(outcome.reply.raw)
    assert [attempt["endpoint"] for attempt in told.pop("scavenge")["attempts"]] == [ATTEMPT.endpoint]
    assert told == DOCUMENT


@pytest.mark.parametrize(
    ("options", "usages"), [(None, 0), ({}, 0), ({"include_usage": False}, 0), ({"include_usage": True}, 1)]
)
async def test_a_stream_tells_the_usage_when_it_is_asked_to(options, usages):
    async with open_gateway() as gateway, gateway.client() as client:
        reply = await client.ask(post({"stream": True, "stream_options": options}))
    assert len([event for event in reply.events if "usage" in event]) == usages
    assert reply.events[-1] == "[DONE]"


async def test_while_a_stream_waits_comments_show_that_it_lives():
    door, release = waiting()
    async with open_gateway(door, comment_s=0.01) as gateway, gateway.client() as client:
        await client.send(post(STREAM))
        begun = await client.receive_until(b": waiting\n\n\r\n" * 1)
        assert begun.startswith(b"HTTP/1.1 200 ")
        assert b"text/event-stream" in begun
        assert b"data" not in begun
        await client.receive_until(b": waiting")
        release.set()
        assert b"data: [DONE]" in await client.receive_until(b"0\r\n\r\n")
        assert (await client.ask(post())).status == 200


async def test_a_stream_that_has_not_begun_fails_with_a_status():
    async with (
        open_gateway(Door(raising(failing(Rejected("HTTP 400: no", 400))))) as gateway,
        gateway.client() as client,
    ):
        reply = await client.ask(post(STREAM))
        assert (reply.status, reply.headers["x-should-retry"]) == (400, "false")
        assert (await client.ask(post(STREAM))).status == 400


async def test_a_stream_that_has_begun_fails_with_an_event_and_breaks_off():
    release = trio.Event()

    async def answer(session_id, messages, options):
        await release.wait()
        raise failing(Lost("connection reset"))

    async with open_gateway(Door(answer), comment_s=0.01) as gateway, gateway.client() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_after, lambda: gateway.door.calls, release.set)
            reply = await client.ask(post(STREAM))
        assert (reply.status, reply.whole) == (200, False)
        assert [list(event) for event in reply.events] == [["error", "scavenge"]]
        assert "connection reset" in reply.events[0]["error"]["message"]
        assert await client.at_end()


async def _after(condition, then) -> None:
    await until(condition)
    await trio.sleep(0.05)  # a few comments
    then()


# --- clients that leave


@pytest.mark.parametrize("body", [{}, STREAM])
@pytest.mark.parametrize("how", ["close", "reset", "half"])
async def test_a_client_that_hangs_up_while_it_waits_has_its_call_cancelled(body, how):
    door, _ = waiting()
    async with open_gateway(door, comment_s=0.005) as gateway, gateway.client() as client:
        await client.send(post(body))
        await until(lambda: door.under_way)
        if how == "half":
            await client.stream.send_eof()
        else:
            if how == "reset":
                client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.stream.socket.close()
        await until(lambda: door.cancelled)
        assert door.under_way == 0


async def test_a_client_that_sent_a_lot_ahead_is_found_gone_by_the_next_comment():
    door, _ = waiting()
    async with open_gateway(door, comment_s=0.02, ahead_bytes=1) as gateway, gateway.client() as client:
        await client.send(post(STREAM) * 2)
        await until(lambda: door.under_way)
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.stream.socket.close()
        await until(lambda: door.cancelled)
        assert len(door.calls) == 1


LONG = {**DOCUMENT, "choices": [{"index": 0, "message": {"content": "x" * 30_000_000}, "finish_reason": "stop"}]}


@pytest.mark.parametrize("body", [{}, STREAM])
async def test_a_client_that_hangs_up_while_it_reads_is_let_go(body):
    async with open_gateway(Door(answering(LONG))) as gateway:
        async with gateway.client() as client:
            await client.send(post(body))
            await client.receive_until(b"xxx")
        async with gateway.client() as client:
            assert (await client.ask(GET)).status == 404


async def test_a_client_that_reads_nothing_is_given_up():
    async with open_gateway(Door(answering(LONG)), write_s=0.05) as gateway:
        alone = trio.lowlevel.current_statistics().tasks_living
        async with gateway.client() as client:
            await client.send(post())
            await until(lambda: gateway.door.calls)
            await until(lambda: trio.lowlevel.current_statistics().tasks_living == alone)
            assert not (await client.reply()).whole


@pytest.mark.parametrize("part", [b"POST", post()[:60], post()[:-1], chunked_head() + b"5\r\nab"])
async def test_a_request_that_does_not_come_to_its_end_is_given_up_with_408(part):
    async with open_gateway(request_s=0.05) as gateway, gateway.client() as client:
        reply = await client.ask(part)
        assert (reply.status, reply.headers["connection"]) == (408, "close")
        assert "did not come within 0.05 s" in reply.error["message"]
        assert await client.at_end()


async def test_a_request_that_drips_in_is_given_up_all_the_same():
    async with open_gateway(request_s=0.1) as gateway, gateway.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(_drip, client, b"GET /" + b"x" * 300 + b" HTTP/1.1\r\nHost: gateway\r\n\r\n")
        assert (await client.reply()).status == 408
        nursery.cancel_scope.cancel()


async def _drip(client, data: bytes) -> None:
    for byte in data:
        await client.send(bytes([byte]))
        await trio.sleep(0.01)


async def test_a_connection_that_is_idle_is_closed_without_a_word():
    async with open_gateway(idle_s=0.5) as gateway, gateway.client() as client:
        assert await client.at_end()
        async with gateway.client() as used:
            assert (await used.ask(post())).status == 200
            assert await used.at_end()


async def test_waiting_for_a_reply_is_not_idle():
    door, release = waiting()
    async with open_gateway(door, idle_s=0.02, request_s=0.02, write_s=0.02) as gateway, gateway.client() as client:
        await client.send(post())
        await until(lambda: door.under_way)
        await trio.sleep(0.1)
        release.set()
        assert (await client.reply()).status == 200


# --- bugs, the end, and many at once


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


async def test_without_descriptors_a_client_waits_until_there_is_one():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with open_gateway() as gateway, gateway.client() as first:
        assert (await first.ask(GET)).status == 404
        outside = trio.socket.socket()
        with outside, socket.socket() as highest:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno() + 1, hard))
            try:
                await outside.connect(gateway.listener.socket.getsockname())
                await outside.send(post())
                assert (await first.ask(GET)).status == 404  # whoever is connected is served
                assert gateway.door.calls == []
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert (await outside.recv(100)).startswith(b"HTTP/1.1 200 ")
