"""A reply that is there as a whole, told as the events of a stream. Pure.

The events are those of OpenAI's: what the message says, choice by choice, then the finish reason of each, then the
usage if it is asked for, then ``[DONE]``. Long texts are cut into pieces, since there are clients that read a stream
line by line and refuse long lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from scavenge.core.plainjson import write_json
from scavenge.types import ApiType, Json

WAITING = b": waiting\n\n"
"""A comment: it says that the connection is alive, and clients skip it."""
DONE = b"data: [DONE]\n\n"

_PIECE_CHARACTERS = 4096
_TEXTS = ("reasoning_content", "reasoning", "content", "refusal")
_EVERYWHERE = ("id", "created", "model", "system_fingerprint", "service_tier")
_ABSENT: Json = {"id": "", "created": 0, "model": ""}


@attrs.frozen
class _Tell:
    """How the chunks of an API look: their ``object``, what a choice says piece by piece, and what says nothing."""

    kind: str
    pieces: Callable[[Json], Iterator[Json]]
    nothing: Json


def event(body: bytes) -> bytes:
    """One line of JSON as an event."""
    return b"data: " + body + b"\n\n"


def events_of(document: Json, api: ApiType, *, include_usage: bool) -> bytes:
    """A whole reply, in the shape of a response that is not streamed, as the events of a stream."""
    tell = _CHAT if api is ApiType.CHAT_COMPLETIONS else _TEXT
    told = [event(write_json(chunk)) for chunk in _chunks_of(document, tell, include_usage=include_usage)]
    return b"".join([*told, DONE])


def _chunks_of(document: Json, tell: _Tell, *, include_usage: bool) -> Iterator[dict[str, object]]:
    common = {**_ABSENT, **{key: document[key] for key in _EVERYWHERE if key in document}, "object": tell.kind}
    rest = {key: value for key, value in document.items() if key not in common and key not in ("choices", "usage")}
    choices = [choice for choice in _list(document.get("choices")) if isinstance(choice, Mapping)]
    for choice in choices:
        logprobs = {"logprobs": choice["logprobs"]} if choice.get("logprobs") is not None else {}
        for piece in tell.pieces(choice):
            told = {"index": choice.get("index", 0), **piece, **logprobs, "finish_reason": None}
            yield {**common, "choices": [told]}
            logprobs = {}
    for choice in choices:
        others = {key: value for key, value in choice.items() if key not in ("message", "text", "logprobs")}
        yield {**common, **rest, "choices": [{"index": 0, **others, **tell.nothing}]}
        rest = {}
    if include_usage:
        yield {**common, "choices": [], "usage": document.get("usage")}


def _text_of(choice: Json) -> Iterator[Json]:
    text = choice.get("text")
    for piece in _cut(text) if isinstance(text, str) and text else [""]:
        yield {"text": piece}


def _delta_of(choice: Json) -> Iterator[Json]:
    for delta in _deltas_of(choice):
        yield {"delta": delta}


def _deltas_of(choice: Json) -> Iterator[Json]:
    """What the message of a choice says, in pieces; the first has all that is neither a text nor a tool call, too."""
    message = choice.get("message")
    told = dict(message) if isinstance(message, Mapping) else {"content": choice.get("text")}
    pieces = [delta for key in _TEXTS for delta in _text_pieces(key, told)]
    pieces += [{"tool_calls": [call]} for call in _call_pieces(told.pop("tool_calls", None))]
    first = pieces[0] if pieces else {}
    yield {"role": "assistant", **told, **first}
    yield from pieces[1:]


def _text_pieces(key: str, message: dict[str, Any]) -> Iterator[Json]:
    """The pieces of one text, which is taken out of the message."""
    text = message.get(key)
    if isinstance(text, str) and text:
        del message[key]
        for piece in _cut(text):
            yield {key: piece}


def _call_pieces(calls: object) -> Iterator[Json]:
    for index, call in enumerate(_list(calls)):
        whole = dict(call) if isinstance(call, Mapping) else {}
        function = whole.get("function")
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(arguments, str):
            yield {**whole, "index": index}
            continue
        first, *others = _cut(arguments) or [""]
        yield {**whole, "index": index, "function": {**function, "arguments": first}}
        for piece in others:
            yield {"index": index, "function": {"arguments": piece}}


def _cut(text: str) -> list[str]:
    return [text[start : start + _PIECE_CHARACTERS] for start in range(0, len(text), _PIECE_CHARACTERS)]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


_CHAT = _Tell("chat.completion.chunk", _delta_of, {"delta": {}})
_TEXT = _Tell("text_completion", _text_of, {"text": ""})
