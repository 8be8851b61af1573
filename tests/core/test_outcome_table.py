"""The table of outcomes, row by row."""

from __future__ import annotations

import json

import pytest

from scavenge.core.errorbody import MESSAGE_CHARACTERS, Wording, error_of, redact
from scavenge.core.outcome import (
    RETRY_AFTER_MAX_S,
    outcome_of_finish,
    outcome_of_status,
    retry_after_s,
    while_leaving,
)
from scavenge.types import Busy, Failed, Lost, Misrouted, Ok, Outcome, Rejected, Reply, TimedOut

WORDING = Wording("POST http://h/v1/chat/completions", ("sk-secret-123",))


def outcome(status: int, body: object = b"", **headers: str) -> Outcome:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return outcome_of_status(status, {k.replace("_", "-"): v for k, v in headers.items()}, raw, WORDING, 1_000_000.0)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, Busy) for status in (429, 503, 529)),
        *((status, Failed) for status in (500, 501, 502, 504, 505, 520, 599, 408, 409, 425, 499)),
        *((status, Misrouted) for status in (401, 402, 403, 404, 405, 407, 410, 421, 300, 301, 302, 307, 308)),
        *((status, Rejected) for status in (400, 413, 422, 406, 411, 414, 415, 417, 418, 431, 451)),
    ],
)
def test_each_status_has_its_outcome(status: int, kind: type) -> None:
    found = outcome(status, b"")
    assert type(found) is kind
    assert not isinstance(found, Ok)
    assert found.http_status == status


def test_what_may_pass_by_itself_is_told_from_what_does_not() -> None:
    curable = {status for status in (301, 401, 402, 403, 404, 405, 407) if outcome(status).curable}  # type: ignore[union-attr]
    assert curable == {301, 404, 405}


def test_messages_say_what_was_tried() -> None:
    assert "POST http://h/v1/chat/completions" in str(outcome(404, {"error": "no such model"}).message)
    moved = str(outcome(308, b"", location="https://h/v1/").message)
    assert "POST http://h/v1/chat/completions redirects to https://h/v1/" in moved


@pytest.mark.parametrize(
    ("body", "message", "code", "kind"),
    [
        ({"error": {"message": "m", "type": "T", "code": "c"}}, "m", None, "t c"),
        ({"error": {"message": "m", "code": 429}}, "m", 429, ""),
        ({"error": {"message": "m", "code": "503"}}, "m", 503, None),
        ({"error": {"message": "m", "code": True}}, "m", None, ""),
        ({"error": {"message": "m", "code": 7}}, "m", None, ""),
        ({"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, "m", 400, "badrequesterror"),
        ({"error": "m", "error_type": "validation"}, "m", None, "validation"),
        ({"error": "m"}, "m", None, ""),
        ({"detail": "m"}, "m", None, ""),
        ({"detail": [{"loc": ["body", "n"], "msg": "m", "input": "the prompt"}]}, "body.n: m", None, ""),
        ({"detail": [{"msg": "m"}, "text"]}, "m; text", None, ""),
        ({"error": {"message": {"message": "m"}}}, "m", None, ""),
        ([{"error": {"message": "m", "code": 429, "status": "RESOURCE_EXHAUSTED"}}], "m", 429, "resource_exhausted"),
        ({"error": {"code": 400, "message": "m", "type": "exceed_context_size_error"}}, "m", 400, None),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, "m", None, "overloaded_error"),
    ],
)
def test_the_error_bodies_of_all_servers_are_understood(
    body: object, message: str, code: int | None, kind: str | None
) -> None:
    facts = error_of(json.dumps(body).encode())
    assert (facts.message, facts.code) == (message, code)
    assert kind is None or facts.kind == kind


def test_bodies_that_are_no_error_of_a_known_shape_are_shown() -> None:
    assert error_of(b"plain text").message == "plain text"
    assert error_of(b'{"a": 1}').message == '{"a": 1}'
    assert error_of(b'"text"').message == '"text"'
    assert error_of(b'data: {"error": "m"}\n\n').message == "m"
    assert "an error without a message" in error_of(b'{"error": {"a": 1}}').message
    assert error_of(b"<html><title> 502\nBad </title></html>").message == "an HTML page with the title '502\\nBad'"
    assert error_of(b"<html>x").message == "an HTML page: <html>x"
    assert error_of(b"\xff\xfe").message


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, {"error": {"message": "Rate limit reached"}}),
        (500, {"error": "model is overloaded"}),
        (502, b"no available workers"),
        (500, {"error": {"message": "m", "type": "overloaded_error"}}),
        (400, {"error": {"message": "m", "type": "rate_limit_error"}}),
    ],
)
def test_a_body_may_say_that_the_server_is_busy(status: int, body: object) -> None:
    assert isinstance(outcome(status, body), Busy)


@pytest.mark.parametrize("code", [429, 503, 529, "429"])
@pytest.mark.parametrize("status", [500, 502, 504, 599])
def test_a_server_error_whose_body_has_a_busy_code_is_busy(status: int, code: int | str) -> None:
    found = outcome(status, {"error": {"message": "m", "code": code}}, retry_after="3")
    assert found == Busy(f"HTTP {status}: m", status, 3.0)


