"""The table of outcomes: what the facts of one exchange mean for the endpoint and for the request. Pure.

An HTTP status is the first fact. Under 200, the code of an error in the body counts as if it were the status; in a
stream, and under a 5xx, only a code that means busy does: servers number what breaks while they generate as they like,
vLLM with 400. What a body *says* counts only where the server is at fault anyway (5xx, or 200 with an error): a 400 may
repeat the prompt, and a prompt can say "rate limit".

Finish reasons: a reply is whole with a known one (:data:`FINISHED`). ``abort`` and its like (:data:`ABORTED`) come from
servers that were told to go. Any other is a fault of the server: never a result, and not worth an ejection.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from scavenge.core.errorbody import MESSAGE_CHARACTERS, ErrorFacts, Wording, error_of
from scavenge.types import Busy, Failed, Lost, Misrouted, Outcome, Rejected

FINISHED = frozenset(
    {
        *("stop", "length", "tool_calls", "function_call", "content_filter"),  # OpenAI
        *("eos", "eos_token", "stop_sequence"),  # TGI and others that pass on their own names
        *("end_turn", "max_tokens", "tool_use"),  # Anthropic's, from gateways
        "repetition",  # vLLM, when its detector of repeated text ends a reply
    }
)
ABORTED = frozenset({"abort", "aborted", "cancelled", "canceled", "error", "insufficient_system_resource"})

RETRY_AFTER_MAX_S = 3600.0
"""The longest pause that is taken at its word; after it the endpoint is asked again."""

_NO_SUCH_API = frozenset({404, 405, 410, 501})
_NO_SUCH_API_TEXT = re.compile(r"\b(?:unknown|unexpected|no such) (?:endpoint|path|route)\b", re.IGNORECASE)
_BUSY_STATUS = frozenset({429, 503, 529})
_WRONG_PLACE = frozenset({404, 405, 410, 421})
_NOT_LET_IN = frozenset({401, 402, 403, 407})
_THEIR_FAULT = frozenset({408, 409, 425, 499})
_BUSY_KIND = re.compile(r"rate_?limit|overloaded_error|too_many_requests|resource_exhausted|engine_overloaded")
_BUSY_TEXT = re.compile(
    r"\brate[ -]?limit|too many requests|no available (?:worker|server|replica)|"
    r"\b(?:is|are|currently|temporarily) (?:overloaded|busy|at capacity)|queue is full",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context[_ -](?:length|window|size)|exceed_context_size|maximum (?:model|input|sequence) length|max_model_len|"
    r"max_total_tokens|max_input_(?:length|tokens)|`?inputs`? tokens \+ `?max_new_tokens`?|"
    r"(?:prompt|input|inputs|sequence)\b.{0,40}\b(?:is|are) (?:too long|longer than)|too many (?:input )?tokens",
    re.IGNORECASE | re.DOTALL,
)


def outcome_of_status(
    status: int, headers: Mapping[str, str], body: bytes, wording: Wording, now_time: float
) -> Outcome:
    """The outcome of a reply with a status other than 2xx; header names are in lower case, *now_time* is Unix time."""
    if 300 <= status < 400:
        where = headers.get("location", "nowhere")
        message = f"HTTP {status}: {wording.tried} redirects to {where}; set the endpoint's url to where it ends"
        return Misrouted(wording.line(message), status, curable=True)
    facts = error_of(body)
    meant = facts.code if status >= 500 and facts.code in _BUSY_STATUS else status
    pause_s = retry_after_s(headers, now_time)
    return outcome_of_error(meant, facts, wording, pause_s=pause_s, http_status=status, said=f"HTTP {status}")


def outcome_of_error(
    status: int,
    facts: ErrorFacts,
    wording: Wording,
    *,
    pause_s: float | None = None,
    http_status: int | None = None,
    said: str,
) -> Busy | Misrouted | Failed | Rejected:
    """What an error means by *status*, the HTTP status or what stands for it in the body; *said* begins the message."""
    at_fault = status >= 500
    message = wording.line(f"{said}: {facts.message or 'no text'}")
    if status in _BUSY_STATUS or _BUSY_KIND.search(facts.kind) or (at_fault and _BUSY_TEXT.search(facts.message)):
        return Busy(message, http_status, pause_s)
    if status in _WRONG_PLACE or "model_not_found" in facts.kind:
        tried = f" ({wording.tried})" if wording.tried else ""
        return Misrouted(wording.line(f"{said}{tried}: {facts.message or 'no text'}"), http_status, curable=True)
    if status in _NOT_LET_IN:
        return Misrouted(message, http_status)
    if at_fault or status in _THEIR_FAULT:
        return Failed(message, http_status)
    return Rejected(message, http_status, context_length=about_context(facts))


def outcome_of_error_in_reply(facts: ErrorFacts, http_status: int, wording: Wording, *, streamed: bool) -> Outcome:
    """The outcome of an error in the body of a reply that began with success.

    With a code it is what that status would be; without one, what its text says; else ``failed``. In a stream it is
    ``lost`` whatever the code, since that is how an engine dies under its server, unless the prompt does not fit or the
    server is busy.
    """
    code = facts.code
    said = f"HTTP {http_status} with an error {code}" if code else f"HTTP {http_status} with an error"
    busy = code in _BUSY_STATUS or _BUSY_KIND.search(facts.kind) is not None
    if (streamed or code is None) and not busy and about_context(facts):
        return Rejected(wording.line(f"{said}: {facts.message}"), http_status, context_length=True)
    status = 500 if code is None or (streamed and not busy) else code
    outcome = outcome_of_error(status, facts, wording, http_status=http_status, said=said)
    if streamed and not isinstance(outcome, Busy):
        return Lost(outcome.message, http_status=http_status)
    return outcome


def outcome_of_finish(reason: object, http_status: int, wording: Wording, *, streamed: bool) -> Lost | Failed | None:
    """What a finish reason means; ``None`` for one that says that the reply is whole."""
    if isinstance(reason, str) and reason in FINISHED:
        return None
    if reason is None or reason == "":
        if streamed:
            return Lost("the stream ended without a finish reason", http_status=http_status)
        return Failed("the reply has no finish reason", http_status)
    if isinstance(reason, str) and reason in ABORTED:
        return Lost(f"the server ended the reply with finish reason {reason!r}", http_status=http_status)
    shown = repr(reason) if isinstance(reason, str) else f"of type {type(reason).__name__}"  # others may be deep
    return Failed(wording.line(f"the reply has the unknown finish reason {shown}"), http_status)


def while_leaving(outcome: Outcome) -> Outcome:
    """The same outcome on an endpoint that drains or was removed: what a gateway says of it then is a loss."""
    if isinstance(outcome, Failed) and outcome.http_status in (502, 504):
        return Lost(f"{outcome.message} (while the endpoint was leaving)", http_status=outcome.http_status)
    return outcome


def of_another_api(outcome: Outcome) -> Outcome:
    """The same outcome of a request to an API that the endpoint is not listed for.

    That it has no such API says nothing against it: the request came to the wrong place, and no other server of its
    kind would be the right one.
    """
    if not isinstance(outcome, Misrouted | Failed):
        return outcome
    said = isinstance(outcome, Failed) and _NO_SUCH_API_TEXT.search(outcome.message) is not None  # LM Studio's 200
    if not said and outcome.http_status not in _NO_SUCH_API:
        return outcome
    message = f"the server is listed for another API and does not have this one: {outcome.message}"
    return Rejected(message[:MESSAGE_CHARACTERS], outcome.http_status)


def about_context(facts: ErrorFacts) -> bool:
    """Whether the error says that the prompt does not fit."""
    return _CONTEXT.search(facts.kind) is not None or _CONTEXT.search(facts.message) is not None


def retry_after_s(headers: Mapping[str, str], now_time: float) -> float | None:
    """Seconds to wait by ``Retry-After`` (seconds or HTTP date, RFC 9110 10.2.3) or ``retry-after-ms`` (OpenAI's)."""
    seconds = _number(headers.get("retry-after-ms"))
    pause_s = seconds / 1000 if seconds is not None else None
    if pause_s is None and (text := headers.get("retry-after")) is not None:
        pause_s = _number(text)
        if pause_s is None:
            pause_s = _seconds_until(text, now_time)
    return None if pause_s is None else min(max(pause_s, 0.0), RETRY_AFTER_MAX_S)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _seconds_until(text: str, now_time: float) -> float | None:
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now_time
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
