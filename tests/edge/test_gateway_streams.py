"""Streams through the gateway: events as they come, at the pace of the client, and no end that is none."""

from __future__ import annotations

import itertools
import socket

import pytest
import trio
from gateway_kit import ATTEMPT, DOCUMENT, STREAMED, Door, open_gateway, piece, raising, telling
from raw_client import chunk, post, until

from scavenge.calls import Relayed
from scavenge.edge.gateway.chunks import DONE, WAITING
from scavenge.errors import NoEndpointsError
from scavenge.types import Lost, Rejected, Reply, RequestFailed

STREAM = {"stream": True}
LOST = RequestFailed(Lost("connection reset"), (ATTEMPT,))
END = b"0\r\n\r\n"


# --- as it comes


async def test_events_come_one_by_one_and_as_they_came():
    events = [piece("a"), b": hm\n\nid: 7\r\ndata: {}\r\n\r\n", piece("b")]
    go_on = [trio.Event() for _ in events]

    async def does(call, sink):
        assert (call.streamed, sink.begun) == (True, False)
        for event, told in zip(events, go_on, strict=True):
            await sink.take(event)
            assert sink.begun
            await told.wait()
        return STREAMED

    async with open_gateway(Door(does)) as gateway, gateway.client() as client:
        await client.send(post(STREAM))
        head, _, first = (await client.receive_until(chunk(events[0]))).partition(b"\r\n\r\n")
        assert b"text/event-stream" in head
        assert first == chunk(events[0])
        go_on[0].set()
        assert await client.receive_until(b"\r\n\r\n\r\n") == chunk(events[1])
        go_on[1].set()
        assert await client.receive_until(b"\n\n\r\n") == chunk(events[2])
        go_on[2].set()
        assert await client.receive_until(END) == chunk(DONE) + END
        assert (await client.ask(post(STREAM))).status == 200  # on the same connection