@pytest.mark.parametrize("code", [400, 401, 404, 408, 500, 502])
def test_another_code_in_the_body_of_a_server_error_changes_nothing(code: int) -> None:
    assert outcome(500, {"error": {"message": "m", "code": code}}) == Failed("HTTP 500: m", 500)
    assert isinstance(outcome(503, {"error": {"message": "m", "code": code}}), Busy)


@pytest.mark.parametrize(("status", "kind"), [(400, Rejected), (422, Rejected), (401, Misrouted), (404, Misrouted)])
def test_a_busy_code_in_the_body_of_a_client_error_does_not_count(status: int, kind: type) -> None:
    assert isinstance(outcome(status, {"error": {"message": "m", "code": 503}}), kind)


def test_a_rejection_that_repeats_the_prompt_does_not_make_the_server_busy() -> None:
    assert isinstance(outcome(400, {"error": {"message": "bad: 'the rate limit is overloaded'"}}), Rejected)
    assert isinstance(outcome(500, b"error: no matching overloaded function found"), Failed)


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        "request (9000 tokens) exceeds the available context size (8192 tokens)",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "the request exceeds the max_model_len of 4096",
    ],
)
def test_a_prompt_that_does_not_fit_is_told_from_other_rejections(text: str) -> None:
    found = outcome(400, {"error": {"message": text}})
    assert isinstance(found, Rejected)
    assert found.context_length


def test_kinds_tell_of_the_context_and_the_model_too() -> None:
    found = outcome(400, {"error": {"message": "m", "code": "context_length_exceeded"}})
    assert isinstance(found, Rejected)
    assert found.context_length
    assert not outcome(400, {"error": "temperature must be at most 2"}).context_length  # type: ignore[union-attr]
    assert isinstance(outcome(400, {"error": {"message": "m", "code": "model_not_found"}}), Misrouted)


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "99999999999999999999"}, RETRY_AFTER_MAX_S),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after": "Mon, 12 Jan 1970 13:46:50 GMT"}, 10.0),
        ({"retry-after": "Mon, 12 Jan 1970 13:46:50 -0000"}, 10.0),
        ({"retry-after": "Mon, 12 Jan 1970 13:46:30 GMT"}, 0.0),
        ({"retry-after": "Mon, 12 Jan 9999 13:46:30 GMT"}, RETRY_AFTER_MAX_S),
        ({"retry-after": "Mon, 99 Jan 1970 13:46:30 GMT"}, None),
    ],
)
def test_retry_after_in_all_its_forms(headers: dict[str, str], pause_s: float | None) -> None:
    assert retry_after_s(headers, 1_000_000.0) == pause_s


def test_a_busy_server_is_given_the_pause_it_asks_for() -> None:
    found = outcome(429, b"", retry_after="3")
    assert isinstance(found, Busy)
    assert found.retry_after_s == 3.0


def test_a_gateway_that_fails_while_the_endpoint_leaves_is_a_loss() -> None:
    for status in (502, 504):
        left = while_leaving(outcome(status))
        assert isinstance(left, Lost)
        assert left.http_status == status
    others = [outcome(500), outcome(429), Ok(Reply("", "stop")), TimedOut("t"), Failed("no status")]
    assert [while_leaving(other) for other in others] == others


def test_finish_reasons() -> None:
    for streamed in (False, True):
        assert outcome_of_finish("stop", 200, WORDING, streamed=streamed) is None
        assert isinstance(outcome_of_finish("abort", 200, WORDING, streamed=streamed), Lost)
        assert isinstance(outcome_of_finish("sudden", 200, WORDING, streamed=streamed), Failed)
        assert isinstance(outcome_of_finish({"a": []}, 200, WORDING, streamed=streamed), Failed)
    told = outcome_of_finish("sk-secret-123", 200, WORDING, streamed=True)
    assert told is not None
    assert "sk-secret" not in told.message
    assert isinstance(outcome_of_finish(None, 200, WORDING, streamed=True), Lost)
    assert isinstance(outcome_of_finish("", 200, WORDING, streamed=False), Failed)


def test_messages_are_one_bounded_line_without_secrets() -> None:
    found = outcome(401, b"wrong key:\n\x1b[31m sk-secret-123\x00 " + b"x" * 100_000)
    message = str(found.message)
    assert len(message) == MESSAGE_CHARACTERS
    assert "[secret]" in message
    assert "sk-secret" not in message
    assert message.isprintable()
    assert str(outcome(400, b"").message) == "HTTP 400: no text"


@pytest.mark.parametrize(
    "text",
    ['a/b+c"d=1 here', r'"a/b+c\"d=1"', r"a\/b+c\"d=1", "a%2Fb%2Bc%22d%3D1", "a/b%2Bc%22d%3D1", "YS9iK2MiZD0x"],
)
def test_a_secret_is_found_in_every_dress(text: str) -> None:
    assert "[secret]" in redact(text, ['a/b+c"d=1'])


def test_longer_secrets_go_first_and_placeholders_stay() -> None:
    assert redact("token-extra token", ["token", "token-extra"]) == "[secret] [secret]"
    assert redact("abc", ["abc", ""]) == "abc"
