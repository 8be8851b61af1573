"""Requests of the OpenAI chat and completions protocols, to bytes: what we ask, and what foreign clients ask. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from scavenge.core.assembly import parts_of
from scavenge.core.callbody import CallBody
from scavenge.types import ApiType, ChatRequest, Json, Messages, Rejected

_HOW_TOLD = frozenset({"model", "stream", "stream_options"})


def encode_request(api_type: ApiType, model: str, request: ChatRequest) -> bytes | Rejected:
    """The body of a request, or why it cannot be written as JSON.

    Options are sent as they are; ``model`` is the endpoint's, and a stream is asked to end with its usage. The
    completions protocol has no messages: unless the options have a ``prompt``, their texts are it, with an empty line
    between them.
    """
    try:
        return orjson.dumps(_body_of(api_type, model, request), default=_plain)
    except (TypeError, ValueError, AttributeError, RecursionError) as problem:
        return Rejected(f"the request cannot be written as JSON: {problem}")


def _body_of(api_type: ApiType, model: str, request: ChatRequest) -> dict[str, object]:
    body: dict[str, object] = {"model": model}
    if api_type is ApiType.CHAT_COMPLETIONS:
        body["messages"] = request.messages
    elif "prompt" not in request.options:
        body["prompt"] = prompt_of(request.messages)
    body.update(request.options)
    body["model"] = model
    body.pop("stream", None)
    if request.stream:
        given = request.options.get("stream_options")
        body["stream"] = True
        body["stream_options"] = _with_usage(given)
    else:
        body.pop("stream_options", None)  # servers refuse it without a stream
    return body


def _with_usage(stream_options: object) -> dict[str, object]:
    return {**(stream_options if isinstance(stream_options, Mapping) else {}), "include_usage": True}


def encode_relay(model: str, body: CallBody, defaults: Json, *, stream: bool, handed_on: bool) -> bytes | Rejected:
    """The body of a foreign client's request as it goes to an endpoint, or why that cannot be written as JSON.

    It stays as it came but for ``model`` and what of *defaults* it lacks. *stream* says whether the server is asked for
    one: ``stream`` changes where the client wants it otherwise, and unless the stream is *handed_on* to the client, it
    is asked to end with its usage.
    """
    given = body.document
    values = {key: value for key, value in defaults.items() if key not in given and key not in _HOW_TOLD}
    values["model"] = model
    if bool(given.get("stream")) is not stream:
        values["stream"] = stream
        if not stream and given.get("stream_options") is not None:
            values["stream_options"] = None  # servers refuse it without a stream
    if stream and not handed_on:
        values["stream_options"] = _with_usage(given.get("stream_options", defaults.get("stream_options")))
    try:
        return body.changed(values)
    except (TypeError, ValueError, RecursionError) as problem:
        return Rejected(f"the request cannot be written as JSON: {problem}")


def prompt_of(messages: Messages) -> str:
    """The texts of the messages, with an empty line between them."""
    texts = []
    for message in messages:
        content = message.get("content")
        texts.append(content if isinstance(content, str) else parts_of(content or [])[0])
    return "\n\n".join(texts)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
