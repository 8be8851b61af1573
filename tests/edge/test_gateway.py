"""The gateway over real sockets: what it answers, what it keeps going, and whom it gives up."""

from __future__ import annotations

import json

import httpx
import pytest
from gateway_kit import ATTEMPT, DOCUMENT, Door, answering, open_gateway, raising
from raw_client import MESSAGES, PATH, TOKEN, chunk, chunked_head, get, post

from scavenge.core.doorwords import read_reply
from scavenge.errors import NoEndpointsError, PoisonRequest, Stopping, UnknownModel, UnknownSession
from scavenge.types import ApiType, Busy, Failed, Lost, Misrouted, Rejected, RequestFailed, TimedOut

STREAM = {"stream": True}
DETAIL = {"X-Scavenge-Detail": "attempts"}


def failing(outcome) -> RequestFailed:
    return RequestFailed(outcome, (ATTEMPT,))


# --- what is asked and answered


async def test_a_reply_goes_to_the_client_as_it_came():
    came = (
        b'{ "choices" : [{"index":0,"message":{"content":"a\\u0041\xc3\xa9"},"finish_reason":"stop"}], "seed": 1e400 }'
    )
    async with open_gateway(Door(answering(body=came))) as gateway, gateway.client() as client:
        reply = await client.ask(post())
    assert (reply.status, reply.headers["content-type"], reply.body) == (200, "application/json", came)


async def test_a_reply_that_was_put_together_from_a_stream_is_told_as_json():
    document = {**DOCUMENT, "system_fingerprint": "fp", "big": 2**63 - 1}
    async with open_gateway(Door(answering(document))) as gateway, gateway.client() as client:
        reply = await client.ask(post())
    assert (reply.headers["content-type"], reply.json) == ("application/json", document)


async def test_a_worker_that_asks_for_the_detail_finds_the_attempts_beside_the_reply():
    document = {**DOCUMENT, "system_fingerprint": "fp", "timings": {"prompt_ms": 1.5}}
    async with open_gateway(Door(answering(document, body=b"as it came"))) as gateway, gateway.client() as client:
        reply = await client.ask(post(**DETAIL))
    told = reply.json
    attempts = told.pop("scavenge")["attempts"]
    assert told == document
    assert [attempt["endpoint"] for attempt in attempts] == [ATTEMPT.endpoint]
    read = read_reply(200, reply.body)
    assert (read.text, read.attempts, read.raw) == ("hello!", (ATTEMPT,), document)


async def test_a_body_goes_on_byte_by_byte():
    body = b'{"temperature": 0.70, "seed": 1180591620717411303424, "x": [null, "\\ud800", 1e300],'
    body += b' "messages" :[{"role": "user", "content": "hello?"}], "model":"gpt-9", "stream": null}\n'
    async with open_gateway() as gateway, gateway.client() as client:
        assert (await client.ask(post(body))).status == 200
        (call,) = gateway.door.calls
    assert (call.api, call.body, call.model, call.streamed) == (ApiType.CHAT_COMPLETIONS, body, "gpt-9", False)
    assert (call.session_id, call.messages, call.document["x"]) == ("s1", MESSAGES, [None, "\ud800", 1e300])


@pytest.mark.parametrize("prompt", ["hello?", ["one", "two"], [1, 2, 3], None, {}])
async def test_a_completion_needs_a_prompt_of_whatever_shape(prompt):
    body = {"prompt": prompt, "stream": False}
    async with open_gateway() as gateway, gateway.client() as client:
        data = post(json.dumps(body).encode(), path="/v1/completions")
        assert (await client.ask(data)).status == 200
        (call,) = gateway.door.calls
    assert (call.api, call.model, call.session_id, call.document) == (ApiType.COMPLETIONS, "", None, body)


async def test_the_session_in_the_path_may_have_any_name():
    name = "a b/ü%"
    async with open_gateway() as gateway, httpx.AsyncClient(trust_env=False) as http:
        address = gateway.listener.address(name)
        assert address.api_key == TOKEN
        headers = {"Authorization": f"bearer  {address.api_key}"}
        reply = await http.post(f"{address.base_url}/chat/completions", json={"messages": MESSAGES}, headers=headers)
        assert reply.status_code == 200
        assert [call.session_id for call in gateway.door.calls] == [name]


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
        foreign = await client.ask(post())
        reply = await client.ask(post(**DETAIL))
        assert (await client.ask(post())).status == reply.status  # the connection goes on
    assert reply.status >= 400
    assert (foreign.status, list(foreign.json)) == (reply.status, ["error"])
    assert foreign.headers["x-should-retry"] == reply.headers["x-should-retry"] == "false"
    assert "retry-after" not in foreign.headers
    assert outcome.message in foreign.error["message"]
    with pytest.raises(RequestFailed) as raised:
        read_reply(reply.status, reply.body)
    assert (raised.value.outcome, raised.value.attempts) == (outcome, (ATTEMPT,))


@pytest.mark.parametrize(("error", "status", "code", "retry_after"), [
    (UnknownSession("gone"), 410, "unknown_session", None),
    (PoisonRequest("lost 20 times"), 502, "poison_request", None),
    (UnknownModel('no pool has "gpt-9"'), 404, "model_not_found", None),
    (NoEndpointsError("no endpoint for 600 s"), 503, "no_endpoints", "10"),
    (Stopping("the gateway stops"), 503, "stopping", "10"),
])  # fmt: skip
@pytest.mark.parametrize("body", [{}, STREAM])
async def test_other_errors_have_a_status_too_and_some_say_when_to_come_back(error, status, code, retry_after, body):
    async with open_gateway(Door(raising(error))) as gateway, gateway.client() as client:
        reply = await client.ask(post(body))
    assert (reply.status, reply.error["message"], reply.error["code"]) == (status, str(error), code)
    assert reply.headers.get("retry-after") == retry_after
    assert reply.headers["x-should-retry"] == ("false" if retry_after is None else "true")
    with pytest.raises(type(error)):
        read_reply(reply.status, reply.body)


# --- what is refused


@pytest.mark.parametrize(("request_bytes", "status", "said"), [
    (post(b""), 400, ""),
    (post(b"\xff{}"), 400, ""),
    (post(b'{"messages": [], "seed": NaN}'), 400, ""),
    (post(b"[" * 100_000), 400, ""),
    (post(b"[]"), 400, ""),
    (post(b"{}"), 400, "messages must be a list of objects"),
    (post({"messages": "hello"}), 400, "messages must be a list of objects"),
    (post({"messages": {"role": "user"}}), 400, "messages must be a list of objects"),
    (post({"messages": [{}, "hello"]}), 400, "messages must be a list of objects"),
    (post({}, path="/v1/completions"), 400, "there is no prompt"),
    (post({"model": 7}), 400, "model must be a text"),
    (post({"stream": "yes"}), 400, "stream must be true or false"),
    (post({"stream": 1}), 400, "stream must be true or false"),
    (post({"stream_options": []}), 400, "stream_options must be an object"),
    (post({"stream_options": {"include_usage": 1}}), 400, "include_usage must be true or false"),
    (post(Content_Encoding="gzip"), 415, '"gzip"'),
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


async def test_a_body_without_an_encoding_may_say_so():
    async with open_gateway() as gateway, gateway.client() as client:
        assert (await client.ask(post(Content_Encoding="Identity"))).status == 200


async def test_a_wrong_method_is_told_the_right_one_and_head_gets_no_body():
    async with open_gateway() as gateway, gateway.client() as client:
        await client.send(get(PATH, "HEAD"))
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
