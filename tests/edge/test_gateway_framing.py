"""HTTP as clients speak it to the gateway: framing, requests sent ahead, ``Expect``, old clients."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime

import pytest
import trio
import trio.testing
from gateway_kit import DOCUMENT, Door, open_gateway, relayed
from raw_client import MESSAGES, PATH, chunk, chunked_head, get, post, until

STREAM = {"stream": True}


@pytest.mark.parametrize("data", [post(), post(STREAM), post(token=None), get("/v1/models"), b"\0"])
async def test_every_answer_says_when_it_was_made(data):
    before = int(time.time())
    async with open_gateway() as gateway, gateway.client() as client:
        reply = await client.ask(data)
    assert reply.headers["date"].endswith(" GMT")
    assert before <= parsedate_to_datetime(reply.headers["date"]).timestamp() <= time.time()


BODY = json.dumps({"messages": MESSAGES, "top_p": 0.5, "space": " " * 1100}).encode()
CHUNKED = chunked_head() + chunk(BODY[:7]) + chunk(BODY[7:]) + b"0\r\nTrailer: x\r\n\r\n"


@pytest.mark.parametrize("data", [
    post(BODY),
    CHUNKED,
    b"\r\n\r\n" + post(BODY),
    post(BODY).replace(b"\r\n", b"\n"),
    post(BODY).replace(b"POST /", b"POST http://gateway:1/"),
    post(BODY, path=PATH + "?api-version=1"),
    post(BODY, Upgrade="h2c", Connection="Upgrade, HTTP2-Settings"),
], ids=["length", "chunks", "blank lines", "bare newlines", "absolute", "query", "upgrade"])  # fmt: skip
@pytest.mark.parametrize("piece", [1, 100, 100_000])
async def test_a_request_is_understood_however_it_is_framed_and_split(data, piece):
    async with open_gateway() as gateway, gateway.client() as client:
        for _ in range(2):
            for start in range(0, len(data), piece):
                await client.send(data[start : start + piece])
            reply = await client.reply()
            assert reply.status == 200, reply.body
        assert [call.body for call in gateway.door.calls] == [BODY, BODY]


@pytest.mark.parametrize("one", [post(BODY), CHUNKED])
async def test_requests_sent_ahead_are_answered_in_their_order(one):
    numbers = iter(range(1000))

    async def does(call, sink):
        number = next(numbers)
        await trio.sleep(0.001 * (number % 3))
        return relayed({**DOCUMENT, "id": str(number)})

    async with (
        open_gateway(Door(does), ahead_bytes=1000) as gateway,
        gateway.client() as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.send, one * 200)
        ids = [(await client.reply()).json["id"] for _ in range(200)]
    assert ids == [str(number) for number in range(200)]


async def test_a_client_that_asks_first_is_told_to_go_on():
    async with open_gateway() as gateway, gateway.client() as client:
        head, _, body = post(BODY, Expect="100-continue").partition(b"\r\n\r\n")
        for _ in range(2):
            await client.send(head + b"\r\n\r\n")
            assert (await client.receive_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            assert (await client.ask(body)).status == 200


async def test_a_client_that_asks_first_is_told_once_however_it_sends_its_chunks():
    async with open_gateway() as gateway, gateway.client() as client:
        await client.send(chunked_head(Expect="100-continue"))
        assert (await client.receive_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        for byte in chunk(BODY)[:10]:
            await client.send(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()
        await client.send(chunk(BODY)[10:] + b"0\r\n\r\n")
        assert (await client.receive_until(b"}]")).startswith(b"HTTP/1.1 200 ")


async def test_an_old_client_that_asks_first_is_told_nothing_that_it_does_not_know():
    async with open_gateway() as gateway, gateway.client() as client:
        head, _, body = post(BODY, Expect="100-continue").replace(b"HTTP/1.1", b"HTTP/1.0").partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        await until(lambda: gateway.server.connections)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await client.send(body)
        assert (await client.receive_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_asks_first_is_refused_without_sending_its_body():
    async with open_gateway() as gateway, gateway.client() as client:
        await client.send(post(BODY, token=None, Expect="100-continue").partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        assert (await client.reply()).status == 401
        assert await client.at_end()


@pytest.mark.parametrize("data", [
    post(BODY).replace(b"HTTP/1.1", b"HTTP/1.0"),
    post(BODY, Connection="close"),
    post(BODY, Connection="close\r\nConnection: Upgrade"),
    post(BODY, Connection="Upgrade\r\nConnection: x ,Close"),
])  # fmt: skip
async def test_a_client_that_wants_one_answer_only_gets_it_and_the_end(data):
    async with open_gateway() as gateway, gateway.client() as client:
        assert (await client.ask(data)).status == 200
        assert await client.at_end()


async def test_a_client_of_http_1_0_can_have_a_stream():
    async with open_gateway() as gateway, gateway.client() as client:
        reply = await client.ask(post(STREAM).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert "transfer-encoding" not in reply.headers
        assert reply.events[-1] == "[DONE]"
        assert await client.at_end()