async def test_a_client_of_http_1_0_gets_the_events_without_chunks():
    async with open_gateway(Door(telling(piece("a"), piece("b")))) as gateway, gateway.client() as client:
        reply = await client.ask(post(STREAM).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert reply.body == piece("a") + piece("b") + DONE
        assert await client.at_end()


async def test_a_stream_of_which_nothing_was_to_be_handed_on_is_told_all_the_same():
    async def does(call, sink):
        await trio.lowlevel.checkpoint()
        return Relayed(Reply("", "length"))

    async with open_gateway(Door(does)) as gateway, gateway.client() as client:
        reply = await client.ask(post(STREAM))
    assert [choice["finish_reason"] for event in reply.events[:-1] for choice in event["choices"]] == [None, "length"]
    assert reply.events[-1] == "[DONE]"


@pytest.mark.parametrize("path", ["/v1/completions", "/session/s1/v1/completions"])
async def test_a_whole_reply_of_the_completions_api_is_told_in_its_own_chunks(path):
    document = {**DOCUMENT, "object": "text_completion", "choices": [{"text": "hi", "finish_reason": "stop"}]}

    async def does(call, sink):
        await trio.lowlevel.checkpoint()
        return Relayed(Reply("hi", "stop", raw=document))

    async with open_gateway(Door(does)) as gateway, gateway.client() as client:
        reply = await client.ask(post({"prompt": "hello?", **STREAM}, path=path))
    assert [choice["text"] for event in reply.events[:-1] for choice in event["choices"]] == ["hi", ""]


# --- the pace of the client


BIG = b"data: " + b"x" * 65_530 + b"\n\n"


@pytest.mark.parametrize("comment_s", [15.0, 0.005])
async def test_a_client_that_reads_nothing_stops_the_taking_and_a_slow_one_gets_everything(comment_s):
    taken = 0
    enough = False

    async def does(call, sink):
        nonlocal taken
        while not enough:
            await sink.take(BIG)
            taken += 1
        return STREAMED

    async with open_gateway(Door(does), comment_s=comment_s) as gateway, gateway.client() as client:
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        await client.send(post(STREAM))
        await until(lambda: taken)
        stopped_at = -1
        while stopped_at != taken:  # as long as the sockets take something; beyond that one event waits
            stopped_at = taken
            await trio.sleep(0.05)
        assert 0 < stopped_at * len(BIG) < 20_000_000
        while taken == stopped_at:
            await client.receive_some(50_000)
        enough = True
        reply = await client.reply()
        assert reply.body.replace(WAITING, b"") == BIG * taken + DONE
        assert reply.whole


async def test_a_client_that_takes_nothing_of_a_stream_is_given_up_and_its_call_cancelled():
    async def does(call, sink):
        for _ in itertools.count():
            await sink.take(BIG)

    async with open_gateway(Door(does), write_s=0.05) as gateway, gateway.client() as client:
        await client.send(post(STREAM))
        await until(lambda: gateway.door.cancelled)
        assert not (await client.reply()).whole


@pytest.mark.parametrize("how", ["close", "reset", "half"])
async def test_a_client_that_hangs_up_in_the_middle_has_its_call_cancelled(how):
    async def does(call, sink):
        await sink.take(piece("a"))
        await trio.sleep_forever()

    async with open_gateway(Door(does)) as gateway, gateway.client() as client:
        await client.send(post(STREAM))
        await client.receive_until(b"\n\n\r\n")
        if how == "half":
            await client.stream.send_eof()
        else:
            if how == "reset":
                client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.stream.socket.close()
        await until(lambda: gateway.door.cancelled)


async def test_whoever_takes_for_a_client_that_is_gone_is_cancelled():
    async def does(call, sink):
        with trio.CancelScope(shield=True):  # deaf to the hang-up itself
            await hung_up.wait()
        for _ in range(3):
            await sink.take(BIG)
        pytest.fail("it went on for nobody")

    hung_up = trio.Event()
    async with open_gateway(Door(does)) as gateway:
        async with gateway.client() as client:
            await client.send(post(STREAM))
            await until(lambda: gateway.door.under_way)
        hung_up.set()
        await until(lambda: gateway.door.cancelled)


# --- how it ends


@pytest.mark.parametrize(
    ("error", "status"), [(LOST, 502), (RequestFailed(Rejected("no", 422), ()), 422), (NoEndpointsError("none"), 503)]
)
async def test_an_error_before_the_first_event_has_a_status_of_its_own(error, status):
    async with open_gateway(Door(raising(error))) as gateway, gateway.client() as client:
        for _ in range(2):
            reply = await client.ask(post(STREAM))
            assert reply.headers["content-type"] == "application/json"
            assert (reply.status, reply.error["message"]) == (status, str(error))


@pytest.mark.parametrize("old", [False, True])
async def test_an_error_after_the_first_event_is_an_event_and_the_stream_breaks_off(old):
    async with open_gateway(Door(telling(piece("a"), then=LOST))) as gateway, gateway.client() as client:
        data = post(STREAM)
        reply = await client.ask(data.replace(b"HTTP/1.1", b"HTTP/1.0") if old else data)
        assert (reply.status, reply.whole) == (200, old)  # HTTP/1.0 has no end that would be missing
        assert [list(event) for event in reply.events] == [["id", "choices"], ["error"]]
        assert "connection reset" in reply.events[-1]["error"]["message"]
        assert b"[DONE]" not in reply.body
        assert await client.at_end()


async def test_a_bug_in_the_middle_of_a_stream_is_told_and_breaks_it_off():
    error = RuntimeError("our mistake")
    async with open_gateway(Door(telling(piece("a"), then=error))) as gateway, gateway.client() as client:
        reply = await client.ask(post(STREAM))
        assert (reply.whole, reply.events[-1]["error"]["code"]) == (False, "internal_error")
        assert gateway.bugs == [error]
        gateway.bugs.clear()


async def test_a_take_that_was_cancelled_in_the_middle_is_the_last_that_is_sent():
    async def does(call, sink):
        with trio.move_on_after(0.05):
            while True:
                await sink.take(BIG)
        raise LOST

    async with open_gateway(Door(does)) as gateway, gateway.client() as client:
        await client.send(post(STREAM))
        await until(lambda: gateway.door.calls and not gateway.door.under_way)
        reply = await client.reply()
        assert not reply.whole
        assert b"error" not in reply.body
        assert set(reply.body.split(b"\n\n")[:-1]) == {BIG[:-2]}
        assert await client.at_end()


# --- signs of life


async def test_comments_come_while_the_reply_pauses_and_do_not_begin_it():
    begin, go_on = trio.Event(), trio.Event()
    begun: list[bool] = []

    async def does(call, sink):
        await begin.wait()
        begun.append(sink.begun)
        await sink.take(piece("a"))
        await go_on.wait()
        await sink.take(piece("b"))
        return STREAMED

    async with open_gateway(Door(does), comment_s=0.01) as gateway, gateway.client() as client:
        await client.send(post(STREAM))
        await client.receive_until(chunk(WAITING))
        begin.set()
        told = await client.receive_until(chunk(piece("a")))
        assert begun == [False]
        assert told.endswith(chunk(piece("a")))
        assert b"HTTP/1.1" not in told
        await client.receive_until(chunk(WAITING))
        go_on.set()
        assert (await client.receive_until(END)).endswith(chunk(piece("b")) + chunk(DONE) + END)
