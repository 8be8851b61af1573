"""What the gateway answers to a request for the model, and what a worker's session reads out of it. Pure.

To any OpenAI client the answers are what it knows: the server's own reply, or an error ``{"error": {"message", "type",
"code"}}`` with a fitting status. Whoever asks for the detail finds in the key ``scavenge`` beside that what makes the
other side's result the same as that of :meth:`Session.chat` in the run's own process: the attempts, and the outcome a
request ended with. Each body of ours is one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs

from scavenge.calls import Relayed
from scavenge.core.errorbody import Wording
from scavenge.core.outcome import outcome_of_status
from scavenge.core.plainjson import read_json_fast, write_json
from scavenge.core.reply import outcome_of_document
from scavenge.core.request_body import encode_request
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
    Reply,
    RequestFailed,
    TimedOut,
)

OURS = "scavenge"
"""The key beside what OpenAI's protocol has."""
DETAIL_FIELD = "X-Scavenge-Detail"
"""The header by which a client asks for that key ..."""
DETAIL = "attempts"
"""... and its value."""

_UPSTREAM = "upstream"
"""Where under :data:`OURS` is what the server itself had put there."""
_OUTCOMES: dict[str, type[Lost | Busy | Failed | Misrouted | Rejected | TimedOut]] = {
    kind.name: kind for kind in (Lost, Busy, Failed, Misrouted, Rejected, TimedOut)
}
_STATUSES = {"lost": 502, "busy": 503, "failed": 502, "misrouted": 502, "timeout": 504}
"""What a client is told of a request that was given up: nothing of it is the client's fault."""
_BAD_REQUEST = 400
_WITH_A_FIELD = frozenset({401, 405, 407, 426})
"""Statuses that need a header with what would be right (RFC 9110, 15.5), which only their server knows."""
_PLAIN_ERRORS: dict[str, tuple[type[ScavengeError], int]] = {
    "poison_request": (PoisonRequest, 502),
    "unknown_session": (UnknownSession, 410),
    "usage_error": (UsageError, _BAD_REQUEST),
    "model_not_found": (UnknownModel, 404),
    "no_endpoints": (NoEndpointsError, 503),
    "stopping": (Stopping, 503),
}
"""By the code that a client sees: what is told by its text alone."""
_TOO_LONG = "context_length_exceeded"
_COUNTED = re.compile(r"\A[a-z]+(?: \(HTTP \d+\))? after \d+ attempts?: ")
"""What :class:`scavenge.RequestFailed` puts before the message of its outcome."""
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


def reply_body(relayed: Relayed, *, detail: bool = True) -> bytes:
    """The body of a reply with status 200: as it came; with *detail*, ``raw`` and the attempts in a key of ours."""
    reply = relayed.reply
    if not detail:
        return write_json(document_of(reply)) if reply.body is None else reply.body
    raw = document_of(reply)
    ours: dict[str, object] = {"attempts": _plain_attempts(relayed.attempts)}
    if OURS in raw:
        ours[_UPSTREAM] = raw[OURS]
    return write_json({**raw, OURS: ours})


def document_of(reply: Reply) -> Json:
    """A reply in the shape of OpenAI's, also where it came without its own."""
    return reply.raw if "choices" in reply.raw else _put_together(reply)


def error_body(exc: Exception, *, detail: bool = True) -> tuple[int, bytes]:
    """The status and the body for what a call raised.

    What none should raise is a 500, of which the text goes only to whoever asks for the *detail*: it is nobody's words
    for clients, and may have a key in it.
    """
    if isinstance(exc, RequestFailed):
        return _failed_body(exc, detail=detail)
    for code, (kind, status) in _PLAIN_ERRORS.items():
        if isinstance(exc, kind):
            return status, refusal_body(str(exc), code=code, kind=kind_of(status))
    name = type(exc).__name__
    told = f"{name}: {exc}".removesuffix(": ") if detail else f"the gateway has failed ({name}): its log says more"
    return 500, refusal_body(told, code="internal_error")


