"""What the gateway answers, read back: a worker's session gives and raises what the run's own one does."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.calls import Relayed
from scavenge.core.doorwords import error_body, read_reply, refusal_body, reply_body, request_body
from scavenge.core.errorbody import Wording
from scavenge.core.reply import outcome_of_document
from scavenge.errors import (
    NoEndpointsError,
    PoisonRequest,
    ScavengeError,
    Stopping,
    UnknownModel,
    UnknownSession,
    UsageError,
)
from scavenge.types import (
    Attempt,
    Busy,
    Completion,
    Failed,
    Lost,
    LostCause,
    Misrouted,
    Ok,
    Outcome,
    Rejected,
    Reply,
    RequestFailed,
    TimedOut,
    Url,
    Usage,
)

ATTEMPTS = (
    Attempt(Url("http://one/v1"), "lost", 1.25, 0.5, None, None, None, "connection reset"),
    Attempt(Url("http://two/v1"), "ok", 2.5, 1.5, 200, 0.25, 31.5, None),
)
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RAW: dict[str, Any] = {
    "id": "chatcmpl-1",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "a\u2028b\ud800",
                "reasoning_content": "hm",
                "tool_calls": [CALL],
            },
        },
        {"index": 1, "finish_reason": "stop", "message": {"role": "assistant", "content": None}},
    ],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
    "big": 2**63 - 1,
}
OUTCOMES: list[Outcome] = [
    Rejected("too long", 400, context_length=True),
    Rejected("bad", 422),
    Rejected("no JSON"),
    Rejected("too long all the same", context_length=True),
    Rejected("said in a stream", 200),
    Rejected("no such API", 405),
    Lost("gone", LostCause.SILENT, 502),
    Busy("wait", 429, 3.5),
    Failed("broken", 500),
    Misrouted("no such model", 404, curable=True),
    TimedOut("too slow"),
]


def relayed(raw: dict[str, Any], attempts: tuple[Attempt, ...] = ATTEMPTS, body: bytes | None = None) -> Relayed:
    outcome = outcome_of_document(raw, 200, Wording(), streamed=False)
    assert isinstance(outcome, Ok)
    return Relayed(attrs.evolve(outcome.reply, body=body), attempts)


def completion_of(told: Relayed) -> Completion:
    reply = told.reply
    return Completion(
        reply.text, reply.finish_reason, reply.reasoning, reply.tool_calls, reply.usage, told.attempts, reply.raw
    )


@pytest.mark.parametrize("body", [None, b"as it came"])
def test_a_reply_is_read_back_whole(body: bytes | None):
    told = relayed(RAW, body=body)
    assert read_reply(200, reply_body(told)) == completion_of(told)


def test_a_worker_sees_the_servers_reply_and_a_key_of_ours():
    document = json.loads(reply_body(relayed(RAW)))
    ours = document.pop("scavenge")
    assert document == RAW
    assert [attempt["endpoint"] for attempt in ours["attempts"]] == ["http://one/v1", "http://two/v1"]


def test_a_foreign_client_sees_the_servers_reply_as_it_came_or_was_put_together():
    assert reply_body(relayed(RAW, body=b"{ }"), detail=False) == b"{ }"
    assert json.loads(reply_body(relayed(RAW), detail=False)) == RAW
    assert b"\n" not in reply_body(relayed(RAW), detail=False)


def test_what_the_server_itself_said_under_our_key_comes_through():
    told = relayed({**RAW, "scavenge": {"attempts": [1, 2, 3]}}, attempts=())
    assert read_reply(200, reply_body(told)) == completion_of(told)
    assert json.loads(reply_body(told, detail=False))["scavenge"] == {"attempts": [1, 2, 3]}


def test_a_reply_without_its_document_is_given_one():
    reply = Reply("hi", "stop", "hm", (CALL,), Usage(3, 2, 1), {"id": "x"})
    back = read_reply(200, reply_body(Relayed(reply, ATTEMPTS)))
    assert (back.text, back.finish_reason, back.reasoning, back.tool_calls) == ("hi", "stop", "hm", (CALL,))
    assert (back.usage, back.attempts, back.raw["id"]) == (Usage(3, 2, 1), ATTEMPTS, "x")
    bare = read_reply(200, reply_body(Relayed(Reply("", "length")), detail=False))
    assert (bare.text, bare.reasoning, bare.tool_calls, bare.usage) == ("", None, (), Usage())


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_a_request_that_failed_fails_alike_on_the_other_side(outcome: Outcome):
    status, body = error_body(RequestFailed(outcome, ATTEMPTS))
    assert status >= 400
    with pytest.raises(RequestFailed) as caught:
        read_reply(status, body)
    assert (caught.value.outcome, caught.value.attempts) == (outcome, ATTEMPTS)
    assert str(caught.value) == str(RequestFailed(outcome, ATTEMPTS))


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
@pytest.mark.parametrize("attempts", [(), ATTEMPTS[:1], ATTEMPTS])
def test_without_the_detail_the_other_side_knows_the_outcome_but_not_its_attempts(outcome: Outcome, attempts: Any):
    status, body = error_body(RequestFailed(outcome, attempts), detail=False)
    with pytest.raises(RequestFailed) as caught:
        read_reply(status, body)
    less = {"cause": LostCause.SERVER} if isinstance(outcome, Lost) else {}
    less |= {"retry_after_s": None} if isinstance(outcome, Busy) else {}
    less |= {"curable": False} if isinstance(outcome, Misrouted) else {}
    assert (caught.value.outcome, caught.value.attempts) == (attrs.evolve(outcome, **less), ())


@pytest.mark.parametrize(
    ("outcome", "status", "kind", "code"),
    [
        (OUTCOMES[0], 400, "invalid_request_error", "context_length_exceeded"),
        (OUTCOMES[1], 422, "invalid_request_error", "rejected"),
        (OUTCOMES[2], 400, "invalid_request_error", "rejected"),
        (OUTCOMES[4], 400, "invalid_request_error", "rejected"),
        (OUTCOMES[5], 400, "invalid_request_error", "rejected"),
        (OUTCOMES[6], 502, "server_error", "lost"),
        (OUTCOMES[7], 503, "server_error", "busy"),
        (OUTCOMES[8], 502, "server_error", "failed"),
        (OUTCOMES[9], 502, "server_error", "misrouted"),
        (OUTCOMES[10], 504, "server_error", "timeout"),
    ],
)
def test_a_foreign_client_is_told_in_openais_words(outcome: Outcome, status: int, kind: str, code: str):
    told, body = error_body(RequestFailed(outcome, ATTEMPTS), detail=False)
    document = json.loads(body)
    error = document.pop("error")
    assert not document
    assert (told, error["type"], error["code"]) == (status, kind, code)
    assert error["message"] == str(RequestFailed(outcome, ATTEMPTS))
    assert error["http_status"] == outcome.http_status
    assert b"\n" not in body


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (PoisonRequest("lost 21 times"), 502),
        (UnknownSession("the rollout is over"), 410),
        (UsageError("no endpoint can hold 8 slots"), 400),
        (UnknownModel("no pool has it"), 404),
        (NoEndpointsError("none within 600 s"), 503),
        (Stopping("no more requests"), 503),
    ],
)
def test_what_is_no_outcome_is_raised_alike_on_the_other_side(error: Exception, status: int):
    told, body = error_body(error)
    assert told == status
    with pytest.raises(type(error), match=f"^{error}$"):
        read_reply(told, body)


def test_a_bug_is_told_and_fails_the_request():
    status, body = error_body(KeyError("oops"))
    assert (status, json.loads(body)["error"]["message"]) == (500, "KeyError: 'oops'")
    with pytest.raises(RequestFailed, match="oops") as caught:
        read_reply(status, body)
    assert isinstance(caught.value.outcome, Failed)
    assert json.loads(error_body(ValueError())[1])["error"]["message"] == "ValueError"


def test_of_a_bug_a_foreign_client_is_told_no_more_than_its_kind():
    status, body = error_body(KeyError("sk-secret"), detail=False)
    said = "the gateway has failed (KeyError): its log says more"
    assert (status, json.loads(body)["error"]["message"]) == (500, said)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, refusal_body("no such token", code="token", kind="invalid_request_error"), Misrouted),
        (413, refusal_body("too large", code="too_large", kind="invalid_request_error"), Rejected),
        (500, b"\xff", Failed),
        (410, b"[]", Misrouted),
        (410, b'{"error": {"code": "poison_request", "message": "of another status"}}', Misrouted),
        (502, b'{"error": "x", "scavenge": {"outcome": "lost"}}', Failed),
        (502, b'{"error": "x", "scavenge": {"outcome": "lost", "message": "m", "cause": "none"}}', Failed),
        (502, b'{"error": "x", "scavenge": {"outcome": "ok", "attempts": 3}}', Failed),
        (502, b'{"error": "x", "scavenge": {"outcome": ["ok"], "attempts": [3]}}', Failed),
        (502, b'{"error": "x", "scavenge": [1]}', Failed),
        (502, b'{"error": {"code": "lost", "message": "of no gateway"}}', Failed),
        (502, b'{"error": {"code": "strange", "http_status": 500}}', Failed),
        (502, b'{"error": {"code": "ok", "http_status": [1]}}', Failed),
        (502, b'{"error": {"code": "busy", "http_status": [1], "message": null}}', Busy),
        (200, b"<html>", Failed),
        (200, b'{"choices": []}', Failed),
        (200, b'{"choices": [{"finish_reason": "stop"}], "scavenge": {"attempts": [{"endpoint": "x"}]}}', Failed),
    ],
)
def test_what_is_no_answer_of_ours_fails_the_request(status: int, body: bytes, kind: type):
    with pytest.raises(RequestFailed) as caught:
        read_reply(status, body)
    assert isinstance(caught.value.outcome, kind)
    assert caught.value.attempts == ()


@given(st.integers(100, 599), st.binary() | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["error", "scavenge", "outcome", "attempts", "code", "message", "choices", "cause"]), inner
    ),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_answer_whatever_raises_anything_else(status: int, body: bytes):
    with suppress(ScavengeError):
        read_reply(status, body)


def test_a_request_has_its_messages_and_options_and_asks_for_no_stream():
    messages = [{"role": "user", "content": "hi"}]
    body = request_body(messages, {"temperature": 0.5, "n": 2, "stream": True, "stream_options": {}, "model": "mine"})
    assert json.loads(body) == {"messages": messages, "temperature": 0.5, "n": 2, "model": ""}


@pytest.mark.parametrize(("messages", "options"), [([{"content": {1}}], {}), ([], {"stop": object()})])
def test_a_request_that_is_no_json_is_rejected_as_it_is_in_process(messages: Any, options: Any):
    with pytest.raises(RequestFailed, match="the request cannot be written as JSON") as caught:
        request_body(messages, options)
    assert isinstance(caught.value.outcome, Rejected)


def test_an_outcome_that_is_none_of_a_failure_is_told_all_the_same():
    status, body = error_body(RequestFailed(Ok(Reply("x", "stop")), ()))
    assert status == 502
    with pytest.raises(RequestFailed):
        read_reply(status, body)
