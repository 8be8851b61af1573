"""The event log of a run, read as a stream while somebody else may be writing it. Takes no lock and changes nothing.

What stands in the file when reading begins is read, and no more, so that a busy run cannot hold its reader up. At most
:data:`LONGEST_BYTES` of one line are in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from scavenge.core.plainjson import read_json_fast
from scavenge.core.report.contents import Read
from scavenge.errors import ResultsError

LONGEST_BYTES = 16 * 1024 * 1024
"""A longer line is none of ours: the full picture of a run has some hundred kilobytes."""


def read_events(path: Path, take: Callable[[Mapping[str, object]], None]) -> Read:
    """Hand each line's object to *take*, in order, and say what could not be read.

    Raises :class:`ResultsError` when the file cannot be read.
    """
    try:
        with open(path, "rb", opener=_opener) as file:
            state = os.fstat(file.fileno())
            if not S_ISREG(state.st_mode):
                raise ResultsError(path, "is not a file of lines; name the folder of a run")
            return _read(file, state.st_size, take)
    except OSError as exc:
        raise ResultsError(path, f"cannot be read: {exc.strerror}; look at its permissions") from exc


def _opener(path: str, flags: int) -> int:
    """Open without waiting for the other end, should the path be a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _read(file: BinaryIO, left: int, take: Callable[[Mapping[str, object]], None]) -> Read:
    unreadable, torn, inside = 0, False, False
    while left > 0 and (line := file.readline(min(left, LONGEST_BYTES))):
        left -= len(line)
        ended = line.endswith(b"\n")
        if inside or not (ended or left <= 0):  # a piece of a line that is too long
            unreadable += not inside
            inside = not ended
        elif (table := _table(line)) is not None:
            take(table)
        elif not ended:
            torn = True
        else:
            unreadable += bool(line.strip())
    return Read(unreadable, torn)


def _table(line: bytes) -> Mapping[str, object] | None:
    try:
        found = read_json_fast(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
