"""Any Python value as one line of JSON that every reader splits and reads alike. Total: it never raises.

Written as they are: ``None``, booleans, numbers, text, lists, tuples, mappings with text keys, and enums by their
value. What JSON cannot say is written as text (bytes, dates, sets, objects; keys that are no text; more than
:data:`DEEPEST` levels; integers of more than 4 300 digits, in hexadecimal) and noted; NaN and infinities are null.

A line holds no character at which some reader ends a line: control characters, U+0085, U+2028 and U+2029 are escaped.
Lone surrogates are escaped too, and integers keep all their digits; :func:`read_json` reads both back exactly.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import orjson

DEEPEST = 100
_TOO_LONG = 10**4_300
"""What Python reads by default. Foreign code may have raised the limit for writing, but not for whoever reads."""
NOTES_KEPT = 10
_FAST = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_BREAKS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


def _unnoted(document: dict[str, Any], sentence: str) -> None:
    """What could not be written as it was needs no word: nothing of the kind is expected, or text does as well."""


def write_json(document: Mapping[str, object], note: Callable[[dict[str, Any], str], None] = _unnoted) -> bytes:
    """The document as a line of JSON without the newline.

    When parts of it cannot be written as they are, they are written as text, and *note* is called with the copy that
    will be written and a sentence that names them: it may put the sentence somewhere in it.
    """
    try:
        line = orjson.dumps(document, option=_FAST)
    except TypeError:
        return _write_slowly(document, note)
    for raw, escaped in _BREAKS:
        if raw in line:
            line = line.replace(raw, escaped)
    return line


def _write_slowly(document: Mapping[str, object], note: Callable[[dict[str, Any], str], None]) -> bytes:
    plain = _Plain()
    copy = {name: plain.copy(value, name, 1) for name, value in document.items()}
    if plain.changed:
        note(copy, f"not JSON, so written as text: {', '.join(plain.changed[:NOTES_KEPT])}{plain.more()}")
    return json.dumps(copy, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def exact_copy(value: object, path: str) -> tuple[object, tuple[str, ...]]:
    """The value as it reads back, and what does not read back as it was, by its place below *path* and its type.

    Tuples and mappings of any kind read back as lists and objects, and count as they were. A copy of a value that has
    nothing else in it is written without a note by :func:`write_json`, wherever the value is a field of the document.
    """
    plain = _Plain(exact=True)
    copy = plain.copy(value, path, 1)
    return copy, tuple(plain.changed)


def read_json(line: bytes) -> object:
    """The value a line of JSON has, integers exact and lone surrogates kept.

    Raises :class:`ValueError` for anything that is not JSON in UTF-8 (NaN and Infinity are not), or is nested too deep.
    """
    try:
        return json.loads(line.decode(), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_json_fast(line: bytes) -> object:
    """Like :func:`read_json`, but integers beyond 64 bits may come as floats."""
    try:
        return orjson.loads(line)
    except ValueError:
        return read_json(line)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


@attrs.define
class _Plain:
    """Copies a value into what JSON has, and remembers what had to be changed.

    ``exact``: what is written without a note, but reads back as something else, is remembered as well.
    """

    exact: bool = False
    changed: list[str] = attrs.field(factory=list)

    def more(self) -> str:
        beyond = len(self.changed) - NOTES_KEPT
        return f" and {beyond} more" if beyond > 0 else ""

    def copy(self, value: object, path: str, depth: int) -> object:
        try:
            return self.known(value, path, depth)
        except Exception:  # a foreign class's own __iter__, items() or the like failed
            return self.text(value, path)

    def known(self, value: object, path: str, depth: int) -> object:
        match value:
            case None | bool():
                return value
            case enum.Enum():
                written = self.copy(value.value, path, depth)
                return written if isinstance(value, str | int) else self.silently(written, path, type(value).__name__)
            case str():
                return str.__str__(value)
            case int():
                return self.integer(int.__int__(value), path)
            case float():
                number = float.__float__(value)
                return number if math.isfinite(number) else self.silently(None, path, str(number))
            case Mapping() if depth < DEEPEST:
                return self.table(value, path, depth)
            case list() | tuple() if depth < DEEPEST:
                return [self.copy(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
            case _:
                return self.text(value, path)

    def table(self, value: Mapping[Any, object], path: str, depth: int) -> dict[str, object]:
        out: dict[str, object] = {}
        for key, item in value.items():
            name = str.__str__(key) if isinstance(key, str) else self.text(key, f"a key of {path}")
            while name in out:
                name += "'"
            out[name] = self.copy(item, f"{path}.{name[:40]}", depth + 1)
        return out

    def integer(self, value: int, path: str) -> object:
        try:
            if abs(value) < _TOO_LONG and str(value):
                return value
        except ValueError:  # longer than a lower sys.get_int_max_str_digits()
            pass
        self.changed.append(f"{path} (int)")
        return hex(value)

    def silently(self, written: object, path: str, was: str) -> object:
        if self.exact:
            self.changed.append(f"{path} ({was})")
        return written

    def text(self, value: object, path: str) -> str:
        self.changed.append(f"{path} ({type(value).__name__})")
        try:
            return str(value)
        except Exception:  # a foreign class's own __str__ failed, or it is nested too deep
            return f"<{type(value).__name__}>"
