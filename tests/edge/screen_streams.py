"""Streams that stand for a terminal, a file and a terminal that went away."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    """A stream whose reader went away; counts what is tried."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.tries = 0

    def write(self, text: str) -> int:
        self.tries += 1
        raise self.error
