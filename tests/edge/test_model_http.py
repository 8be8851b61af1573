"""`HttpModelTransport` against servers that answer, die, lie and fall silent."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing
from http_cases import (
    ASK,
    ASK_WHOLE,
    BEGUN,
    END_OF_STREAM,
    ENGINE_DEAD,
    KEY,
    an_endpoint,
    answer_of,
    asked,
    client_of,
    cut,
    reset,
    silent,
)
from raw_server import (
    DONE,
    LAST_CHUNK,
    STREAM_HEAD,
    Conn,
    chunk,
    delta,
    document,
    event,
    raw_server,
    reply,
)

from scavenge.edge.model_http import HttpModelTransport
from scavenge.runtime.ports import ModelClient, ModelTransport
from scavenge.types import (
    ApiType,
    Busy,
    ChatRequest,
    Failed,
    Healthy,
    Lost,
    LostCause,
    Misrouted,
    Ok,
    Rejected,
)

ENGINE_ERROR = event({"error": {"message": "list index out of range", "type": "BadRequestError", "code": 400}})


def test_it_is_what_the_port_asks_for() -> None:
    transport: ModelTransport = HttpModelTransport()
    client: ModelClient = transport.open_client(an_endpoint("http://127.0.0.1:1/v1"))
    client.close()


async def test_a_streamed_reply_is_read_whole() -> None:
    answer = await answer_of(STREAM_HEAD + chunk(delta("hel")), END_OF_STREAM)
    assert isinstance(answer.outcome, Ok)
    assert (answer.outcome.reply.text, answer.outcome.reply.finish_reason) == ("hello", "stop")
    assert answer.first_byte_s is not None
    assert answer.first_byte_s >= 0


async def test_a_plain_reply_is_read_whole_and_what_is_asked_is_what_is_meant() -> None:
    got: list[tuple[bytes, bytes]] = []

    async def script(conn: Conn) -> None:
        got.append(await conn.request())
        await conn.send(reply(document()))

    async with raw_server(script) as server:
        answer = await asked(server.url, ChatRequest(ASK.messages, {"temperature": 0.5}, stream=False))
    assert isinstance(answer.outcome, Ok)
    assert answer.outcome.reply.usage.prompt_tokens == 3
    head, body = got[0]
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % server.port)
    assert b"authorization: Bearer " + KEY.encode() in head
    assert json.loads(body) == {
        "model": "some/model",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5,
    }


async def test_the_completions_protocol_has_its_own_path() -> None:
    got: list[bytes] = []

    async def script(conn: Conn) -> None:
        head, _ = await conn.request()
        got.append(head)
        await conn.send(reply(b'{"choices": [{"text": "x", "finish_reason": "stop"}]}'))

    async with raw_server(script) as server:
        answer = await asked(server.url, ASK_WHOLE, type=ApiType.COMPLETIONS)
    assert got[0].startswith(b"POST /v1/completions ")
    assert isinstance(answer.outcome, Ok)


async def test_a_url_without_a_path_is_the_root_of_the_server() -> None:
    got: list[bytes] = []

    async def script(conn: Conn) -> None:
        for body in (document(), b'{"data": [{"id": "some/model"}]}', b"{}"):
            head, _ = await conn.request()
            got.append(head.partition(b" HTTP/1.1")[0])
            await conn.send(reply(body))

    async with raw_server(script) as server:
        client = client_of(f"http://127.0.0.1:{server.port}")
        with trio.fail_after(10):
            answer = await client.ask(ASK_WHOLE)
            probed = await client.probe("/models")
            own = await client.http.get("tokenizer_info")
        client.close()
    assert isinstance(answer.outcome, Ok)
    assert isinstance(probed, Healthy)
    assert own.status_code == 200
    assert got == [b"POST /chat/completions", b"GET /models", b"GET /tokenizer_info"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((BEGUN + chunk(ENGINE_DEAD) + chunk(DONE) + LAST_CHUNK,), id="vLLM's engine is killed"),
        pytest.param((BEGUN + chunk(ENGINE_ERROR) + chunk(DONE) + LAST_CHUNK,), id="vLLM's own error, with code 400"),
        pytest.param((BEGUN + chunk(b"event: error\ndata: died\n\n") + LAST_CHUNK,), id="an error event in plain text"),
        pytest.param((BEGUN + chunk(delta("", "abort")) + chunk(DONE) + LAST_CHUNK,), id="vLLM stops with grace"),
        pytest.param((BEGUN, cut), id="vLLM is killed: end of file inside the chunked body"),
        pytest.param((BEGUN, reset), id="reset in the body"),
        pytest.param(
            (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + delta("one"), cut), id="llama-server"
        ),
        pytest.param((cut,), id="llama-server is killed while the request is queued: no status line"),
        pytest.param((reset,), id="reset before the reply"),
        pytest.param((b"HTTP/1.1 200 O", cut), id="end of file in the status line"),
        pytest.param((STREAM_HEAD, cut), id="end of file after the head"),
        pytest.param((BEGUN + LAST_CHUNK,), id="a clean end without finish reason and [DONE]"),
        pytest.param((BEGUN + chunk(DONE) + LAST_CHUNK,), id="[DONE] without a finish reason"),
        pytest.param((BEGUN + chunk(delta("", "stop")) + LAST_CHUNK,), id="a finish reason without [DONE]"),
        pytest.param((BEGUN + b"zz\r\n",), id="garbage in place of a chunk"),
        pytest.param((b"\x15\x03\x03\x00\x02\x02\x46", cut), id="no HTTP at all"),
        pytest.param((reply(document())[:-5], cut), id="a plain reply, cut"),
    ],
)
async def test_a_reply_that_is_not_whole_is_lost(steps: tuple[object, ...]) -> None:
    answer = await answer_of(*steps)
    assert isinstance(answer.outcome, Lost), answer
    assert answer.outcome.cause is LostCause.SERVER


@pytest.mark.parametrize("steps", [(BEGUN, silent), (silent,), (STREAM_HEAD, silent)])
async def test_a_stream_that_stays_open_and_silent_is_lost(steps: tuple[object, ...]) -> None:
    request = ChatRequest(ASK.messages, idle_timeout_s=0.1)
    answer = await answer_of(*steps, request=request)
    assert isinstance(answer.outcome, Lost)
    assert "not a byte for 0.1 s" in answer.outcome.message


async def slow(conn: Conn) -> None:
    await trio.sleep(0.2)


async def test_without_a_stream_the_first_byte_may_take_as_long_as_it_likes() -> None:
    request = ChatRequest(ASK.messages, stream=False, idle_timeout_s=0.05)
    answer = await answer_of(slow, reply(document()), request=request)
    assert isinstance(answer.outcome, Ok)
    answer = await answer_of(reply(document())[:-5], silent, request=request)
    assert isinstance(answer.outcome, Lost)


async def test_what_follows_done_changes_nothing() -> None:
    whole = BEGUN + chunk(delta("", "stop")) + chunk(DONE)
    for steps in [(whole, cut), (whole, reset), (whole + b"zz\r\n",), (whole + chunk(ENGINE_DEAD) + LAST_CHUNK,)]:
        assert isinstance((await answer_of(*steps)).outcome, Ok)


async def test_a_server_that_keeps_the_connection_open_after_done_costs_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scavenge.edge.http.reply.LINGER_S", 0.2)
    whole = BEGUN + chunk(delta("", "stop")) + chunk(DONE)
    request = ChatRequest(ASK.messages, idle_timeout_s=0.1)
    assert isinstance((await answer_of(whole, silent, request=request)).outcome, Ok)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        ("429 Too Many Requests", b"{}", Busy),
        ("503 Service Unavailable", b'{"error": {"message": "Loading model", "code": 503}}', Busy),
        ("500 Internal Server Error", b"oops", Failed),
        ("502 Bad Gateway", b"<html><title>502 Bad Gateway</title></html>", Failed),
        ("401 Unauthorized", b'{"error": "bad key"}', Misrouted),
        ("404 Not Found", b'{"detail": "Not Found"}', Misrouted),
        ("301 Moved Permanently", b"", Misrouted),
        ("400 Bad Request", b'{"message": "maximum context length is 10"}', Rejected),
        ("200 OK", b"<html>welcome to your tunnel</html>", Failed),
        ("200 OK", b"", Failed),
        ("204 No Content", b"", Failed),
        ("200 OK", b'{"error": {"message": "no"}}', Failed),
    ],
)
async def test_each_kind_of_reply_is_its_outcome(status: str, body: bytes, kind: type) -> None:
    raw = reply(body, status) if not status.startswith("204") else b"HTTP/1.1 204 No Content\r\n\r\n"
    assert isinstance((await answer_of(raw)).outcome, kind)


async def test_a_status_that_says_it_all_needs_no_whole_body() -> None:
    raw = reply(b'{"error": "too large"}', "413 Content Too Large")[:-3]
    assert isinstance((await answer_of(raw, cut)).outcome, Rejected)


async def test_a_server_that_echoes_the_key_leaks_nothing() -> None:
    answer = await answer_of(reply(f'{{"error": "wrong key {KEY}"}}'.encode(), "401 Unauthorized"))
    assert answer.outcome.message is not None
    assert "[secret]" in answer.outcome.message
    assert KEY not in repr(answer)
