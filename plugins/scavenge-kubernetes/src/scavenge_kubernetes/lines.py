"""Splits a stream of bytes into lines, of bounded length. Pure."""

from __future__ import annotations

import attrs

from scavenge_kubernetes.view import NoAnswer


@attrs.define
class Lines:
    """The lines of a stream that comes in pieces."""

    most_bytes: int
    _rest: bytearray = attrs.field(factory=bytearray)

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes, without those that are empty.

        Raises :class:`NoAnswer` when a line is longer than ``most_bytes``.
        """
        self._rest += piece
        *whole, rest = self._rest.split(b"\n") if b"\n" in piece else [self._rest]
        if len(rest) > self.most_bytes:
            raise NoAnswer(f"a line of it is longer than {self.most_bytes} bytes")
        self._rest = rest
        return [bytes(line) for line in whole if line.strip()]
