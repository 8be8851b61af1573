"""Calls of foreign clients over HTTP: what is asked, what comes to the sink while it comes, and what never does."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from http_cases import ENGINE_DEAD, client_of, cut, reset, silent
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
    script_of,
)
from relay_cases import CHAT, HELLO, PROMPT, TEXT, Sink, StubbornSink, a_call, asked_as, relay_of, relayed

from scavenge.core.flow import Stream
from scavenge.edge.model_http import HttpModelTransport
from scavenge.testing.sweep import cancel_at_every_step
from scavenge.types import Busy, Endpoint, EndpointId, Failed, Lost, LostCause, Misrouted, Ok, Rejected, Url

ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
ONE, TWO, LAST = delta("one"), delta("two"), delta(None, "stop")
SAID = ROLE + ONE + TWO + LAST
WHOLE = STREAM_HEAD + chunk(SAID) + chunk(DONE) + LAST_CHUNK
BEGUN = STREAM_HEAD + chunk(ROLE + ONE) + chunk(TWO)
TEXT_REPLY = reply(b'{"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}')


def until(sink: Sink, events: bytes) -> Callable[[Conn], Awaitable[None]]:
    """A step of a server that waits until these are all that has come to the client."""

    async def wait(conn: Conn) -> None:
        with trio.fail_after(5):
            await sink.wait_for(events)

    return wait


# --- what is asked


async def test_the_body_goes_on_as_it_came_but_for_the_model() -> None:
    sink = Sink()
    request = a_call({**HELLO, "vendor_option": {"model": 1.50}, "stream_options": {"include_usage": False}}, sink)
    line, body = await asked_as(request, WHOLE)
    assert line == b"POST /v1/chat/completions HTTP/1.1"
    assert body == request.body.raw.replace(b'"any"', b'"some/model"', 1)


async def test_a_stream_that_nobody_sees_is_asked_to_count_its_tokens() -> None:
    plain = {key: value for key, value in HELLO.items() if key != "stream"}
    for given in ({}, {"stream": False}, {"stream": None}, {"stream_options": {"include_usage": False}}):
        _, body = await asked_as(a_call({**plain, **given}), WHOLE)
        expected = {**plain, "model": "some/model", "stream": True, "stream_options": {"include_usage": True}}
        assert json.loads(body) == expected
    _, body = await asked_as(a_call({**plain, "stream_options": {"continuous_usage_stats": True}}), WHOLE)
    assert json.loads(body)["stream_options"] == {"continuous_usage_stats": True, "include_usage": True}


async def test_a_server_that_is_to_stream_nothing_is_told_so() -> None:
    _, body = await asked_as(a_call({**HELLO, "stream_options": {"include_usage": True}}, stream=False), WHOLE)
    assert json.loads(body) == {**HELLO, "model": "some/model", "stream": False, "stream_options": None}


async def test_what_a_body_lacks_is_set_and_what_it_has_stays() -> None:
    defaults = {"temperature": 0.5, "top_p": 0.9, "model": "no", "stream": False, "stream_options": {"a": 1}}
    _, body = await asked_as(a_call({**HELLO, "top_p": None}, Sink(), defaults=defaults), WHOLE)
    assert json.loads(body) == {**HELLO, "model": "some/model", "temperature": 0.5, "top_p": None}
    _, body = await asked_as(a_call(defaults=defaults), WHOLE)
    assert json.loads(body)["stream_options"] == {"a": 1, "include_usage": True}


async def test_a_default_that_is_no_json_is_nobodys_fault_but_the_requests() -> None:
    client = client_of("http://127.0.0.1:1/v1")
    answer = await client.ask(a_call(defaults={"stop": {1, 2}}))
    assert isinstance(answer.outcome, Rejected)


@pytest.mark.parametrize(("api", "path"), [(CHAT, b"/chat/completions"), (TEXT, b"/completions")])
@pytest.mark.parametrize("listed", [CHAT, TEXT])
async def test_the_path_is_that_of_the_call(api: object, path: bytes, listed: object) -> None:
    line, _ = await asked_as(a_call(PROMPT, api=api, stream=False), TEXT_REPLY, type=listed)  # type: ignore[arg-type]
    assert line == b"POST /v1" + path + b" HTTP/1.1"


# --- what comes to the sink


async def test_events_are_handed_on_as_they_come_and_as_they_came() -> None:
    sink = Sink()
    odd = b": a comment\r\nid: 7\r\n" + TWO.replace(b"\n", b"\r\n")
    end = LAST + USAGE
    steps = (
        *(STREAM_HEAD + chunk(ROLE), chunk(ONE[:9]), chunk(ONE[9:]), until(sink, ROLE + ONE)),
        *(chunk(odd), until(sink, ROLE + ONE + odd), chunk(end[:30]) + chunk(end[30:]) + chunk(DONE) + LAST_CHUNK),
    )
    answer = await relay_of(steps, a_call(sink=sink))
    assert isinstance(answer.outcome, Ok), answer
    assert sink.whole == ROLE + ONE + odd + end
    found = answer.outcome.reply
    assert (found.finish_reason, found.usage.completion_tokens, found.pieces, found.body) == ("stop", 2, 2, None)
    assert answer.first_byte_s is not None


async def test_completions_are_handed_on_too() -> None:
    said = b"".join(
        event({"choices": [{"index": 0, "text": text, "finish_reason": end}]})
        for text, end in (("a", None), ("", "stop"))
    )
    sink = Sink()
    steps = (STREAM_HEAD + chunk(said) + chunk(DONE) + LAST_CHUNK,)
    answer = await relay_of(steps, a_call(PROMPT, sink, api=TEXT), type=TEXT)
    assert isinstance(answer.outcome, Ok)
    assert sink.whole == said


async def test_a_reply_that_says_nothing_is_handed_on_when_it_is_whole() -> None:
    sink = Sink()
    answer = await relay_of((STREAM_HEAD + chunk(ROLE), chunk(LAST) + chunk(DONE) + LAST_CHUNK), a_call(sink=sink))
    assert isinstance(answer.outcome, Ok)
    assert sink.whole == ROLE + LAST


async def test_without_a_sink_the_reply_is_put_together() -> None:
    answer = await relay_of((STREAM_HEAD + chunk(SAID + USAGE) + chunk(DONE) + LAST_CHUNK,), a_call())
    assert isinstance(answer.outcome, Ok)
    found = answer.outcome.reply
    assert (found.text, found.body) == ("onetwo", None)
    assert found.raw["usage"] == {"prompt_tokens": 3, "completion_tokens": 2}


@pytest.mark.parametrize("sink", [None, Sink()])
async def test_a_server_that_ignores_the_stream_is_read_whole_and_its_reply_is_kept_as_it_came(sink: Sink) -> None:
    body = document().replace(b'{"choices"', b'{ "vendor": 1.50, "choices"')
    answer = await relay_of((reply(body),), a_call(sink=sink))
    assert isinstance(answer.outcome, Ok)
    assert answer.outcome.reply.body == body
    assert answer.outcome.reply.text == "hello"
    assert sink is None or not sink.begun


# --- what never comes to a sink


UNFRAMED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
DEATHS = {
    "vLLM's engine is killed": (chunk(ENGINE_DEAD) + chunk(DONE) + LAST_CHUNK,),
    "vLLM stops with grace": (chunk(delta("", "abort")) + chunk(DONE) + LAST_CHUNK,),
    "vLLM stops with grace, chunk by chunk": (chunk(delta("", "abort")), chunk(DONE), LAST_CHUNK),
    "vLLM's group is killed": (cut,),
    "a stop that leaves the stream open and silent": (silent,),
    "reset": (reset,),
    "an error event in plain text": (chunk(b"event: error\ndata: died\n\n" + TWO + LAST) + LAST_CHUNK,),
    "a clean end without a finish reason": (LAST_CHUNK,),
    "a finish reason without [DONE]": (chunk(LAST), LAST_CHUNK),
    "[DONE] without a finish reason": (chunk(DONE) + LAST_CHUNK,),
    "half an event": (chunk(TWO[:20]), cut),
    "garbage in place of a chunk": (b"zz\r\n",),
}


@pytest.mark.parametrize("name", DEATHS)
async def test_a_server_that_dies_in_a_stream_is_lost_and_no_end_was_handed_on(name: str) -> None:
    sink = Sink()
    steps = (STREAM_HEAD + chunk(ROLE + ONE), until(sink, ROLE + ONE), chunk(TWO), until(sink, ROLE + ONE + TWO))
    answer = await relay_of((*steps, *DEATHS[name]), a_call(sink=sink, idle_timeout_s=0.1))
    assert isinstance(answer.outcome, Lost), answer
    assert answer.outcome.cause is (LostCause.SILENT if "silent" in name else LostCause.SERVER)
    assert sink.whole in (ROLE + ONE + TWO, ROLE + ONE + TWO + LAST)


async def test_llama_server_dies_without_a_frame_around_its_stream() -> None:
    sink = Sink()
    answer = await relay_of((UNFRAMED_HEAD + ROLE + ONE, until(sink, ROLE + ONE), TWO[:9], cut), a_call(sink=sink))
    assert isinstance(answer.outcome, Lost), answer
    assert sink.whole == ROLE + ONE


async def test_what_dies_in_the_piece_in_which_it_begins_can_be_asked_for_again() -> None:
    sink = Sink()
    answer = await relay_of((BEGUN + chunk(ENGINE_DEAD) + chunk(DONE) + LAST_CHUNK,), a_call(sink=sink))
    assert isinstance(answer.outcome, Lost), answer
    assert b"error" not in sink.whole
    assert b"[DONE]" not in sink.whole


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((cut,), id="llama-server is killed while the request is queued"),
        pytest.param((STREAM_HEAD, cut), id="after the head"),
        pytest.param((STREAM_HEAD + chunk(b": waiting\n\n"), reset), id="after a comment"),
        pytest.param((STREAM_HEAD + chunk(ROLE), cut), id="after the role"),
        pytest.param((STREAM_HEAD + chunk(ROLE + ONE[:-1]), cut), id="in the first event that says something"),
        pytest.param((STREAM_HEAD + chunk(ROLE + ENGINE_DEAD + DONE) + LAST_CHUNK,), id="with an error"),
        pytest.param((STREAM_HEAD + chunk(ROLE + delta("", "abort") + DONE) + LAST_CHUNK,), id="with an abort"),
        pytest.param((STREAM_HEAD + chunk(ROLE), silent), id="silent after the role"),
    ],
)
async def test_what_dies_before_it_says_something_can_be_asked_for_again(steps: tuple[object, ...]) -> None:
    sink = Sink()
    answer = await relay_of(steps, a_call(sink=sink, idle_timeout_s=0.1))
    assert isinstance(answer.outcome, Lost), answer
    assert not sink.begun
    assert isinstance((await relay_of((WHOLE,), a_call(sink=sink))).outcome, Ok)
    assert sink.whole == SAID


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (reply(b'{"error": "busy"}', "429 Too Many Requests"), Busy),
        (reply(b"oops", "500 Internal Server Error"), Failed),
        (reply(b'{"error": "bad key"}', "401 Unauthorized"), Misrouted),
        (reply(b'{"message": "maximum context length is 10"}', "400 Bad Request"), Rejected),
        (reply(b'{"error": {"message": "no"}}'), Failed),
        (reply(b"<html><title>Hi</title></html>"), Failed),
        (reply(SAID + DONE, "503 Service Unavailable", "content-type: text/event-stream"), Busy),
        (STREAM_HEAD + LAST_CHUNK, Lost),
    ],
)
async def test_an_error_is_an_outcome_and_nothing_comes_to_the_sink(raw: bytes, kind: type) -> None:
    sink = Sink()
    assert isinstance((await relay_of((raw,), a_call(sink=sink))).outcome, kind)
    assert not sink.begun


async def test_a_reply_that_is_compressed_though_nobody_asked_for_that_is_a_fault_that_is_named() -> None:
    sink = Sink()
    raw = reply(gzip.compress(SAID + DONE), headers="content-type: text/event-stream\r\ncontent-encoding: gzip")
    answer = await relay_of((raw,), a_call(sink=sink))
    assert isinstance(answer.outcome, Failed)
    assert "content-encoding gzip" in (answer.outcome.message or "")
    assert not sink.begun


# --- an API that the endpoint is not listed for


NO_API = [
    ("404 Not Found", b'{"detail": "Not Found"}'),
    ("404 Not Found", b'{"error": {"message": "no", "code": "model_not_found"}}'),
    ("405 Method Not Allowed", b""),
    ("501 Not Implemented", b'{"error": {"message": "This server does not support completions", "code": 501}}'),
    ("200 OK", b'{"error": "Unexpected endpoint or method. (POST /v1/completions)"}'),
]


@pytest.mark.parametrize(("status", "body"), NO_API)
@pytest.mark.parametrize("sink", [None, Sink()])
async def test_an_api_that_a_server_does_not_have_says_nothing_against_it(status: str, body: bytes, sink: Sink) -> None:
    answer = await relay_of((reply(body, status),), a_call(PROMPT, sink, api=TEXT))
    assert isinstance(answer.outcome, Rejected), answer
    assert answer.outcome.http_status == int(status[:3])
    assert "is listed for another API" in answer.outcome.message
    assert "/v1/completions" in answer.outcome.message or status[:3] not in ("404", "405")


@pytest.mark.parametrize(("status", "body"), NO_API)
async def test_an_endpoint_without_its_own_api_is_none(status: str, body: bytes) -> None:
    answer = await relay_of((reply(body, status),), a_call())
    assert isinstance(answer.outcome, Misrouted | Failed), answer


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        ("401 Unauthorized", b'{"error": "unknown path to glory"}', Misrouted),
        ("403 Forbidden", b"", Misrouted),
        ("429 Too Many Requests", b"", Busy),
        ("500 Internal Server Error", b"oops", Failed),
        ("400 Bad Request", b"", Rejected),
    ],
)
async def test_what_else_goes_wrong_with_it_is_what_it_always_is(status: str, body: bytes, kind: type) -> None:
    answer = await relay_of((reply(body, status),), a_call(PROMPT, api=TEXT))
    assert isinstance(answer.outcome, kind)
    assert "another API" not in (answer.outcome.message or "")


async def test_a_server_may_well_have_an_api_that_it_is_not_listed_for() -> None:
    answer = await relay_of((TEXT_REPLY,), a_call(PROMPT, api=TEXT, stream=False))
    assert isinstance(answer.outcome, Ok)
    assert answer.outcome.reply.text == "x"


# --- a client that takes its time


async def test_a_client_that_takes_nothing_holds_the_server_up_and_is_not_taken_for_its_silence() -> None:
    """The server can send no more than the sockets hold, and the idle time does not run."""
    sink, sent, stream = StubbornSink(), 0, Stream(trio.current_time(), 1)
    many = delta("x" * 2000) * 40

    async def flood(conn: Conn) -> None:
        nonlocal sent
        conn.plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        await conn.send(STREAM_HEAD)
        for _ in range(100):  # 8 MB in all
            await conn.send(chunk(many))
            sent += 1
        await conn.send(chunk(LAST + DONE) + LAST_CHUNK)

    answers = []
    async with raw_server(script_of(flood)) as server:

        async def ask() -> None:
            answers.append(await relayed(server.url, a_call(sink=sink, idle_timeout_s=0.05), stream))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            with trio.fail_after(5):
                await sink.asked.wait()
            before = -1
            while sent != before:
                before = sent
                await trio.sleep(0.1)  # twice the idle time
            assert sent < 100
            assert stream.held_back
            assert not stream.is_stalled(trio.current_time() + 1000)
            let_go_at = trio.current_time()
            sink.willing.set()
    assert isinstance(answers[0].outcome, Ok), answers[0]
    assert sink.whole == many * 100 + LAST
    assert not stream.held_back
    assert stream.chunks == 4000
    assert stream.last_at >= let_go_at


async def test_silence_counts_again_once_the_client_has_taken_what_came() -> None:
    sink = StubbornSink()
    async with raw_server(script_of(BEGUN, silent)) as server, trio.open_nursery() as nursery:
        answers = []

        async def ask() -> None:
            answers.append(await relayed(server.url, a_call(sink=sink, idle_timeout_s=0.1)))

        nursery.start_soon(ask)
        with trio.fail_after(5):
            await sink.asked.wait()
            await trio.sleep(0.2)
            assert not answers
            sink.willing.set()
    assert isinstance(answers[0].outcome, Lost)
    assert answers[0].outcome.cause is LostCause.SILENT


async def test_cancelled_while_the_client_takes_nothing_the_server_is_hung_up_on() -> None:
    sink = StubbornSink()
    async with raw_server(script_of(BEGUN, Conn.until_gone)) as server:
        client = client_of(server.url)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask, a_call(sink=sink))
            with trio.fail_after(5):
                await sink.asked.wait()
            nursery.cancel_scope.cancel()
        await server.wait_gone(1)
        assert client._pool.idle == 0
        client.close()
    assert not sink.begun


def test_cancelled_at_any_step_a_relayed_call_leaves_nothing_behind() -> None:
    sinks: list[Sink] = []

    async def use() -> None:
        sinks.append(Sink())
        async with raw_server(
            script_of(STREAM_HEAD + chunk(ROLE + ONE), chunk(TWO + LAST + DONE), LAST_CHUNK)
        ) as server:
            client = client_of(server.url)
            try:
                assert isinstance((await client.ask(a_call(sink=sinks[-1]))).outcome, Ok)
            finally:
                assert client._pool.dialer.under_way == 0
                client.close()

    def check() -> None:
        assert SAID.startswith(sinks[-1].whole)

    assert cancel_at_every_step(use, check) > 5


async def test_the_connection_of_a_relayed_call_is_used_again() -> None:
    async with raw_server(script_of(WHOLE)) as server:
        client = client_of(server.url)
        for _ in range(3):
            assert isinstance((await client.ask(a_call(sink=Sink()))).outcome, Ok)
        client.close()
    assert server.accepted == 1


async def test_settings_that_cannot_work_are_an_outcome_of_a_call_too() -> None:
    endpoint = Endpoint(EndpointId("p"), "m", Url("http://127.0.0.1:1/v1"), headers={"bad name": "x"})
    sink = Sink()
    answer = await HttpModelTransport().open_client(endpoint).ask(a_call(sink=sink))
    assert isinstance(answer.outcome, Misrouted)
    assert not sink.begun


async def test_a_key_that_a_server_echoes_in_a_stream_goes_into_no_message() -> None:
    key = "sk-very-secret-key-0123456789"
    error = event({"error": {"message": f"wrong key {key}", "code": 500}})
    answer = await relay_of((BEGUN + chunk(error) + LAST_CHUNK,), attrs.evolve(a_call(sink=Sink())))
    assert "[secret]" in (answer.outcome.message or "")
    assert key not in repr(answer)
