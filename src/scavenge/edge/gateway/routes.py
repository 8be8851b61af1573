"""What a request to the gateway is for, by its head, and whether whoever sends it may ask. Pure.

Who may ask: with a token, whoever sends it. Without one, whoever is on this machine; but not a web page that somebody
there has open, be it by its own address (``Origin``) or by a name that its owner has pointed here (``Host``).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection
from ipaddress import ip_address
from typing import TypeAlias
from urllib.parse import quote, unquote_to_bytes

import attrs

from scavenge.core.naming import shown
from scavenge.edge.gateway.wire import Head, Refusal
from scavenge.types import ApiType

SESSION_CHARACTERS = 200
SESSION_FIELD = b"x-scavenge-session"
_SESSION = re.compile(r"/session/([^/]+)(/.*)?", re.DOTALL)
_CALLS = {"/v1/chat/completions": ApiType.CHAT_COMPLETIONS, "/v1/completions": ApiType.COMPLETIONS}
_MODELS = "/v1/models"
_SHOWN_CHARACTERS = 200


@attrs.frozen
class CallRoute:
    """A request for a model."""

    api: ApiType
    session_id: str | None = None


@attrs.frozen
class ModelsRoute:
    """The models; or one of them, by its name."""

    name: str | None = None


@attrs.frozen
class SessionRoute:
    """The end of a session."""

    session_id: str


@attrs.frozen
class PageRoute:
    """A page."""

    path: str


Route: TypeAlias = "CallRoute | ModelsRoute | SessionRoute | PageRoute"


def path_of(session_id: str) -> str:
    """The path under which a session finds the API."""
    return f"/session/{quote(session_id, safe='')}/v1"


def route_of(head: Head, pages: Collection[str]) -> Route:
    """What a request is for. Raises :class:`Refusal` where there is nothing, or not by that method."""
    found = _find(head, head.path, pages)
    if found is None:
        raise Refusal(404, "unknown_url", _unknown(head, pages))
    route, methods = found
    if head.method not in methods:
        said = f"{shown(head.method)} is not possible here; {_there_is(pages)}"
        raise Refusal(405, "method_not_allowed", said, {"Allow": ", ".join(methods)})
    return route


def _find(head: Head, path: str, pages: Collection[str]) -> tuple[Route, tuple[str, ...]] | None:
    if path in pages:
        return PageRoute(path), ("GET", "HEAD")
    named = _SESSION.fullmatch(path)
    below = path if named is None else named[2]
    if named is not None and below is None:
        return SessionRoute(_session(_unquoted(named[1]))), ("DELETE",)
    if (api := _CALLS.get(below)) is not None:
        return CallRoute(api, _session_of(head, None if named is None else named[1])), ("POST",)
    if below == _MODELS:
        return ModelsRoute(), ("GET", "HEAD")
    if below.startswith(f"{_MODELS}/") and not below.endswith("/"):
        return ModelsRoute(_unquoted(below[len(_MODELS) + 1 :])), ("GET", "HEAD")
    return None


def _unknown(head: Head, pages: Collection[str]) -> str:
    """What is told of a path where there is nothing, with the path that was meant where that can be told."""
    path = head.path[:_SHOWN_CHARACTERS]
    said = f"there is no {shown(path)} here"
    meant = re.sub(r"/{2,}", "/", path).rstrip("/")
    meant = re.sub(r"(/v1)+(?=/|$)", "/v1", meant)
    for guess in (meant, re.sub(r"^(/session/[^/]+)?(?=/)", r"\1/v1", meant, count=1)):
        if guess != head.path and _find(head, guess, pages) is not None:
            return f"{said}, but {shown(guess)}: look at the base URL, which ends in /v1; {_there_is(pages)}"
    return f"{said}; {_there_is(pages)}"


def _there_is(pages: Collection[str]) -> str:
    calls = [f"POST {path}" for path in _CALLS]
    listed = [*calls, f"GET {_MODELS}", *(f"GET {path}" for path in pages), "DELETE /session/ID"]
    return f"there is {', '.join(listed)}; what begins with /v1 is under /session/ID, too"


# --- sessions


def _session_of(head: Head, in_path: str | None) -> str | None:
    """The session that a call names, by its path or its header."""
    given = head.field(SESSION_FIELD)
    by_path = None if in_path is None else _session(_unquoted(in_path))
    if given is None:
        return by_path
    by_field = _session(_decoded(given))
    if by_path not in (None, by_field):
        said = f"the URL names the session {shown(by_path or '')}, X-Scavenge-Session {shown(by_field)}: name one"
        raise Refusal(400, "two_sessions", said)
    return by_field


def _session(name: str) -> str:
    if not 1 <= len(name) <= SESSION_CHARACTERS or not name.isprintable():
        said = f"a session's id has 1 to {SESSION_CHARACTERS} printable characters, not as {shown(name)}"
        raise Refusal(400, "bad_session", said)
    return name


def _unquoted(text: str) -> str:
    return _decoded(unquote_to_bytes(text.encode("latin-1")))


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refusal(400, "bad_name", f"a name in the request is no UTF-8: {data[:_SHOWN_CHARACTERS]!r}") from None


def check_encoding(head: Head) -> None:
    """Raise :class:`Refusal` for a body that is not as it is."""
    given = head.field(b"content-encoding") or b"identity"
    if given.strip().lower() != b"identity":
        said = f"bodies are taken as they are, not in the encoding {shown(_latin(given))}"
        raise Refusal(415, "unsupported_encoding", said, {"Accept-Encoding": "identity"})


# --- who may ask


def check_token(head: Head, token: str) -> None:
    """Raise :class:`Refusal` unless the request comes with the token."""
    given = head.field(b"authorization") or b""
    scheme, _, sent = given.partition(b" ")
    if scheme.lower() != b"bearer" or not hmac.compare_digest(sent.strip(), token.encode()):
        what = "a wrong" if given else "no"
        said = f"there is {what} API key: send the one that came with the base URL, as Authorization: Bearer KEY"
        raise Refusal(401, "invalid_api_key", said, {"WWW-Authenticate": "Bearer"})


def check_local(head: Head) -> None:
    """Raise :class:`Refusal` where a web page has a browser on this machine send the request."""
    remedy = "a gateway that web pages or other machines use needs a token: see --token-var"
    if (origin := head.field(b"origin")) is not None:
        said = f"the request comes from the web page {shown(_latin(origin))}; {remedy}"
        raise Refusal(403, "forbidden_origin", said)
    if (host := head.field(b"host")) is not None and not is_local(_latin(host)):
        said = f"the request is for the host {shown(_latin(host))}, which is not this machine alone; {remedy}"
        raise Refusal(403, "forbidden_host", said)


def is_local(host: str) -> bool:
    """Whether the host of a URL, with or without a port, can only be this machine."""
    name = re.sub(r":\d*$", "", host)
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name).is_loopback
    except ValueError:
        return False


def _latin(data: bytes) -> str:
    return data[:_SHOWN_CHARACTERS].decode("latin-1")
