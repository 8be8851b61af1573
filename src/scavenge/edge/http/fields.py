"""Header fields of requests, and what is wrong with a request. Those that only the transport sets are refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Field: TypeAlias = "tuple[bytes, bytes]"

OWNED = frozenset({b"content-length", b"transfer-encoding", b"connection", b"host", b"expect", b"upgrade"})
"""Fields that only the transport sets."""


class BadRequest(ValueError):
    """A request cannot be sent."""


class BadHeader(BadRequest):
    """A header cannot be sent: ``name`` says which; its value is not shown, since it may be a secret."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(f"the header {name!r} {why}")


def fields_of(headers: Mapping[str, str]) -> list[Field]:
    """Headers as bytes, names in lower case.

    Raises :class:`BadHeader` for text outside Latin-1 and for a field that only the transport sets.
    """
    found = []
    for name, value in headers.items():
        try:
            field = (name.lower().encode("latin-1"), value.encode("latin-1"))
        except UnicodeEncodeError:
            raise BadHeader(name, "has characters that HTTP cannot carry") from None
        if field[0] in OWNED:
            raise BadHeader(name, "is set by scavenge itself")
        found.append(field)
    return found
