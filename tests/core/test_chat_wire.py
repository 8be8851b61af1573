"""Requests to bytes, replies to outcomes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.chat import ReplyReader
from scavenge.core.errorbody import Wording
from scavenge.core.request_body import encode_request
from scavenge.types import (
    ApiType,
    Busy,
    ChatRequest,
    Failed,
    Lost,
    LostCause,
    Misrouted,
    Ok,
    Outcome,
    Rejected,
    Reply,
    Usage,
)

CHAT = ApiType.CHAT_COMPLETIONS
HI = ({"role": "user", "content": "hi"},)


def outcome(*pieces: bytes, status: int = 200, content_type: str = "text/event-stream", cut: bool = False) -> Outcome:
    reader = ReplyReader(Wording(), max_body_bytes=100_000)
    reader.start(status, {"content-type": content_type})
    for piece in pieces:
        reader.feed(piece)
    return reader.cut("cut off") if cut else reader.finish()


def reply(*pieces: bytes) -> Reply:
    found = outcome(*pieces)
    assert isinstance(found, Ok), found
    return found.reply


def sse(*events: object, done: bool = True) -> bytes:
    texts = [
        event if isinstance(event, str) else json.dumps(event) for event in (*events, *(["[DONE]"] if done else []))
    ]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def delta(finish: str | None = None, index: int = 0, **fields: object) -> dict[str, object]:
    return {
        "id": "1",
        "object": "chat.completion.chunk",
        "choices": [{"index": index, "delta": fields, "finish_reason": finish}],
    }


def plain(message: object = None, finish: object = "stop", **more: object) -> bytes:
    choice = {"index": 0, "message": {"content": "x"} if message is None else message, "finish_reason": finish}
    return json.dumps({"choices": [choice], **more}).encode()


def called(piece: dict[str, object]) -> dict[str, object]:
    return delta(tool_calls=[piece])


# --- requests


def sent(request: ChatRequest, api_type: ApiType = CHAT) -> dict[str, object]:
    body = encode_request(api_type, "m", request)
    assert isinstance(body, bytes), body
    found: dict[str, object] = json.loads(body)
    return found


def test_a_streamed_request_asks_for_usage() -> None:
    assert sent(ChatRequest(HI, {"temperature": 0, "model": "other", "stream": False})) == {
        "model": "m",
        "messages": list(HI),
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    given_options = {"stream_options": {"include_usage": False, "continuous": 1}}
    assert sent(ChatRequest(HI, given_options))["stream_options"] == {"include_usage": True, "continuous": 1}
    assert sent(ChatRequest(HI, {"stream_options": 7}))["stream_options"] == {"include_usage": True}


def test_a_plain_request_does_not_speak_of_streams() -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    assert sent(ChatRequest(HI, options, stream=False)) == {"model": "m", "messages": list(HI)}


def test_the_completions_protocol_gets_a_prompt() -> None:
    messages = [*HI, {"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]}, {"role": "tool"}]
    assert sent(ChatRequest(messages, stream=False), ApiType.COMPLETIONS) == {"model": "m", "prompt": "hi\n\nab\n\n"}
    given_prompt = ChatRequest([], {"prompt": [1, 2]}, stream=False)
    assert sent(given_prompt, ApiType.COMPLETIONS) == {"model": "m", "prompt": [1, 2]}


def test_frozen_values_are_written_like_plain_ones() -> None:
    request = ChatRequest((MappingProxyType(HI[0]),), {"stop": range(2)}, stream=False)
    assert sent(request) == {"model": "m", "messages": list(HI), "stop": [0, 1]}


@pytest.mark.parametrize("options", [{"a": object()}, {"a": b"x"}, {"a": "\ud800"}, {"a": 2**70}, {1: 2}])
def test_what_json_cannot_say_is_the_requests_own_fault(options: dict[str, object]) -> None:
    assert isinstance(encode_request(CHAT, "m", ChatRequest(HI, options)), Rejected)


@pytest.mark.parametrize("content", [7, [7], {"a": 1}])
def test_contents_without_text_cannot_become_a_prompt(content: object) -> None:
    request = ChatRequest([{"role": "user", "content": content}])
    assert isinstance(encode_request(ApiType.COMPLETIONS, "m", request), Rejected)


# --- streamed replies


def test_texts_reasoning_and_usage_are_put_together() -> None:
    stream = sse(
        delta(role="assistant", content=""),
        delta(reasoning_content="I "),
        delta(reasoning_content="think", content=None),
        delta(content="Hel"),
        delta(content="lo"),
        delta("stop"),
        {
            "id": "1",
            "object": "chat.completion.chunk",
            "choices": [],
            "usage": {"prompt_tokens": 5, "completion_tokens": 3},
        },
    )
    found = reply(stream)
    assert found == Reply("Hello", "stop", "I think", (), Usage(5, 3), raw=found.raw)
    assert found.raw == {
        "id": "1",
        "object": "chat.completion",
        "usage": {"prompt_tokens": 5, "completion_tokens": 3},
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "reasoning_content": "I think"},
                "finish_reason": "stop",
            }
        ],
    }


def test_reasoning_goes_by_two_names() -> None:
    assert reply(sse(delta(reasoning="hm"), delta("stop"))).reasoning == "hm"
    assert reply(plain({"content": None, "reasoning": "hm"})).reasoning == "hm"


def test_tool_calls_are_put_together_by_index() -> None:
    found = reply(
        sse(
            called({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}),
            called({"index": 0, "id": "", "function": {"name": None, "arguments": '{"x"'}}),
            called({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}),
            called({"index": 0, "function": {"name": "", "arguments": ": 1}"}}),
            delta("tool_calls"),
        )
    )
    assert found.tool_calls == (
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
        {"id": "b", "function": {"name": "g", "arguments": "{}"}},
    )


def test_tool_calls_of_servers_that_number_badly() -> None:
    first = {"id": "a", "function": {"name": "f", "arguments": "1"}}
    second = {"id": "b", "function": {"name": "g", "arguments": "2"}}
    for number in ({"index": 0}, {}):
        found = reply(sse(called({**first, **number}), called({**second, **number}), delta("tool_calls")))
        assert [call["id"] for call in found.tool_calls] == ["a", "b"]
    split = [called({"id": "a", "function": {"name": "f", "arguments": "1"}}), called({"function": {"arguments": "2"}})]
    assert reply(sse(*split, delta("stop"))).tool_calls == ({"id": "a", "function": {"name": "f", "arguments": "12"}},)
    odd = called({"index": 0, "id": "a", "function": {"arguments": {"x": 1}}, "extra": 1})
    assert reply(sse(odd, delta("stop"))).tool_calls == ({"id": "a", "function": {"arguments": {"x": 1}}, "extra": 1},)
    assert reply(sse(called({"index": 0, "id": "a"}), delta("stop"))).tool_calls == ({"id": "a"},)


def test_the_old_function_call_is_put_together() -> None:
    pieces = [{"name": "f", "arguments": "{"}, {"arguments": "}"}]
    found = reply(sse(*(delta(function_call=piece) for piece in pieces), delta("function_call")))
    assert found.raw["choices"][0]["message"]["function_call"] == {"name": "f", "arguments": "{}"}  # type: ignore[index]


def test_several_choices_are_all_kept_and_the_first_is_read() -> None:
    found = reply(sse(delta(index=1, content="b"), delta(index=0, content="a"), delta("stop", 1), delta("stop", 0)))
    assert found.text == "a"
    assert [choice["message"]["content"] for choice in found.raw["choices"]] == ["a", "b"]  # type: ignore[attr-defined]
    assert isinstance(outcome(sse(delta("stop", 0, content="a"), delta(index=1, content="b"))), Lost)


def test_lists_beside_the_text_are_joined_and_the_last_value_counts_otherwise() -> None:
    def logged(token: str, stop: object) -> dict[str, object]:
        more = {"logprobs": {"content": [{"token": token}], "refusal": None}, "token_ids": [1], "stop_reason": stop}
        return {"choices": [{"index": 0, "delta": {"content": token, "note": token}, **more}]}

    found = reply(sse(logged("a", None), logged("b", "x"), delta("stop")))
    choice = found.raw["choices"][0]  # type: ignore[index]
    assert choice["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}], "refusal": None}
    assert (choice["token_ids"], choice["stop_reason"], choice["message"]["note"]) == ([1, 1], "x", "b")


def test_the_completions_protocol_streams_texts() -> None:
    pieces = [{"choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in ("a", "b")]
    found = reply(sse(*pieces, {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}))
    assert (found.text, found.finish_reason) == ("ab", "length")


def test_parts_may_come_in_a_stream() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}]
    found = reply(sse(delta(content=parts), delta(content=[]), delta("stop")))
    assert (found.text, found.reasoning) == ("a", "hm")


DIED = {"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}}
WHOLE = [delta(content="a"), delta("stop")]


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (sse(*WHOLE, done=False), Lost),
        (sse(delta(content="a")), Lost),
        (sse(), Lost),
        (b"", Lost),
        (b": ping\n\n", Lost),
        (sse({"choices": []}), Lost),
        (sse(delta(content="a"), DIED), Lost),
        (sse(*WHOLE, DIED), Lost),
        (sse(delta(content="a"), delta("abort")), Lost),
        (sse(delta(content="a"), delta("abort"), done=False), Lost),
        (sse({"error": "died"}), Lost),
        (sse({"message": "died"}), Lost),
        (sse(delta(content="a"), delta("sudden")), Failed),
        *((sse({"error": {"message": "m", "code": code}}), Lost) for code in (400, 401, 404, 408, 422, 500)),
        (sse({"error": {"message": "m", "code": "model_not_found"}}), Lost),
        (sse({"object": "error", "message": "m", "code": 400}), Lost),
        *((sse({"error": {"message": "m", "code": code}}), Busy) for code in (429, 503, 529)),
        (sse({"error": {"message": "no available workers"}}), Busy),
        (sse({"error": {"message": "no available workers", "code": 400}}), Busy),
        (sse({"error": {"message": "too many tokens a minute", "type": "rate_limit_error"}}), Busy),
        (sse({"error": {"message": "too many tokens a minute", "code": 429}}), Busy),
        (sse("{", *WHOLE), Failed),
        (sse("[]", *WHOLE), Failed),
        (sse({"choices": {}}), Failed),
        (sse({"choices": [7]}), Failed),
        (sse({"choices": [{"delta": 7}]}), Failed),
        (sse({"choices": [{"delta": {"content": 7}}]}), Failed),
        (sse({"choices": [{"delta": {"tool_calls": 7}}]}), Failed),
        (sse({"choices": [{"delta": {"tool_calls": [7]}}]}), Failed),
    ],
)
def test_a_stream_that_is_not_whole_is_no_reply(stream: bytes, kind: type) -> None:
    assert type(outcome(stream)) is kind, outcome(stream)
    assert not isinstance(outcome(stream, cut=True), Ok)


@pytest.mark.parametrize("code", [None, 400, 404, 500])
def test_a_prompt_that_does_not_fit_is_rejected_in_a_stream_too(code: int | None) -> None:
    error = {"message": "longer than the model's context length (10), the server is busy", "code": code}
    found = outcome(sse(delta(content="a"), {"error": error}))
    assert isinstance(found, Rejected), found
    assert found.context_length


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("engine died", Lost),
        ("{", Lost),
        ("[]", Lost),
        ("7", Lost),
        ("[DONE]", Lost),
        ("[" * 100_000, Lost),
        ('{"reason": "engine died"}', Lost),
        ('{"error": null}', Lost),
        ('{"error": {"message": "m", "code": 400}}', Lost),
        ('{"code": 429, "message": "m"}', Busy),
        ("the server is overloaded", Busy),
        ("the prompt is too long", Rejected),
    ],
)
def test_an_event_that_is_named_error_is_one_whatever_its_data(data: str, kind: type) -> None:
    stream = sse(*WHOLE, done=False) + f"event: error\ndata: {data}\n\n".encode() + sse()
    reader = ReplyReader()
    reader.start(200, {"content-type": "text/event-stream"})
    reader.feed(stream)
    assert type(reader.finish()) is kind, reader.finish()
    assert type(reader.cut("x")) is kind


@pytest.mark.parametrize("levels", [300, 900, 950, 990, 1020, 5000])
@pytest.mark.parametrize("key", ["message", "x", "detail"])
def test_an_error_of_any_depth_is_an_outcome(levels: int, key: str) -> None:
    error = b'{"error": ' + b'{"%s": ' % key.encode() * levels + b"1" + b"}" * levels + b"}"
    assert isinstance(outcome(b"event: error\ndata: " + error + b"\n\n"), Lost)
    assert isinstance(outcome(b"data: " + error + b"\n\n"), Lost | Failed)
    assert isinstance(outcome(error), Failed)
    assert isinstance(outcome(error, status=500), Failed)
    assert isinstance(outcome(error, status=400), Rejected)


@pytest.mark.parametrize("levels", [300, 900, 950, 990, 1010])
def test_a_finish_reason_of_any_depth_is_an_outcome(levels: int) -> None:
    reason = b"[" * levels + b"]" * levels
    body = b'{"choices": [{"message": {"content": "a"}, "finish_reason": ' + reason + b"}]}"
    assert isinstance(outcome(body), Failed)
    assert isinstance(outcome(b"data: " + body + b"\n\ndata: [DONE]\n\n"), Failed)


def test_a_stream_that_ends_anywhere_before_its_end_is_lost() -> None:
    stream = sse(*WHOLE)
    whole_at = len(stream.rstrip(b"\n"))
    for end in range(len(stream)):
        assert isinstance(outcome(stream[:end]), Ok if end >= whole_at else Lost), stream[:end]
    assert outcome(stream[:20]) == Lost("the stream ended within an event", http_status=200)


def test_an_event_of_another_name_is_a_chunk() -> None:
    stream = b"event: message\n" + sse(delta(content="a"), done=False) + b"event: x\n" + sse(delta("stop"))
    assert reply(stream).text == "a"


def test_an_error_that_is_no_json_is_shown() -> None:
    found = outcome(b"event: error\ndata: engine died\n\n")
    assert found == Lost("HTTP 200 with an error: engine died", http_status=200)


def test_what_is_no_stream_in_spite_of_its_first_letter_is_broken() -> None:
    assert isinstance(outcome(b"error: out of cheese", content_type="text/plain"), Failed)


def test_an_ok_reply_stays_ok_whatever_follows_done() -> None:
    for more in (b"", b"garbage", sse(DIED), b"data: {"):
        assert isinstance(outcome(sse(*WHOLE) + more), Ok)
        assert isinstance(outcome(sse(*WHOLE) + more, cut=True), Ok)


def test_a_null_error_is_none() -> None:
    assert isinstance(outcome(sse({**delta(content="a"), "error": None}, delta("stop"))), Ok)
    assert isinstance(outcome(plain(error=None)), Ok)


def test_an_empty_reply_with_a_finish_reason_is_one() -> None:
    assert reply(sse(delta("length"))).text == ""
    assert reply(plain({"content": None})).text == ""
    assert reply(plain({"role": "assistant"})).text == ""
    assert reply(sse({"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "a"}}]})).text == "a"


# --- plain replies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"<html><body>welcome</body></html>",
        b"{",
        b'{"choices"',
        b"null",
        b"7",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [7]}',
        b'{"choices": [{"finish_reason": "stop"}]}',
        b'{"choices": [{"finish_reason": "stop", "message": 7}]}',
        b'{"error": {"message": "m"}}',
        b'{"object": "error", "message": "m"}',
        b'{"detail": "m"}',
        b'{"error": {"message": "m", "code": 500}}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        plain({"content": 7}),
        plain({"content": [7]}),
        plain({"content": "a", "tool_calls": 7}),
        plain({"content": "a", "tool_calls": [7]}),
        plain(finish=None),
        plain(finish="sudden"),
        plain(finish=["stop"]),
        b" " * 100_001,
    ],
)
def test_a_plain_reply_that_is_none_is_a_failure(body: bytes) -> None:
    found = outcome(body, content_type="application/json")
    assert type(found) is Failed, found
    assert found.http_status == 200


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error": {"message": "m", "code": 429}}', Busy),
        (b'{"error": {"message": "m", "code": 503}}', Busy),
        (b'{"error": {"message": "Rate limit exceeded"}}', Busy),
        (b'{"error": {"message": "no available workers"}}', Busy),
        (b'{"error": {"message": "m", "code": 400}}', Rejected),
        (b'{"object": "error", "message": "m", "code": 404}', Misrouted),
        (b'{"error": {"message": "longer than the model\'s context length"}}', Rejected),
        (b'{"error": {"message": "too many tokens a minute", "type": "rate_limit_error"}}', Busy),
        (plain(finish="abort"), Lost),
    ],
)
def test_an_error_under_a_good_status_is_what_it_says(body: bytes, kind: type) -> None:
    assert type(outcome(body, content_type="application/json")) is kind


def test_each_protocol_is_known_by_its_looks_not_by_its_label() -> None:
    assert isinstance(outcome(plain(), content_type="text/event-stream"), Ok)
    assert isinstance(outcome(sse(*WHOLE), content_type="application/json"), Ok)
    assert isinstance(outcome(b"\xef\xbb\xbf", b" \n", plain(), content_type=""), Ok)


def test_a_content_of_parts_is_read() -> None:
    parts = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "a"}, "b", {"type": "image"}]
    found = reply(plain({"content": parts}))
    assert (found.text, found.reasoning) == ("ab", "hm")


def test_usage_is_taken_where_it_is_a_count() -> None:
    assert reply(plain(usage={"prompt_tokens": 1, "completion_tokens": True})).usage == Usage(1, None)
    assert reply(plain(usage={"prompt_tokens": -1})).usage == Usage()
    assert reply(plain(usage=7)).usage == Usage()


def test_choices_without_numbers_stay_in_order() -> None:
    choices = [{"text": "a", "finish_reason": "stop"}, {"text": "b", "finish_reason": "stop"}]
    assert reply(json.dumps({"choices": choices}).encode()).text == "a"


def test_lone_surrogates_do_not_break_a_reply() -> None:
    assert reply(plain({"content": "a\ud800"})).text == "a\ud800"


def test_a_reply_in_a_coding_nobody_asked_for_says_so() -> None:
    reader = ReplyReader()
    reader.start(200, {"content-encoding": "gzip"})
    reader.feed(b"\x1f\x8b\x08")
    assert "content-encoding gzip" in str(reader.finish().message)


# --- bounds and ends


def test_bodies_have_a_limit() -> None:
    for piece in (b'{"' + b"x" * 999, sse(*[delta(content="x" * 900)], done=False)):
        reader = ReplyReader(max_body_bytes=10_000)
        reader.start(200, {})
        fed = 0
        while not reader.over:
            reader.feed(piece)
            fed += len(piece)
        assert fed < 12_000
        assert isinstance(reader.finish(), Failed)
        assert isinstance(reader.cut("x"), Failed)


def test_the_body_of_an_error_is_read_up_to_its_limit() -> None:
    reader = ReplyReader()
    reader.start(500, {})
    for _ in range(2_000):
        reader.feed(b"x" * 1_000)
    assert reader.over
    assert isinstance(reader.finish(), Failed)


def test_the_body_of_an_error_has_the_limit_of_any_other_where_that_is_lower() -> None:
    reader = ReplyReader(max_body_bytes=100)
    reader.start(500, {})
    reader.feed(b"x" * 101)
    assert reader.over


def test_an_event_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ReplyReader()
    reader.start(200, {})
    for _ in range(17):
        reader.feed(b"data: " + b"x" * 2**20)
    assert reader.over
    assert isinstance(reader.finish(), Failed)


def test_a_cut_is_a_loss_unless_the_status_says_it_all() -> None:
    found = outcome(b'{"choices"', cut=True)
    assert isinstance(found, Lost)
    assert (found.message, found.cause, found.http_status) == ("cut off", LostCause.SERVER, 200)
    assert isinstance(outcome(b"x", status=502, cut=True), Lost)
    assert isinstance(outcome(b"x", status=429, cut=True), Busy)
    assert isinstance(outcome(b"x", status=413, cut=True), Rejected)
    local = ReplyReader().cut("before the head", LostCause.LOCAL)
    assert local == Lost("before the head", LostCause.LOCAL)


# --- any bytes, in any pieces

SOUP = st.lists(
    st.sampled_from(
        [
            *(sse(event, done=False) for event in (delta(content="a"), delta("stop"), delta("abort"), DIED)),
            *(
                sse(),
                plain(),
                b"event: error\n",
                b'{"choices":[{}]}',
                b'{"choices":[{"delta":{"tool_calls":[{}]}}]}',
                b"null",
            ),
            *(b"data: {", b"data: ", b": x\n", b"\n\n", b"\r", b" ", b"{", b"}", b"<html>", b"\xff", b"\xef\xbb\xbf"),
        ]
    ),
    max_size=8,
).map(b"".join)


def pieces_of(body: bytes, cuts: Iterable[int]) -> list[bytes]:
    at = sorted(cut % (len(body) + 1) for cut in cuts)
    return [body[a:b] for a, b in zip([0, *at], [*at, len(body)], strict=True)]


@given(
    st.one_of(SOUP, st.binary(max_size=200)),
    st.lists(st.integers(0, 10_000), max_size=8),
    st.sampled_from([200, 200, 200, 404, 500, 302, 204]),
    st.sampled_from(["text/event-stream", "application/json", ""]),
    st.booleans(),
)
def test_any_bytes_have_the_same_outcome_in_any_pieces(
    body: bytes, cuts: list[int], status: int, content_type: str, cut: bool
) -> None:
    whole = outcome(body, status=status, content_type=content_type, cut=cut)
    split = outcome(*pieces_of(body, cuts), status=status, content_type=content_type, cut=cut)
    assert split == whole


@given(st.integers(0, 10_000), st.booleans())
def test_no_beginning_of_a_stream_is_a_reply(length: int, cut: bool) -> None:
    stream = sse(
        delta(content="Hel"), delta(content="lo"), delta("stop"), {"choices": [], "usage": {"prompt_tokens": 1}}
    )
    enough = stream.index(b"[DONE]") + len(b"[DONE]")
    part = stream[: length % enough]
    assert not isinstance(outcome(part, cut=cut), Ok)
    assert isinstance(outcome(stream[:enough]), Ok)


@given(st.integers(0, 10_000))
def test_no_beginning_of_a_plain_reply_is_a_reply(length: int) -> None:
    body = plain({"content": "hello"})
    assert not isinstance(outcome(body[: length % len(body)]), Ok)


def test_odd_chunks_that_say_nothing_change_nothing() -> None:
    odd = {"choices": None, "note": 1}
    nested = {"choices": [{"index": "x", "delta": {}, "extra": {"a": 1, "b": None}}]}
    again = {"choices": [{"delta": {}, "extra": {"a": 2, "b": 3}}]}
    call = called({"index": 0, "function": "f"})
    found = reply(
        sse(odd, nested, again, call, called({"index": 0, "function": {"name": "g"}}), delta("stop", content="a"))
    )
    assert found.text == "a"
    assert found.raw["note"] == 1
    assert found.raw["choices"][0]["extra"] == {"a": 2, "b": 3}  # type: ignore[index]
    assert found.tool_calls == ({"function": "f"},)
