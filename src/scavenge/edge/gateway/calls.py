"""What a request for a model asks, by its body, and how it is to be told. Pure.

The body goes on as it came. Read are the few keys that the gateway itself goes by; they must be what they should be.
"""

from __future__ import annotations

from scavenge.calls import Call
from scavenge.core.callbody import CallBody
from scavenge.edge.gateway.routes import CallRoute
from scavenge.edge.gateway.wire import Refusal
from scavenge.types import ApiType, Json


def read_call(route: CallRoute, body: bytes) -> Call:
    """The call in the body of a request. Raises :class:`Refusal`."""
    try:
        document = CallBody(body).document
    except ValueError as problem:
        raise _bad(str(problem)) from None
    if route.api is ApiType.CHAT_COMPLETIONS:
        messages = document.get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise _bad("messages must be a list of objects")
    elif "prompt" not in document:
        raise _bad("there is no prompt")
    model = document.get("model")
    if model is not None and not isinstance(model, str):
        raise _bad("model must be a text")
    _flag(_stream_options(document), "include_usage")
    return Call(route.api, body, document, model or "", _flag(document, "stream"), route.session_id)


def wants_usage(call: Call) -> bool:
    """Whether the client wants to be told the usage at the end of a stream."""
    return _flag(_stream_options(call.document), "include_usage")


def _stream_options(document: Json) -> Json:
    given = document.get("stream_options")
    if given is not None and not isinstance(given, dict):
        raise _bad("stream_options must be an object")
    return given or {}


def _flag(table: Json, name: str) -> bool:
    given = table.get(name)
    if given is not None and not isinstance(given, bool):
        raise _bad(f"{name} must be true or false")
    return bool(given)


def _bad(why: str) -> Refusal:
    return Refusal(400, "invalid_body", why)
