"""The gateway over real sockets: what it answers, what it keeps going, and whom it gives up."""

from __future__ import annotations

import json

import httpx
import pytest
import trio
from gateway_kit import (
    ATTEMPT,
    DOCUMENT,
    MESSAGES,
    PATH,
    TOKEN,
    Door,
    answering,
    chunk,
    chunked_head,
    completion,
    open_gateway,
    post,
    raising,
)

from scavenge.core.doorwords import read_reply
from scavenge.errors import PoisonRequest, UnknownSession
from scavenge.types import Busy, Failed, Lost, Misrouted, Rejected, RequestFailed, TimedOut

GET = b"GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n"
STREAM = {"stream": True}


def failing(outcome) -> RequestFailed:
    return RequestFailed(outcome, (ATTEMPT,))


# --- what is asked and answered


async def test_the_reply_is_the_servers_own_document_with_the_attempts_beside_it():
    document = {**DOCUMENT, "system_fingerprint": "fp", "timings": {"prompt_ms": 1.5}}
    async with open_gateway(Door(answering(document))) as gateway, gateway.client() as client:
        reply = await client.ask(post())
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    told = reply.json
    attempts = told.pop("scavenge")["attempts"]
    assert told == document
    assert [attempt["endpoint"] for attempt in attempts] == [ATTEMPT.endpoint]
    assert read_reply(200, reply.body) == completion(document)


async def test_everything_in_a_body_but_four_keys_is_an_option_and_goes_on_unchanged():
    options = {
        "temperature": 0.7,
        "n": 2,
        "seed": 2**70,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "response_format": {"type": "json_object"},
        "extra": [None, "\ud800", {"deep": [1e300]}],
    }
    async with open_gateway() as gateway, gateway.client() as client:
        body = {**options, "model": "gpt-9", "stream": None, "stream_options": {"include_usage": True}}
        assert (await client.ask(post(body))).status == 200
        assert gateway.door.calls == [("s1", MESSAGES, options)]


async def test_the_session_in_the_path_may_have_any_name():
    name = "a b/ü%"
    async with open_gateway() as gateway, httpx.AsyncClient(trust_env=False) as http:
        address = gateway.listener.address(name)
        assert address.api_key == TOKEN
        headers = {"Authorization": f"bearer  {address.api_key}"}
        reply = await http.post(f"{address.base_url}/chat/completions", json={"messages": MESSAGES}, headers=headers)
        assert reply.status_code == 200
        assert [call[0] for call in gateway.door.calls] == [name]


@pytest.mark.parametrize("outcome", [
    Rejected("HTTP 422: no", 422),
    Rejected("the prompt is too long", 400, context_length=True),
    Busy("queue is full", 429, 3.0),
    Lost("connection reset"),
    Failed("HTTP 500: cuda", 500),
    Misrouted("HTTP 404: no such model", 404),
    TimedOut("no reply within 3 s"),
])  # fmt: skip
async def test_an_error_has_openais_shape_and_tells_a_worker_the_outcome(outcome):
    async with open_gateway(Door(raising(failing(outcome)))) as gateway, gateway.client() as client:
        reply = await client.ask(post())
        assert (await client.ask(post())).status == reply.status  # the connection goes on
    assert reply.status >= 400
    assert reply.headers["x-should-retry"] == "false"
    assert outcome.message in reply.error["message"]
    with pytest.raises(RequestFailed) as raised:
        read_reply(reply.status, reply.body)
    assert (raised.value.outcome, raised.value.attempts) == (outcome, (ATTEMPT,))


@pytest.mark.parametrize(("error", "status"), [(UnknownSession("gone"), 410), (PoisonRequest("lost 20 times"), 502)])
async def test_other_errors_of_a_session_have_a_status_too(error, status):
    async with open_gateway(Door(raising(error))) as gateway, gateway.client() as client:
        reply = await client.ask(post())
    assert (reply.status, reply.error["message"]) == (status, str(error))
    with pytest.raises(type(error)):
        read_reply(reply.status, reply.body)


# --- what is refused


@pytest.mark.parametrize(("request_bytes", "status", "said"), [
    (GET, 404, "there is no /v1/models here"),
    (post(path="/session/s1/v1/completions"), 404, "POST /session/ID/v1/chat/completions"),
    (post(path="/session//v1/chat/completions"), 404, "there is no"),
    (post(path="/session/a/b/v1/chat/completions"), 404, "there is no"),
    (post().replace(b"POST", b"PUT", 1), 405, "PUT is not possible here"),
    (b"CONNECT gateway:443 HTTP/1.1\r\nHost: gateway\r\n\r\n", 404, "there is no gateway:443 here"),
    (post(token=None), 401, "there is no API key"),
    (post(token="wrong"), 401, "there is a wrong API key"),
    (post(token=""), 401, "there is a wrong API key"),
    (post(token=TOKEN + "x"), 401, "there is a wrong API key"),
    (post(token=None, Authorization=f"Basic {TOKEN}"), 401, "there is a wrong API key"),
    (post(b""), 400, "the body is no JSON"),
    (post(b"\xff{}"), 400, "the body is no JSON"),
    (post(b'{"messages": [], "seed": NaN}'), 400, "NaN is not JSON"),
    (post(b"[" * 100_000), 400, "nested too deep"),
    (post(b"[]"), 400, "the body is no JSON object"),
    (post(b"{}"), 400, "messages must be a list of objects"),
    (post({"messages": "hello"}), 400, "messages must be a list of objects"),
    (post({"messages": {"role": "user"}}), 400, "messages must be a list of objects"),
    (post({"messages": [{}, "hello"]}), 400, "messages must be a list of objects"),
    (post({"stream": "yes"}), 400, "stream must be true or false"),
    (post({"stream_options": []}), 400, "stream_options must be an object"),
    (post({"stream_options": {"include_usage": 1}}), 400, "include_usage must be true or false"),
])  # fmt: skip
async def test_what_is_refused_is_refused_in_words_and_the_connection_goes_on(request_bytes, status, said):
    async with open_gateway() as gateway, gateway.client() as client:
        for _ in range(2):
            reply = await client.ask(request_bytes)
            assert reply.status == status
            assert said in reply.error["message"]
            assert (reply.error["type"], reply.headers["x-should-retry"]) == ("invalid_request_error", "false")
        assert gateway.door.calls == []
        assert (await client.ask(post())).status == 200


