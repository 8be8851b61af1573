"""One row of a dataset, read or not, and the rules that hold for rows of every kind of file. Waits for nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import NoReturn

import attrs

from scavenge.core.naming import one_line
from scavenge.types import Json


@attrs.frozen
class Row:
    """A row of a dataset. ``place`` says where it is (``data.jsonl: line 7``); ``number`` is that line or row, from 1.

    Exactly one of ``data`` and ``error`` is there.
    """

    number: int
    place: str
    data: Json | None = None
    error: str | None = None


def checked_row(number: int, place: str, value: object) -> Row:
    """The row that a value is, or what is wrong with it."""
    if not isinstance(value, Mapping):
        return Row(number, place, error=f"expected an object with the row's fields, got {_kind(value)}")
    if not value:
        return Row(number, place, error="the row has no fields")
    return Row(number, place, value)


def parse_row(number: int, place: str, text: str) -> Row:
    """The row that a JSON text is, or what is wrong with it."""
    try:
        value = DECODER.decode(text)
        if "\\u" in text:
            refuse_surrogates(value)
    except (ValueError, RecursionError) as exc:
        return Row(number, place, error=f"no valid JSON: {said(exc)}")
    return checked_row(number, place, value)


def refuse_surrogates(value: object) -> None:
    """Raise ``ValueError`` for a text that UTF-8 cannot carry, and so no request either."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("text that UTF-8 cannot carry, such as half of a \\u pair") from None


def said(error: Exception) -> str:
    """What an error of a parser says, in one line."""
    return "nested too deep" if isinstance(error, RecursionError) else one_line(str(error), 200)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
"""Reads whole numbers of any length exactly; an answer of 30 digits is one."""


def numbered(name: str, values: Iterator[object]) -> Iterator[Row]:
    """Rows of a dataset that has no lines, counted from 1."""
    for number, value in enumerate(values, start=1):
        yield checked_row(number, f"{name}: row {number}", value)


def _kind(value: object) -> str:
    kinds = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
