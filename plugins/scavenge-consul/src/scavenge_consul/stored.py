"""An ``endpoints.toml`` in Consul's key-value store. Pure. Knows nothing of what the rows must be."""

from __future__ import annotations

from typing import Any

import attrs
import tomli

from scavenge.plugin import Listing
from scavenge_consul.answers import Answer, Unsure, one_line


@attrs.frozen
class Stored:
    """Reads the value of one key."""

    asked_for: str

    def read(self, answer: Answer) -> Listing:
        """The rows in a good answer, as they are. Raises :class:`Unsure`."""
        return Listing(parse_rows(answer.body, self.asked_for), where=self.asked_for)


def parse_rows(data: bytes, asked_for: str) -> list[Any]:
    """The ``[[endpoint]]`` entries. Raises :class:`Unsure` unless *data* is a whole endpoints file."""
    if not data.strip():
        raise Unsure(f"{asked_for} is empty; write `endpoint = []` into it for no endpoint")
    try:
        document = tomli.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as exc:  # both decoders' errors are ValueErrors
        raise Unsure(f"{asked_for} is no TOML: {one_line(str(exc))}; correct its value") from None
    if odd := [key for key in document if key != "endpoint"]:
        raise Unsure(f"{asked_for} has an unknown key {one_line(repr(odd[0]))}; only [[endpoint]] tables stand there")
    rows = document.get("endpoint", [])
    if not isinstance(rows, list):
        raise Unsure(f"{asked_for}: `endpoint` is a list of tables; begin each of them with [[endpoint]]")
    return rows