async def test_a_wrong_method_is_told_the_right_one_and_head_gets_no_body():
    async with open_gateway() as gateway, gateway.client() as client:
        await client.send(f"HEAD {PATH} HTTP/1.1\r\nHost: gateway\r\n\r\n".encode())
        reply = await client.reply("HEAD")
        assert (reply.status, reply.headers["allow"], reply.body) == (405, "POST", b"")
        assert (await client.ask(post())).status == 200


@pytest.mark.parametrize("fields", [{}, {"Expect": "100-continue"}])
async def test_a_body_that_is_longer_than_allowed_is_refused_by_its_length_before_it_is_sent(fields):
    async with open_gateway(max_body_bytes=1000) as gateway, gateway.client() as client:
        reply = await client.ask(post(b"x" * 1001, **fields).partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        assert (reply.status, reply.headers["connection"]) == (413, "close")
        assert "longer than 1000 bytes" in reply.error["message"]


async def test_a_client_that_sends_a_body_that_is_too_long_to_its_end_reads_the_refusal():
    async with open_gateway(max_body_bytes=1000) as gateway, gateway.client() as client:
        await client.send(post(b"x" * 10_000_000))
        assert (await client.reply()).status == 413
        assert await client.at_end()


async def test_a_chunked_body_is_refused_when_it_gets_too_long():
    async with open_gateway(max_body_bytes=1000) as gateway, gateway.client() as client:
        await client.send(chunked_head())
        for _ in range(101):
            await client.send(chunk(b"x" * 10))
        assert (await client.reply()).status == 413
        assert await client.at_end()


async def test_a_body_as_long_as_allowed_is_taken():
    body = json.dumps({"messages": MESSAGES}).encode()
    async with open_gateway(max_body_bytes=len(body)) as gateway, gateway.client() as client:
        assert (await client.ask(post(body))).status == 200


@pytest.mark.parametrize("padding", [b"a: b\r\n" * 20_000, b"a: " + b"b" * 70_000])
async def test_a_head_that_is_too_long_is_refused_whole_or_not(padding):
    async with open_gateway() as gateway, gateway.client() as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: gateway\r\n" + padding)
        assert (await client.reply()).status == 431
        assert await client.at_end()


async def test_a_body_that_is_framed_in_two_ways_is_refused():
    async with open_gateway() as gateway, gateway.client() as client:
        reply = await client.ask(post(Transfer_Encoding="chunked"))
        assert (reply.status, reply.headers["connection"]) == (400, "close")
        assert "a length and chunks" in reply.error["message"]
        assert await client.at_end()


# --- HTTP


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
        asked = ("s1", MESSAGES, {"top_p": 0.5, "space": " " * 1100})
        assert gateway.door.calls == [asked, asked]


@pytest.mark.parametrize("one", [post(BODY), CHUNKED])
async def test_requests_sent_ahead_are_answered_in_their_order(one):
    numbers = iter(range(1000))

    async def answer(session_id, messages, options):
        number = next(numbers)
        await trio.sleep(0.001 * (number % 3))
        return completion({**DOCUMENT, "id": str(number)})

    async with (
        open_gateway(Door(answer), ahead_bytes=1000) as gateway,
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


async def test_a_client_that_asks_first_is_refused_without_sending_its_body():
    async with open_gateway() as gateway, gateway.client() as client:
        await client.send(post(BODY, token=None, Expect="100-continue").partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        assert (await client.reply()).status == 401
        assert await client.at_end()


@pytest.mark.parametrize("data", [
    post(BODY).replace(b"HTTP/1.1", b"HTTP/1.0"),
    post(BODY, Connection="close"),
])  # fmt: skip
async def test_a_client_that_wants_one_answer_only_gets_it_and_the_end(data):
    async with open_gateway() as gateway, gateway.client() as client:
        assert (await client.ask(data)).status == 200
        assert await client.at_end()


async def test_a_client_of_http_1_0_can_have_a_stream():
    async with open_gateway() as gateway, gateway.client() as client:
        reply = await client.ask(post(STREAM).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert reply.events[-1] == "[DONE]"
        assert await client.at_end()