def refusal_body(message: str, *, code: str, kind: str = "server_error") -> bytes:
    """An error in OpenAI's shape, of a *kind* (``invalid_request_error``, …) and with a *code* of ours."""
    return write_json({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _failed_body(exc: RequestFailed, *, detail: bool) -> tuple[int, bytes]:
    outcome = exc.outcome
    status = _status_of(outcome)
    too_long = isinstance(outcome, Rejected) and outcome.context_length
    error = {
        "message": str(exc),
        "type": kind_of(status),
        "param": None,
        "code": _TOO_LONG if too_long else outcome.name,
        "http_status": outcome.http_status,
    }
    if not detail:
        return status, write_json({"error": error})
    ours = {"outcome": outcome.name, **_plain_outcome(outcome), "attempts": _plain_attempts(exc.attempts)}
    return status, write_json({"error": error, OURS: ours})


def _status_of(outcome: Outcome) -> int:
    if not isinstance(outcome, Rejected):
        return _STATUSES.get(outcome.name, 502)
    theirs = outcome.http_status or _BAD_REQUEST
    fits = 400 <= theirs < 500 and theirs not in _WITH_A_FIELD  # some say so in a reply with status 200
    return theirs if fits else _BAD_REQUEST


def kind_of(status: int) -> str:
    """The ``type`` of an error in OpenAI's shape."""
    return "server_error" if status >= 500 else "invalid_request_error"


def _plain_outcome(outcome: Outcome) -> dict[str, object]:
    fields = {name: value for name, value in attrs.asdict(outcome, recurse=False).items() if name != "reply"}
    if isinstance(outcome, Lost):
        fields["cause"] = outcome.cause.value
    return fields


def _plain_attempts(attempts: tuple[Attempt, ...]) -> list[dict[str, object]]:
    return [attrs.asdict(attempt, recurse=False) for attempt in attempts]


def _put_together(reply: Reply) -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": reply.text}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = list(reply.tool_calls)
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    usage = {
        "prompt_tokens": reply.usage.prompt_tokens,
        "completion_tokens": reply.usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.usage.cached_tokens},
    }
    return {**reply.raw, "object": "chat.completion", "choices": [choice], "usage": usage}


# --- the worker's side


def read_reply(http_status: int, body: bytes) -> Completion:
    """The completion of a reply.

    Raises what ``chat`` raised on the other side: :class:`scavenge.RequestFailed`, :class:`scavenge.PoisonRequest`,
    :class:`scavenge.UsageError`, :class:`scavenge.errors.UnknownSession`, :class:`scavenge.errors.UnknownModel`,
    :class:`scavenge.NoEndpointsError` or :class:`scavenge.errors.Stopping`. Anything that is no answer of ours is a
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
    outcome = _read_outcome(ours) or _read_plain_outcome(error)
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


def _read_plain_outcome(error: object) -> Outcome | None:
    """The outcome as far as it is told without the detail: its kind, its text and the server's status."""
    if not isinstance(error, Mapping) or "http_status" not in error:
        return None
    too_long = error.get("code") == _TOO_LONG
    kind: Callable[..., Outcome] | None = Rejected if too_long else _OUTCOMES.get(str(error.get("code")))
    if kind is None:
        return None
    text = _COUNTED.sub("", str(error.get("message")), count=1)
    status = error["http_status"] if isinstance(error["http_status"], int) else None
    if kind is Rejected:
        return Rejected(text, status, too_long)
    return TimedOut(text) if kind is TimedOut else kind(text, http_status=status)


def _read_attempts(told: object) -> tuple[Attempt, ...]:
    try:
        return tuple(Attempt(**_fields_of(Attempt, one)) for one in cast("list[dict[str, Any]]", told or []))
    except (TypeError, AttributeError):
        return ()


def _fields_of(cls: Callable[..., object], table: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in attrs.fields(cast("type[attrs.AttrsInstance]", cls))}
    return {name: value for name, value in table.items() if name in names}
