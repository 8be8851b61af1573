"""TOML and JSON from bytes, and the shape of ``endpoints.toml``. Pure: who read the bytes, and where, is not known."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import tomli

from scavenge.core.naming import key_name, one_line, suggestion
from scavenge.types import Json

DEEPEST = 100
"""How deep tables and lists may be nested: far beyond what is written by hand, far below what recursion can follow."""

_LIST_KEY = "endpoint"

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""What no text lacks that has half of a character written as an escape."""


class DocumentError(ValueError):
    """The bytes are no document; the text says where and why, on one line."""


def parse_toml(data: bytes) -> dict[str, object]:
    """The document that *data* is.

    Raises :class:`DocumentError`: not UTF-8, a byte order mark, a syntax error with its line and column, or tables and
    lists nested deeper than :data:`DEEPEST`.
    """
    try:
        document = tomli.loads(_decode(data))
    except tomli.TOMLDecodeError as exc:
        raise _error_at(exc.lineno, exc.colno, exc.msg) from None
    except (ValueError, RecursionError) as exc:  # numbers too long and nesting too deep have no position
        raise DocumentError(one_line(str(exc))) from None
    _check_depth(document)
    return document


def parse_json(data: bytes) -> object:
    """The value that *data* is.

    Raises :class:`DocumentError` for what :func:`parse_toml` refuses too, for NaN and infinities, for half a character
    (a lone surrogate), and for a key that stands twice in one table, of which most readers take the last.
    """
    text = _decode(data)
    try:
        document = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_table)
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as exc:
        raise _error_at(exc.lineno, exc.colno, exc.msg) from None
    except UnicodeEncodeError:
        raise DocumentError("a text in it has half of a character, as \\ud83d is without its other half") from None
    except (ValueError, RecursionError) as exc:
        raise DocumentError(one_line(str(exc))) from None
    _check_depth(document)
    return document


def endpoint_tables(document: Mapping[str, object]) -> Sequence[Json]:
    """The ``[[endpoint]]`` entries of a document, which has no other key; the entries themselves are not checked.

    Raises :class:`DocumentError`. A document without a key lists no endpoint, and says so.
    """
    for key in document:
        if key != _LIST_KEY:
            raise DocumentError(f"unknown key {key_name(key)}; {suggestion(key, [_LIST_KEY])}")
    entries = document.get(_LIST_KEY, [])
    if not isinstance(entries, list):
        raise DocumentError("`endpoint` is a list of tables; begin each of them with [[endpoint]]")
    return entries


def _error_at(line: int, column: int, what: str) -> DocumentError:
    return DocumentError(f"line {line}, column {column}: {one_line(what[:1].lower() + what[1:])}")


def _refuse_constant(name: str) -> object:
    raise DocumentError(f"{name} is not JSON")


def _table(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table: dict[str, object] = {}
    for key, value in pairs:
        if key in table:
            raise DocumentError(f"the key {key_name(key)} stands twice in one table; keep one of them")
        table[key] = value
    return table


def _check_depth(document: object) -> None:
    level: list[object] = [document]
    for _ in range(DEEPEST):
        tables = [item for item in level if isinstance(item, dict)]
        lists = [item for item in level if isinstance(item, list)]
        level = [inner for table in tables for inner in table.values()] + [inner for one in lists for inner in one]
        if not level:
            return
    raise DocumentError(f"tables and lists are nested more than {DEEPEST} deep")


def _decode(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DocumentError("this is UTF-16; save it as UTF-8")
    if data.startswith(b"\xef\xbb\xbf"):
        raise DocumentError("it begins with a byte order mark; save it as UTF-8 without one")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise DocumentError(f"line {line}: byte 0x{data[exc.start]:02x} is not UTF-8; save it as UTF-8") from None
