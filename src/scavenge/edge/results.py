"""``results.jsonl`` on disk: appending durably, mending what a kill left, reading back for resume. Decides no policy.

Invariant: between two calls of :meth:`JsonlLog.append` the file ends with a newline or is empty, so that what is
appended is never glued to half a line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from scavenge.core.records import Brief, parse_brief
from scavenge.errors import ResultsError
from scavenge.runtime.ports import ResultLog

BLOCK_BYTES = 64 * 1024
BROKEN_KEPT = 100


@attrs.define(eq=False)
class JsonlLog:
    """A file to which whole lines are appended. Owns a descriptor until :meth:`close`.

    ``durable`` makes each append reach the disk before it returns. A torn last line that is still there when the file
    is opened (see :func:`mend`) gets its newline first. Raises :class:`ResultsError` when the file cannot be opened.
    """

    path: Path
    durable: bool = True
    _fd: int = attrs.field(init=False, repr=False)
    _broken: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as exc:
            raise ResultsError(self.path, f"cannot be opened: {exc.strerror}") from exc
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            self.append([b"\n"])
        if self.durable:
            sync_folder(self.path.parent)

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines, and put them on disk before returning where the log is durable.

        Raises :class:`ResultsError`, after which the file holds what it held before; should even that not be possible,
        every later call raises too.
        """
        if self._broken:
            raise ResultsError(self.path, "an earlier write failed and could not be undone; resume the run to mend it")
        state = os.fstat(self._fd)
        if state.st_nlink == 0:
            raise ResultsError(self.path, "was deleted while it was written to; start a new run")
        start = state.st_size
        try:
            self._write(b"".join(lines))
            if self.durable:
                os.fsync(self._fd)
        except OSError as exc:
            self._undo(start)
            raise ResultsError(self.path, f"cannot be written: {exc.strerror}; make room, then resume the run") from exc

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _undo(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError:
            self._broken = True

    def close(self) -> None:
        """Close the file. Once is enough; more does no harm."""
        fd, self._fd = self._fd, -1
        self._broken = True
        if fd >= 0:
            os.close(fd)


@attrs.frozen
class HidingLog:
    """A result log that takes secrets out of the lines first: ``hide`` gives a line without them."""

    log: ResultLog
    hide: Callable[[bytes], bytes]

    def append(self, lines: Sequence[bytes]) -> None:
        """Append the lines without their secrets. Raises what the log raises."""
        self.log.append([self.hide(line) for line in lines])


def sync_folder(path: Path) -> None:
    """Put a folder's list of names on disk. Raises :class:`ResultsError`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as exc:
        raise ResultsError(path, f"cannot be put on disk: {exc.strerror}") from exc


def mend(path: Path) -> str | None:
    """Move a last line that a kill or a full disk left torn to ``PATH.torn-N``; a sentence that says so, if it did.

    A last line is torn when it has no newline, or is no record. A file that is not there is in order. Raises
    :class:`ResultsError` when the file cannot be read or written.
    """
    try:
        with open(path, "rb+") as file:
            if (start := _torn_at(file.fileno())) is None:
                return None
            return _move_tail(path, file.fileno(), start)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ResultsError(path, f"cannot be mended: {exc.strerror}") from exc


def _torn_at(fd: int) -> int | None:
    """Where the torn last line starts; ``None``: the file ends with a whole record, or is empty."""
    size = os.fstat(fd).st_size
    if size == 0:
        return None
    ended = os.pread(fd, 1, size - 1) == b"\n"
    line = next(_lines_backwards(fd, size - ended))
    whole = ended and (_brief(line) is not None or not line.strip())
    return None if whole else size - ended - len(line)


def _move_tail(path: Path, fd: int, start: int) -> str:
    number = _count_newlines(fd, start) + 1
    size = os.fstat(fd).st_size
    torn = _copy_tail(path, fd, start, size)
    sync_folder(path.parent)
    os.ftruncate(fd, start)
    os.fsync(fd)
    return f"{path}: line {number} was cut short ({size - start} bytes): moved to {torn.name}, its sample is owed again"


def _copy_tail(path: Path, fd: int, start: int, size: int) -> Path:
    number = 1
    while (torn := path.with_name(f"{path.name}.torn-{number}")).exists():
        number += 1
    with open(torn, "xb") as copy:
        for at in range(start, size, BLOCK_BYTES):
            copy.write(os.pread(fd, min(BLOCK_BYTES, size - at), at))
        copy.flush()
        os.fsync(copy.fileno())
    return torn


def _count_newlines(fd: int, end: int) -> int:
    return sum(os.pread(fd, min(BLOCK_BYTES, end - at), at).count(b"\n") for at in range(0, end, BLOCK_BYTES))


@attrs.frozen
class Scanned:
    """What a scan met: how many lines, and the numbers (from 1, at most 100 of them) of those that are no records."""

    path: Path
    lines: int = 0
    broken: int = 0
    broken_lines: tuple[int, ...] = ()

    def complaint(self) -> str | None:
        """A sentence about the broken lines, if there are any."""
        if not self.broken:
            return None
        numbers = ", ".join(map(str, self.broken_lines)) + (", …" if self.broken > len(self.broken_lines) else "")
        which = "line" if self.broken == 1 else "lines"
        return f"{self.path}: {which} {numbers} cannot be read; a sample without another line is owed again"


def scan(path: Path, take: Callable[[Brief], None]) -> Scanned:
    """Read a whole results file as a stream, **the last line first**, and hand each record's short form to *take*.

    Newest first, the first line met for a key is the one that counts, so that nothing of a line need be kept. A file
    that is not there has no lines. Raises :class:`ResultsError` when the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return _scan(path, file.fileno(), take)
    except FileNotFoundError:
        return Scanned(path)
    except OSError as exc:
        raise ResultsError(path, f"cannot be read: {exc.strerror}") from exc


def _scan(path: Path, fd: int, take: Callable[[Brief], None]) -> Scanned:
    size = os.fstat(fd).st_size
    if size == 0:
        return Scanned(path)
    size -= os.pread(fd, 1, size - 1) == b"\n"
    lines, broken, from_end = 0, 0, list[int]()
    for line in _lines_backwards(fd, size):
        lines += 1
        if (brief := _brief(line)) is not None:
            take(brief)
        elif line.strip():
            broken += 1
            from_end = [*from_end[-BROKEN_KEPT + 1 :], lines]
    return Scanned(path, lines, broken, tuple(lines + 1 - place for place in reversed(from_end)))


def _brief(line: bytes) -> Brief | None:
    try:
        return parse_brief(line)
    except ValueError:
        return None


def _lines_backwards(fd: int, size: int) -> Iterator[bytes]:
    """The lines of a file's first *size* bytes, the last one first, without their newlines; at least one."""
    pieces: list[bytes] = []
    """The line that the next block may begin, its last piece first."""
    while size > 0:
        length = min(BLOCK_BYTES, size)
        size -= length
        head, *whole = os.pread(fd, length, size).split(b"\n")
        if whole:
            yield b"".join([whole.pop(), *reversed(pieces)])
            pieces.clear()
            yield from reversed(whole)
        pieces.append(head)
    yield b"".join(reversed(pieces))
