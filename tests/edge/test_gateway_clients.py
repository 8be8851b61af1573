"""The gateway and its clients over time: streams, and clients that leave or are slow."""

from __future__ import annotations

import socket

import pytest
import trio
from gateway_kit import ATTEMPT, DOCUMENT, Door, answering, open_gateway, raising, waiting
from raw_client import chunked_head, get, post, until

from scavenge.core.chat import ReplyReader
from scavenge.types import Lost, Ok, Rejected, RequestFailed

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
    assert outcome.reply.raw == DOCUMENT


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
        begun = await client.receive_until(b": waiting\n\n\r\n")
        assert begun.startswith(b"HTTP/1.1 200 ")
        assert b"text/event-stream" in begun
        assert b"data" not in begun
        await client.receive_until(b": waiting")
        release.set()
        told = await client.receive_until(b"0\r\n\r\n")
        assert told.index(b'"hello!"') < told.index(b"data: [DONE]")
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

    async def does(call, sink):
        await release.wait()
        raise failing(Lost("connection reset"))

    async with open_gateway(Door(does), comment_s=0.01) as gateway, gateway.client() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_after, lambda: gateway.door.calls, release.set)
            reply = await client.ask(post(STREAM))
        assert (reply.status, reply.whole) == (200, False)
        assert [list(event) for event in reply.events] == [["error"]]
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
            assert (await client.ask(get("/none"))).status == 404


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
