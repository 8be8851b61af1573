"""The words of the OCI distribution API, as registries write them: challenges, tokens, errors, headers. Pure.

Facts are from OCI's distribution specification and from the token specification of the distribution project. What a
registry says is untrusted: what is not as it should be is passed over, and nothing raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import attrs
import orjson

from scavenge.core.naming import one_line
from scavenge.core.outcome import retry_after_s

ANSWER_MOST_BYTES = 4 * 2**20
"""How large an answer may be that is no blob: the specification's own limit for manifests."""
TOKEN_LIVES_S = 60.0
"""How long a token is good that does not say it (token specification: ``expires_in``)."""
TOKEN_MARGIN_S = 5.0
"""How long before its end a token is no longer used."""
EPOCH_FROM_S = 1e9
"""A number of seconds from here on is a moment of our time, not a span."""
PAUSE_MAX_S = 6 * 3600.0
"""The longest pause that is taken at its word: Docker Hub's window."""

_PARAM = re.compile(r'\s*,?\s*([A-Za-z0-9_.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))')
_SCHEME = re.compile(r"[\s,]*([A-Za-z][A-Za-z0-9-]*)(?=[\s,]|$)")
_LINK = re.compile(r"<([^<>]*)>\s*;[^,]*\brel=\"?next\"?")
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


# --- who may


@attrs.frozen
class Challenge:
    """One way to be let in (RFC 9110, 11.6.1). ``scheme`` is in lower case, and so are the names of ``params``."""

    scheme: str
    params: Mapping[str, str]


def challenges(header: str) -> list[Challenge]:
    """The challenges of a ``WWW-Authenticate`` header; what cannot be read ends them."""
    found: list[Challenge] = []
    at = 0
    while scheme := _SCHEME.match(header, at):
        at = scheme.end()
        params: dict[str, str] = {}
        while param := _PARAM.match(header, at):
            at = param.end()
            quoted = param[2]
            params.setdefault(param[1].lower(), param[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        found.append(Challenge(scheme[1].lower(), params))
    return found


@attrs.frozen
class Token:
    """What a token service gives out."""

    value: str = attrs.field(repr=False)
    lives_s: float = TOKEN_LIVES_S


def parse_token(data: bytes) -> Token | None:
    """The token in the reply of a token service; ``None``: there is none."""
    reply = json_object(data)
    value = reply.get("token") or reply.get("access_token")
    lives_s = reply.get("expires_in")
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        return None
    if not isinstance(lives_s, int | float) or not 0 < lives_s < math.inf:
        return Token(value)
    return Token(value, float(lives_s))


# --- what went wrong


def error_text(data: bytes) -> str:
    """What a registry says in the body of an error, in one line: its first code and message, or the text itself."""
    reply = json_object(data)
    errors = reply.get("errors")
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else reply
    code, message = (first.get(key) for key in ("code", "message"))
    words = [word for word in (code, message or first.get("details") or first.get("error")) if isinstance(word, str)]
    text = ": ".join(filter(None, words))
    return one_line(text or _plain_text(data))


def pause_s(headers: Mapping[str, str], now_time: float) -> float | None:
    """How long to leave a registry alone by its headers; ``None``: they do not say.

    By ``Retry-After``, else by the headers that tell when a budget is full again, as a span or as a moment in seconds
    since 1970: ``X-Retry-After`` and ``X-RateLimit-Reset`` (Docker Hub), ``RateLimit-Reset`` (IETF's draft).
    """
    for name in ("retry-after", "x-retry-after", "ratelimit-reset", "x-ratelimit-reset"):
        said = headers.get(name, "")
        seconds = _seconds(said.partition(";")[0], now_time)
        if seconds is None and name == "retry-after":
            seconds = retry_after_s({name: said}, now_time) if said else None  # a date
        if seconds is not None:
            return min(max(seconds, 0.0), PAUSE_MAX_S)
    return None


def _seconds(text: str, now_time: float) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return number - now_time if number >= EPOCH_FROM_S else number


def _plain_text(data: bytes) -> str:
    text = data.decode("utf-8", "replace").strip()
    return "" if text.startswith(("{", "[", "<")) else text  # a page for people, or JSON of another kind, says little


# --- where one is


def next_page(link: str) -> str | None:
    """The address of the next page by a ``Link`` header (RFC 8288)."""
    found = _LINK.search(link)
    return found[1] if found else None


def received_bytes(header: str) -> int:
    """How much of an upload a registry has by its ``Range`` header, ``0-1023``: the last byte, counted from 0.

    One that has nothing says ``0-0``, and cannot be told from one that has a single byte; nothing is sent in such small
    pieces.
    """
    found = _RANGE.fullmatch(header.strip())
    last = int(found[1]) if found and len(found[1]) < 19 else 0
    return last + 1 if last else 0


def begins_at(content_range: str) -> int | None:
    """At which byte the body of a partial reply begins, by ``Content-Range``; ``None``: it does not say."""
    found = _CONTENT_RANGE.fullmatch(content_range.strip())
    return int(found[1]) if found and len(found[1]) < 19 else None


def parse_tags(data: bytes) -> list[str]:
    """The tags in a page of a repository's list; an empty list for what is none."""
    tags = json_object(data).get("tags")
    return [one_line(tag, 128) for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object in a text; an empty one for what is none."""
    try:
        document = orjson.loads(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
