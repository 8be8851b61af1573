"""What the gateway answers to a request for the model, and what a worker's session reads out of it. Pure.

To any OpenAI client the answers are what it knows: a chat completion, or an error ``{"error": {"message", "type",
"code"}}`` with a fitting status. The key ``scavenge`` beside that has what makes the other side's result the same as
that of :meth:`Session.chat` in the run's own process: the attempts, and the outcome a request ended with. Each body is
one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs

from scavenge.core.chat import encode_request
from scavenge.core.errorbody import Wording
from scavenge.core.outcome import outcome_of_status
from scavenge.core.plainjson import read_json_fast, write_json
from scavenge.core.reply import outcome_of_document
from scavenge.errors import PoisonRequest, ScavengeError, UnknownSession, UsageError
from scavenge.types import (
    ApiType,
    Attempt,
    Busy,
    ChatRequest,
    Completion,
    Failed,
    Json,
    Lost,
    LostCause,
    Messages,
    Misrouted,
    Ok,
    Outcome,
    Rejected,
    RequestFailed,
    TimedOut,
)

OURS = "scavenge"
"""The key beside what OpenAI's protocol has."""

_UPSTREAM = "upstream"
"""Where under :data:`OURS` is what the server itself had put there."""
_OUTCOMES: dict[str, type[Lost | Busy | Failed | Misrouted | Rejected | TimedOut]] = {
    kind.name: kind for kind in (Lost, Busy, Failed, Misrouted, Rejected, TimedOut)
}
_STATUSES = {"lost": 502, "busy": 503, "failed": 502, "misrouted": 502, "timeout": 504}
"""What a client is told of a request that was given up: nothing of it is the client's fault."""
_BAD_REQUEST = 400
_PLAIN_ERRORS: dict[str, tuple[type[PoisonRequest | UnknownSession | UsageError], int]] = {
    "poison_request": (PoisonRequest, 502),
    "unknown_session": (UnknownSession, 410),
    "usage_error": (UsageError, _BAD_REQUEST),
}
"""By the code that a client sees: what is told by its text alone."""
_NO_WORDING = Wording()


def request_body(messages: Messages, options: Json) -> bytes:
    """The body of a request to the gateway.

    Raises :class:`scavenge.RequestFailed` when it cannot be written as JSON, with the outcome that it has elsewhere.
    """
    body = encode_request(ApiType.CHAT_COMPLETIONS, "", ChatRequest(messages, options, stream=False))
    if isinstance(body, Rejected):
        raise RequestFailed(body, ())
    return body


# --- the gateway's side


def reply_body(completion: Completion) -> bytes:
    """The body of a reply with status 200: ``raw``, with the attempts in a key of ours."""
    raw = completion.raw if "choices" in completion.raw else _document_of(completion)
    ours: dict[str, object] = {"attempts": _plain_attempts(completion.attempts)}
    if OURS in raw:
        ours[_UPSTREAM] = raw[OURS]
    return write_json({**raw, OURS: ours}, _no_note)


def error_body(exc: Exception) -> tuple[int, bytes]:
    """The status and the body for what a session's ``chat`` raised; what none should raise is a 500."""
    if isinstance(exc, RequestFailed):
        return _failed_body(exc)
    for code, (kind, status) in _PLAIN_ERRORS.items():
        if isinstance(exc, kind):
            return status, refusal_body(str(exc), code=code, kind=_kind_of(status))
    return 500, refusal_body(f"{type(exc).__name__}: {exc}".removesuffix(": "), code="internal_error")


def refusal_body(message: str, *, code: str, kind: str = "server_error") -> bytes:
    """An error in OpenAI's shape, of a *kind* (``invalid_request_error``, …) and with a *code* of ours."""
    return write_json({"error": {"message": message, "type": kind, "param": None, "code": code}}, _no_note)


def _failed_body(exc: RequestFailed) -> tuple[int, bytes]:
    outcome = exc.outcome
    status = _status_of(outcome)
    too_long = isinstance(outcome, Rejected) and outcome.context_length
    error = {
        "message": str(exc),
        "type": _kind_of(status),
        "param": None,
        "code": "context_length_exceeded" if too_long else outcome.name,
        "http_status": outcome.http_status,
    }
    ours = {"outcome": outcome.name, **_plain_outcome(outcome), "attempts": _plain_attempts(exc.attempts)}
    return status, write_json({"error": error, OURS: ours}, _no_note)


