"""Rows of text files: JSON Lines, a JSON array, CSV. Each is read in pieces and never held as a whole.

A reader decides what one row is; a row that is wrong comes out as a row with its error, and the reader goes on with the
next one where the file's kind allows it. Rows are told apart by ``\\n`` bytes only, never by U+2028 and its like.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from scavenge.core.naming import listed, one_line
from scavenge.environments.row import DECODER, Row, checked_row, parse_row, refuse_surrogates, said

MAX_ROW_BYTES = 64 * 2**20
"""Beyond this it is a file of another kind, rather than a row."""
CHUNK_CHARS = 2**16
_LONGEST_TOKEN = 16
"""No token of JSON but a string and a number is longer; one that is cut is reported where it begins."""


def read_jsonl(path: Path) -> Iterator[Row]:
    """One JSON object a line; lines without anything on them are passed over."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_ROW_BYTES):
            number += 1
            place = f"{path.name}: line {number}"
            if len(line) >= MAX_ROW_BYTES and not line.endswith(b"\n"):
                _skip_line(file)
                yield Row(number, place, error=f"longer than {MAX_ROW_BYTES} bytes")
            elif line := (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip(b" \t\r\n"):
                yield _line_row(number, place, line)


def _skip_line(file: BinaryIO) -> None:
    while (piece := file.readline(MAX_ROW_BYTES)) and not piece.endswith(b"\n"):
        pass


def _line_row(number: int, place: str, line: bytes) -> Row:
    try:
        text = line.decode()
    except UnicodeDecodeError as exc:
        return Row(number, place, error=f"not UTF-8 at byte {exc.start + 1} of the line")
    return parse_row(number, place, text)


def read_json_array(path: Path) -> Iterator[Row]:
    """The members of a JSON array, decoded one by one while the file is read.

    After a member that is no JSON nothing tells where the next one begins: it is the last row.

    Raises ``ValueError`` when the file does not hold an array.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        text = _Window(iter(lambda: file.read(CHUNK_CHARS), ""))
        if text.peek() != "[":
            raise ValueError(f"{path.name} does not hold a JSON array; a file with one object a line is named .jsonl")
        text.skip()
        if text.peek() == "]":
            return
        number = 0
        while True:
            number += 1
            row = _member(text, number, f"{path.name}: row {number}")
            yield row
            if text.broken or text.peek() == "]":
                return
            if text.peek() != ",":
                yield Row(number + 1, f"{path.name}: row {number + 1}", error=_unended(text.peek()))
                return
            text.skip()


def _unended(found: str) -> str:
    return f"expected , or ] after row before it, got {found!r}" if found else "the file ends inside the array"


def _member(text: _Window, number: int, place: str) -> Row:
    try:
        value = text.value()
    except (ValueError, RecursionError) as exc:
        text.broken = True
        what = exc.msg if isinstance(exc, json.JSONDecodeError) else said(exc)
        return Row(number, place, error=f"no valid JSON, so that nothing after it can be read either: {what}")
    try:
        refuse_surrogates(value)
    except (ValueError, RecursionError) as exc:
        return Row(number, place, error=f"no valid JSON: {said(exc)}")
    return checked_row(number, place, value)


class _Window:
    """The part of a text that has been read and not yet used. ``broken``: what follows cannot be told apart."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self._chunks = chunks
        self._text = ""
        self._at = 0
        self.broken = False

    def peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_on():
                return ""

    def skip(self) -> None:
        """Use up the character that :meth:`peek` saw."""
        self._at += 1

    def value(self) -> object:
        """Decode and use up the next value, reading on until it is whole.

        Raises ``ValueError`` for what does not become a value by reading on.
        """
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as exc:
                if not self._may_go_on(exc) or not self._read_on():
                    raise
            else:
                if end == len(self._text) and isinstance(value, (int, float)) and self._read_on():
                    continue  # 5 may be the beginning of 57
                self._at = end
                return value

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        """Whether the text may only be cut: the fault is at its end, or in a string that began anywhere."""
        held = len(self._text) - self._at
        at_end = error.pos >= len(self._text) - _LONGEST_TOKEN or error.msg.startswith("Unterminated string")
        return at_end and held <= MAX_ROW_BYTES

    def _read_on(self) -> bool:
        """Read as much again as is held, so that a long value is not decoded once a chunk; false at the end."""
        pieces = [self._text[self._at :]]
        wanted = len(pieces[0]) + 1
        while wanted > 0 and (piece := next(self._chunks, "")):
            pieces.append(piece)
            wanted -= len(piece)
        self._text, self._at = "".join(pieces), 0
        return len(pieces) > 1


def read_csv(path: Path) -> Iterator[Row]:
    """Rows of comma-separated values under a header; every field is a string, and may hold line breaks in quotes.

    Raises ``ValueError`` when the header cannot be used.
    """
    # the limit is the process's: 128 KiB unless raised, less than a long prompt
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        lines = csv.reader(file, strict=True)
        header = _header(path, lines)
        while header:
            first = lines.line_num + 1
            place = f"{path.name}: line {first}"
            try:
                cells = next(lines, None)
            except csv.Error as exc:
                yield Row(first, place, error=f"no valid CSV: {one_line(str(exc))}")
                continue
            if cells is None:
                return
            if cells:
                yield _cells_row(first, place, header, cells)


def _header(path: Path, lines: Iterator[list[str]]) -> list[str]:
    try:
        header = next((cells for cells in lines if cells), [])
    except csv.Error as exc:
        raise ValueError(f"{path.name}: the header is no valid CSV: {one_line(str(exc))}") from exc
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise ValueError(f"{path.name}: the header names {listed(map(repr, twice))} twice")
    return header


def _cells_row(number: int, place: str, header: list[str], cells: list[str]) -> Row:
    if len(cells) != len(header):
        return Row(number, place, error=f"{len(cells)} fields under a header of {len(header)}")
    try:
        refuse_surrogates(cells)
    except ValueError:
        return Row(number, place, error="not UTF-8")
    return checked_row(number, place, dict(zip(header, cells, strict=True)))
