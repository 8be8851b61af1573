"""What a server says when it refuses: the error bodies of the servers in use, read into one shape and fit to show.

Shapes: OpenAI ``{"error": {"message", "type", "code"}}``; vLLM and SGLang ``{"object": "error", "message", "code"}``;
llama.cpp (``error.type`` such as ``exceed_context_size_error``); TGI ``{"error": text, "error_type"}``; FastAPI
``{"detail": text or a list of {"loc", "msg"}}``; Google's list of one. Pure; decides nothing about outcomes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import cast
from urllib.parse import quote

import attrs

from scavenge.core.naming import one_line
from scavenge.core.plainjson import read_json_fast

MESSAGE_CHARACTERS = 500
"""How long a message may be."""

_LOOKED_AT_CHARACTERS = 20_000
_SECRET_CHARACTERS = 4  # a shorter key is a placeholder, and taking it out would shred the message
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


@attrs.frozen
class ErrorFacts:
    """An error as the server words it. ``code`` is an HTTP status from the body; ``kind`` joins its type and code."""

    message: str
    code: int | None = None
    kind: str = ""


@attrs.frozen
class Wording:
    """Makes texts from outside fit for messages: one line, bounded, without secrets.

    ``tried`` names the request, as in ``POST http://127.0.0.1:8000/v1/chat/completions``.
    """

    tried: str = ""
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)

    def line(self, text: str) -> str:
        """*text* on one line, without secrets, of at most :data:`MESSAGE_CHARACTERS`."""
        return one_line(redact(text, self.secrets)[:_LOOKED_AT_CHARACTERS], MESSAGE_CHARACTERS)


def redact(text: str, secrets: Iterable[str]) -> str:
    """*text* with each secret, also where it is escaped or in base64, replaced by ``[secret]``."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SECRET_CHARACTERS:
            for form in forms_of(secret):
                text = text.replace(form, "[secret]")
    return text


def forms_of(secret: str) -> set[str]:
    """A secret as it may stand in a text: as it is, escaped for JSON or a URL, in base64."""
    in_bytes = secret.encode(errors="surrogatepass")
    in_base64 = base64.b64encode(in_bytes).decode()
    escaped = json.dumps(secret)[1:-1]
    return {secret, escaped, escaped.replace("/", "\\/"), quote(in_bytes, safe=""), quote(in_bytes), in_base64}


def error_in(document: object) -> ErrorFacts | None:
    """The error in place of a reply; without choices, a ``detail`` or a ``message`` is one too."""
    facts = stated_error(document)
    if facts is None and isinstance(document, Mapping) and "choices" not in document:
        return _facts(document) if "detail" in document or "message" in document else None
    return facts


def stated_error(document: object) -> ErrorFacts | None:
    """The error a JSON document calls one, or ``None``."""
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, Mapping):
        return None
    table = cast("Mapping[str, object]", document)
    error = table.get("error")
    if isinstance(error, Mapping):
        return _facts({**_codes(table), **error})
    if error:
        return _facts({**_codes(table), "message": error})
    return _facts(table) if table.get("object") == "error" else None


def error_of(body: bytes) -> ErrorFacts:
    """The error in the body of a reply with an error status; text that is no JSON is the message itself."""
    text = body.decode(errors="replace").strip()
    try:
        document = read_json_fast(body.strip().removeprefix(b"data:").strip())
    except ValueError:
        return ErrorFacts(describe(text))
    return error_in(document) or ErrorFacts(text[:_LOOKED_AT_CHARACTERS])


def describe(text: str) -> str:
    """What a body that is no JSON says: the title of an HTML page, else the text."""
    if not text.lstrip().startswith("<"):
        return text
    title = _TITLE.search(text[:_LOOKED_AT_CHARACTERS])
    return f"an HTML page with the title {title[1].strip()!r}" if title else f"an HTML page: {text}"


def _codes(table: Mapping[str, object]) -> dict[str, object]:
    return {key: table[key] for key in ("type", "code", "error_type", "status", "status_code") if key in table}


def _facts(error: Mapping[str, object]) -> ErrorFacts:
    codes = [error.get(key) for key in ("code", "status_code", "status")]
    kinds = [error.get(key) for key in ("type", "code", "error_type", "status")]
    try:
        message = _message(error)
    except RecursionError:
        message = "an error that is nested too deep to be shown"
    return ErrorFacts(
        message=message,
        code=next((code for value in codes if (code := _status(value)) is not None), None),
        kind=" ".join(kind.lower() for kind in kinds if isinstance(kind, str)),
    )


def _message(error: Mapping[str, object]) -> str:
    for key in ("message", "detail", "msg"):
        match error.get(key):
            case str() as text if text:
                return text
            case list() as details:
                return "; ".join(map(_detail, details[:10]))
            case Mapping() as inner:
                return _message(inner)
    return f"an error without a message: {str(error)[:_LOOKED_AT_CHARACTERS]}"


def _detail(detail: object) -> str:
    """One entry of FastAPI's list, without the input, which would repeat the prompt."""
    if not isinstance(detail, Mapping):
        return str(detail)[:_LOOKED_AT_CHARACTERS]
    place = detail.get("loc")
    where = ".".join(map(str, place)) if isinstance(place, list) else ""
    return f"{where}: {detail.get('msg')}" if where else str(detail.get("msg"))


def _status(value: object) -> int | None:
    if isinstance(value, str) and len(value) == 3 and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else None
