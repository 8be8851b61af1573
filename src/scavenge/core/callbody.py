"""The JSON body of a foreign client's request, which goes on byte by byte but for the keys that the gateway sets. Pure.

Where a key is, is known for sure by a few searches when its name can be spelt in one way only and stands before a colon
once in the whole body. In all other cases the members of the body are gone through one by one, each value skipped as a
whole, in time linear in the length of the body.

Invariant: what comes out is the document with the keys set, and what is outside of their values came in just so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import cast

import orjson

from scavenge.core.plainjson import read_json_fast
from scavenge.types import Json

_BOM = b"\xef\xbb\xbf"
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # what stands in quotes, in JSON that is known to be right
_MEMBER = re.compile(rb"[\s,]*+(" + _TEXT + rb")\s*+:\s*+", re.DOTALL)
_PLAIN = rb'(?:[^"\[\]{}]++|' + _TEXT + rb")"
_FLAT = rb"[\[{]" + _PLAIN + rb"*+[\]}]"
_SHALLOW = rb"[\[{](?:" + _PLAIN + rb"|" + _FLAT + rb")*+[\]}]"
_SIMPLE = re.compile(_TEXT + rb'|[^\s,"\[\]{}]++|' + _SHALLOW, re.DOTALL)
"""A value of two levels at most."""
_STEP = re.compile(rb"(?:" + _PLAIN + rb"|" + _SHALLOW + rb")*+([\[{]*+)([\]}]*+)", re.DOTALL)
"""What makes no difference to the depth, however long; then what opens some levels, and what closes some."""
_COLON = re.compile(rb"\s*+:\s*+")
_ESCAPED_ASCII = b"\\u00"
_LOOKS = 8
"""How many places with the name of a key are looked at before the members are gone through."""


class CallBody:
    """A body that is a JSON object. Raises :class:`ValueError`, with the reason, for anything else.

    *document* is what is in the body, for whoever has read it already.
    """

    __slots__ = ("_result", "_written", "document", "raw")

    def __init__(self, raw: bytes, document: Json | None = None) -> None:
        self.raw = raw
        """The body as it came."""
        self.document: Json = _document_of(raw) if document is None else document
        """What is in it."""
        self._written: dict[str, bytes] = {}  # what was last asked for: each attempt asks for the same
        self._result = raw

    def changed(self, values: Mapping[str, object]) -> bytes:
        """The body with these keys at its top set to these values; every other byte is as it came.

        A key that is there keeps its place, or its places; others come first. Raises :class:`ValueError` or
        :class:`TypeError` for a value that JSON cannot say.
        """
        written = {name: _json_of(value) for name, value in values.items()}
        if written != self._written:
            self._result = self._splice(written)
            self._written = written
        return self._result

    def _splice(self, written: Mapping[str, bytes]) -> bytes:
        raw = self.raw
        known = [name for name in written if name in self.document]
        spans = _quick_spans(raw, known)
        if spans is None:
            spans = _sure_spans(raw, known)
        at = raw.index(b"{") + 1
        parts = [raw[:at]]
        if len(known) < len(written):
            added = [_json_of(name) + b":" + value for name, value in written.items() if name not in self.document]
            parts.append(b",".join(added) + (b"," if self.document else b""))
        for start, end, name in spans:
            parts += raw[at:start], written[name]
            at = end
        return b"".join([*parts, raw[at:]])


def _document_of(raw: bytes) -> Json:
    if not raw.strip():
        raise ValueError("the body is empty")
    try:
        document = read_json_fast(raw.removeprefix(_BOM))
    except ValueError as problem:
        raise ValueError(f"the body is no JSON: {problem}") from None
    if not isinstance(document, dict):
        raise ValueError(f"the body is JSON, but no object: {raw[:40].decode(errors='replace')}")
    return document


def _json_of(value: object) -> bytes:
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError:  # lone surrogates, integers beyond 64 bits, more levels than orjson writes
        try:
            return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_plain).encode()
        except RecursionError:
            raise ValueError("nested too deep") from None


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _quick_spans(raw: bytes, names: Collection[str]) -> list[tuple[int, int, str]] | None:
    """Where the values of these keys are, all of which are there; ``None``: that cannot be told by searches."""
    if _ESCAPED_ASCII in raw:
        return None
    spans = []
    for name in names:
        start = _only_place(raw, name)
        if start is None:
            return None
        spans.append((start, _end_of_value(raw, start), name))
    return sorted(spans)


def _only_place(raw: bytes, name: str) -> int | None:
    """Where the value of a key begins, if its name stands before a colon in one place only."""
    if not (name.isascii() and name.isidentifier()):
        return None
    quoted = f'"{name}"'.encode()
    place = None
    at = raw.find(quoted)
    for _ in range(_LOOKS):
        if (colon := _COLON.match(raw, at + len(quoted))) is not None:
            if place is not None:
                return None
            place = colon.end()
        at = raw.find(quoted, at + len(quoted))
        if at < 0:
            return place
    return None


def _sure_spans(raw: bytes, names: Collection[str]) -> list[tuple[int, int, str]]:
    """Where the values of these keys are, by all members of the body."""
    spans = []
    at = raw.index(b"{") + 1
    while (member := _MEMBER.match(raw, at)) is not None:
        start, at = member.end(), _end_of_value(raw, member.end())
        quoted = member[1]
        name = read_json_fast(quoted) if b"\\" in quoted else quoted[1:-1].decode()
        if name in names:
            spans.append((start, at, str(name)))
    return spans


def _end_of_value(raw: bytes, at: int) -> int:
    """Where the value ends that begins there."""
    if (simple := _SIMPLE.match(raw, at)) is not None:
        return simple.end()
    depth = 0
    while True:
        step = cast("re.Match[bytes]", _STEP.match(raw, at))  # which matches anything
        depth += len(step[1])
        if depth <= len(step[2]):
            return step.start(2) + depth
        depth -= len(step[2])
        at = step.end()