def _status_of(outcome: Outcome) -> int:
    if not isinstance(outcome, Rejected):
        return _STATUSES.get(outcome.name, 502)
    theirs = outcome.http_status or _BAD_REQUEST
    return theirs if 400 <= theirs < 500 else _BAD_REQUEST  # some say so in a reply with status 200


def _kind_of(status: int) -> str:
    return "server_error" if status >= 500 else "invalid_request_error"


def _plain_outcome(outcome: Outcome) -> dict[str, object]:
    fields = {name: value for name, value in attrs.asdict(outcome, recurse=False).items() if name != "reply"}
    if isinstance(outcome, Lost):
        fields["cause"] = outcome.cause.value
    return fields


def _plain_attempts(attempts: tuple[Attempt, ...]) -> list[dict[str, object]]:
    return [attrs.asdict(attempt, recurse=False) for attempt in attempts]


def _document_of(completion: Completion) -> dict[str, object]:
    """A reply in the shape of OpenAI's, for one that came without its own."""
    message: dict[str, object] = {"role": "assistant", "content": completion.text}
    if completion.reasoning is not None:
        message["reasoning_content"] = completion.reasoning
    if completion.tool_calls:
        message["tool_calls"] = list(completion.tool_calls)
    choice = {"index": 0, "message": message, "finish_reason": completion.finish_reason}
    usage = {
        "prompt_tokens": completion.usage.prompt_tokens,
        "completion_tokens": completion.usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": completion.usage.cached_tokens},
    }
    return {**completion.raw, "object": "chat.completion", "choices": [choice], "usage": usage}


def _no_note(document: dict[str, Any], sentence: str) -> None:
    """What comes from JSON can be written as JSON; what a double in a test put there is written as text."""


# --- the worker's side


def read_reply(http_status: int, body: bytes) -> Completion:
    """The completion of a reply.

    Raises what ``chat`` raised on the other side: :class:`scavenge.RequestFailed`, :class:`scavenge.PoisonRequest`,
    :class:`scavenge.UsageError` or :class:`scavenge.errors.UnknownSession`. Anything that is no answer of ours is a
    :class:`scavenge.RequestFailed` with the outcome that it would have from a server.
    """
    document = _read(body)
    ours = document.pop(OURS, None)
    ours = ours if isinstance(ours, dict) else {}
    attempts = _read_attempts(ours.get("attempts"))
    if http_status != 200:
        raise _error(http_status, document, ours, attempts, body)
    if _UPSTREAM in ours:
        document[OURS] = ours[_UPSTREAM]
    outcome = outcome_of_document(document, http_status, _NO_WORDING, streamed=False)
    if not isinstance(outcome, Ok):
        raise RequestFailed(outcome, attempts)
    reply = outcome.reply
    return Completion(
        reply.text, reply.finish_reason, reply.reasoning, reply.tool_calls, reply.usage, attempts, reply.raw
    )


def _read(body: bytes) -> dict[str, Any]:
    try:
        document = read_json_fast(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _error(
    http_status: int, document: Json, ours: dict[str, Any], attempts: tuple[Attempt, ...], body: bytes
) -> ScavengeError:
    error = document.get("error")
    if isinstance(error, Mapping) and (plain := _PLAIN_ERRORS.get(str(error.get("code")))) is not None:
        kind, status = plain
        if status == http_status:
            return kind(str(error.get("message")))
    outcome = _read_outcome(ours)
    if outcome is None:
        outcome = outcome_of_status(http_status, {}, body, _NO_WORDING, 0.0)
    return RequestFailed(outcome, attempts)


def _read_outcome(ours: dict[str, Any]) -> Outcome | None:
    kind = _OUTCOMES.get(str(ours.get("outcome")))
    if kind is None:
        return None
    fields = _fields_of(kind, ours)
    try:
        if "cause" in fields:
            fields["cause"] = LostCause(fields["cause"])
        return kind(**fields)
    except (TypeError, ValueError):
        return None


def _read_attempts(told: object) -> tuple[Attempt, ...]:
    try:
        return tuple(Attempt(**_fields_of(Attempt, one)) for one in cast("list[dict[str, Any]]", told or []))
    except (TypeError, AttributeError):
        return ()


def _fields_of(cls: Callable[..., object], table: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in attrs.fields(cast("type[attrs.AttrsInstance]", cls))}
    return {name: value for name, value in table.items() if name in names}
