"""What a request to the gateway asks for: the session by its path, whose it is by its token, the call by its body.

``model`` in a body is ignored, since the session has its own; ``stream`` and ``stream_options`` say how the client
wants to be told. Whatever else a body has is an option of the call, and goes on unchanged. Pure.
"""

from __future__ import annotations

import hmac
import re
from typing import Any
from urllib.parse import quote, unquote

import attrs

from scavenge.core.plainjson import read_json
from scavenge.edge.gateway.wire import Head, Refusal
from scavenge.types import Json, Messages

_CHAT = re.compile(r"/session/([^/]+)/v1/chat/completions/?")
_THERE_IS = "the gateway has POST /session/ID/v1/chat/completions, and nothing else"
_OURS = frozenset({"model", "messages", "stream", "stream_options"})
_SHOWN_CHARACTERS = 100


@attrs.frozen
class Call:
    """One request of a session, and how its reply is to be told."""

    messages: Messages
    options: Json
    stream: bool = False
    include_usage: bool = False


def path_of(session_id: str) -> str:
    """The path under which a session finds the API."""
    return f"/session/{quote(session_id, safe='')}/v1"


def session_of(head: Head, token: str) -> str:
    """The id of the session that a request is for. Raises :class:`Refusal` for any other request."""
    found = _CHAT.fullmatch(head.path)
    if found is None:
        raise Refusal(404, "unknown_url", f"there is no {head.path[:_SHOWN_CHARACTERS]} here: {_THERE_IS}")
    if head.method != "POST":
        said = f"{head.method[:_SHOWN_CHARACTERS]} is not possible here: {_THERE_IS}"
        raise Refusal(405, "method_not_allowed", said, {"Allow": "POST"})
    given = head.field(b"authorization") or b""
    scheme, _, sent = given.partition(b" ")
    if scheme.lower() != b"bearer" or not hmac.compare_digest(sent.strip(), token.encode()):
        what = "a wrong" if given else "no"
        said = f"there is {what} API key: send the one that came with the base URL, as Authorization: Bearer KEY"
        raise Refusal(401, "invalid_api_key", said, {"WWW-Authenticate": "Bearer"})
    return unquote(found[1])


def read_call(body: bytes) -> Call:
    """The call in the body of a request. Raises :class:`Refusal`."""
    try:
        asked = read_json(body)
    except ValueError as problem:
        raise _bad(f"the body is no JSON: {problem}") from None
    if not isinstance(asked, dict):
        raise _bad("the body is no JSON object")
    messages = asked.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise _bad("messages must be a list of objects")
    options = {key: value for key, value in asked.items() if key not in _OURS}
    return Call(messages, options, _flag(asked, "stream"), _flag(_stream_options(asked), "include_usage"))


def _stream_options(asked: dict[str, Any]) -> dict[str, Any]:
    given = asked.get("stream_options")
    if given is not None and not isinstance(given, dict):
        raise _bad("stream_options must be an object")
    return given or {}


def _flag(table: dict[str, Any], name: str) -> bool:
    given = table.get(name)
    if given is not None and not isinstance(given, bool):
        raise _bad(f"{name} must be true or false")
    return bool(given)


def _bad(why: str) -> Refusal:
    return Refusal(400, "invalid_body", why)
