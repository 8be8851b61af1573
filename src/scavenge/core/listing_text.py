"""A listing in text that came by a wire or a pipe: JSON or TOML from bytes, in the shape of ``endpoints.toml``. Pure.

Stricter than an endpoints file, which somebody wrote as a listing: what a server or a program says may be an error, a
login page, or half of what was meant, and much of that is a right document. So a text is a listing only where it says
that it is one, and TOML, which shows no end, only where the end was seen. Knows nothing of what the rows must be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from scavenge.core.documents import DocumentError, endpoint_tables, parse_json, parse_toml
from scavenge.core.errorbody import describe
from scavenge.core.naming import one_line, shown
from scavenge.types import Json

_NONE = 'no endpoint is `{"endpoint": []}` in JSON, `endpoint = []` in TOML'
_BEGINS_JSON = re.compile(rb"\s*(?:\{|\[\s*[{\]])")
"""How a table or a list of tables begins in JSON; nothing in TOML does."""
_MARKUP_SHOWN = 20_000
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\";\s]+)", re.IGNORECASE)
_UTF_8 = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_URL_KEYS = frozenset({"url", "api_base_url"})


def listing_tables(data: bytes, content_type: str = "", *, whole: bool = True) -> Sequence[Json]:
    """The tables of endpoints that *data* lists, raw: ``{"endpoint": [...]}``, a list of tables, or the same in TOML.

    *content_type* decides between JSON and TOML where it names one of them, else the first bytes do. *whole* is false
    where *data* may be cut off at its end. Raises :class:`DocumentError`, which says on one line why it is no listing.
    """
    if not data.strip():
        raise DocumentError(f"empty; {_NONE}")
    _check_charset(data, content_type)
    if data.lstrip().startswith(b"<"):
        page = one_line(describe(data[:_MARKUP_SHOWN].decode(errors="replace")), 120)
        raise DocumentError(f"this is {page}; expected a listing in JSON or TOML")
    if _is_json(data, content_type):
        return _tables(parse_json(data))
    document = parse_toml(data)
    if not whole:
        raise DocumentError("TOML whose end cannot be told from a cut: send its length, or JSON")
    return _tables(document)


def _check_charset(data: bytes, content_type: str) -> None:
    charset = _CHARSET.search(content_type)
    if charset is not None and charset[1].lower() not in _UTF_8 and not data.isascii():
        raise DocumentError(f"written in {one_line(charset[1], 40)}; send UTF-8")


def _is_json(data: bytes, content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")):
        return True
    return not kind.endswith("toml") and _BEGINS_JSON.match(data) is not None


def _tables(document: object) -> Sequence[Json]:
    if isinstance(document, list):
        if document and not any(isinstance(entry, Mapping) and _URL_KEYS & entry.keys() for entry in document):
            raise DocumentError(f"a list in which nothing has a `url`; {_NONE}")
        return document
    if not isinstance(document, Mapping):
        raise DocumentError(f"expected a table with `endpoint`, or a list of tables, got {shown(document)}")
    tables = endpoint_tables(document)
    if not document:
        raise DocumentError(f"says nothing of `endpoint`; {_NONE}")
    return tables
