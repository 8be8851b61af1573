"""A whole reply as JSON -> an outcome: is it well-formed, is it complete, what does it say. Pure; waits for nothing.

The first choice is what counts; ``raw`` keeps all of them, and each must be finished. Content may be null or empty: the
environment judges that. Missing usage is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from scavenge.core.assembly import parts_of
from scavenge.core.errorbody import Wording, error_in
from scavenge.core.outcome import outcome_of_error_in_reply, outcome_of_finish
from scavenge.types import Failed, Json, Lost, Ok, Outcome, Reply, Usage

_CACHE_FIELDS = ("x-openrouter-cache-status", "cf-aig-cache-status", "x-portkey-cache-status", "helicone-cache")
_HITS = frozenset({"HIT", "SEMANTIC HIT"})


def outcome_of_document(
    document: object, http_status: int, wording: Wording, *, streamed: bool, body: bytes | None = None
) -> Outcome:
    """The outcome of a reply with status 2xx whose *body* is *document*, or whose chunks were put together to it."""
    if (facts := error_in(document)) is not None:
        return outcome_of_error_in_reply(facts, http_status, wording, streamed=streamed)
    try:
        choices = _choices_of(document)
    except ValueError as problem:
        if streamed:
            return Lost("the stream ended without a finish reason", http_status=http_status)
        return Failed(f"HTTP {http_status} with a broken reply: {problem}", http_status)
    for choice in choices:
        fault = outcome_of_finish(choice.get("finish_reason"), http_status, wording, streamed=streamed)
        if fault is not None:
            return fault
    return _read(cast("Json", document), choices[0], http_status, body)


def _choices_of(document: object) -> list[Json]:
    """The choices, the first one first."""
    choices = document.get("choices") if isinstance(document, Mapping) else None
    if not isinstance(choices, list) or not choices:
        raise ValueError("no choices")
    if not all(isinstance(choice, Mapping) for choice in choices):
        raise ValueError("a choice is no object")
    return sorted(choices, key=_index)


def _index(choice: Json) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def _read(document: Json, choice: Json, http_status: int, body: bytes | None) -> Ok | Lost | Failed:
    try:
        text, reasoning, tool_calls = _said(choice)
    except (ValueError, RecursionError) as problem:
        return Failed(f"HTTP {http_status} with a broken reply: {problem}", http_status)
    reply = Reply(
        text=text,
        finish_reason=str(choice["finish_reason"]),
        reasoning=reasoning,
        tool_calls=tool_calls,
        usage=usage_of(document),
        raw=document,
        body=body,
    )
    return Ok(reply, http_status)


def _said(choice: Json) -> tuple[str, str | None, tuple[Json, ...]]:
    message = choice.get("message")
    if message is None and isinstance(text := choice.get("text"), str):
        return text, _text(choice, "reasoning_content", "reasoning"), ()
    if not isinstance(message, Mapping):
        raise ValueError("a choice has neither a message nor a text")
    reasoning = _text(message, "reasoning_content", "reasoning")
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or "", reasoning, _tool_calls(message)
    text, thoughts = parts_of(content)
    return text, reasoning or thoughts or None, _tool_calls(message)


def _text(table: Json, *keys: str) -> str | None:
    return next((value for key in keys if isinstance(value := table.get(key), str) and value), None)


def _tool_calls(message: Json) -> tuple[Json, ...]:
    calls = message.get("tool_calls")
    if calls is None:
        return ()
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        raise ValueError("tool_calls is no list of objects")
    return tuple(calls)


def usage_of(document: Json) -> Usage:
    """The token counts of a reply; what is no count is as if it were not there."""
    usage = _table(document.get("usage"))
    prompt_tokens = _count(usage.get("prompt_tokens"))
    cached_tokens = _cached_tokens(document, usage)
    if cached_tokens is not None and prompt_tokens is not None and cached_tokens > prompt_tokens:
        cached_tokens = None  # it counts something else
    return Usage(prompt_tokens, _count(usage.get("completion_tokens")), cached_tokens)


def _cached_tokens(document: Json, usage: Json) -> int | None:
    """Where servers tell it: OpenAI, vLLM and SGLang; DeepSeek; llama.cpp, beside its usage."""
    told = (
        _table(usage.get("prompt_tokens_details")).get("cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),
        _table(document.get("timings")).get("cache_n"),
    )
    return next((count for value in told if (count := _count(value)) is not None), None)


def _table(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def is_from_cache(headers: Mapping[str, str]) -> bool:
    """Whether the head of a reply says that something before the engine had the whole of it; names in lower case.

    ``Cache-Status`` is RFC 9211; ``X-Cache`` is what CDNs and proxies send; the others are those that the documentation
    of OpenRouter, Cloudflare's AI Gateway, Portkey, Helicone and LiteLLM names. LiteLLM sends the key on a hit only.
    """
    if headers.get("x-litellm-cache-key", "") not in ("", "None"):
        return True
    if any(headers.get(name, "").strip().upper() in _HITS for name in _CACHE_FIELDS):
        return True
    if any(entry.split()[:1] == ["hit"] for entry in headers.get("x-cache", "").lower().split(",")):
        return True
    caches = [member.split(";") for member in headers.get("cache-status", "").lower().split(",")]
    return any(parameter.strip() in ("hit", "hit=?1") for _, *parameters in caches for parameter in parameters)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
