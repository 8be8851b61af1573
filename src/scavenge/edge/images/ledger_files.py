"""Files with a line an event, each owned by one process that lives: made, read, taken over from the dead, deleted.

Ownership is an exclusive ``flock``, which the system takes back when its owner dies, whatever way. Who deletes a file
has its lock, and who has got a lock looks whether the file is still there. Knows nothing of what the lines say.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from scavenge.edge.images.durable import sync_folder

SUFFIX = ".jsonl"
_TRIES = 10
"""How often a file is made anew that somebody looked at between its making and its lock."""


def ledger_files(folder: Path) -> list[Path]:
    """The files in a folder; none where it cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX and path.is_file())
    except OSError:
        return []


def make_owned(folder: Path) -> tuple[Path, int]:
    """A new file and a descriptor that holds its lock. Raises :class:`OSError`."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for _ in range(_TRIES):
        path = folder / f"{os.getpid()}-{time.time_ns() // 1_000_000}-{os.urandom(4).hex()}{SUFFIX}"
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if _lock(fd, path):
                sync_folder(folder)
                return path, fd
        except OSError:
            leave(fd, path, delete=True)
            raise
        os.close(fd)  # whoever had the lock takes the file for a dead one's, with nothing in it
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def take_over(path: Path) -> int | None:
    """A descriptor that holds the lock of a dead one's file; ``None``: its owner lives, or it cannot be had."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    with suppress(OSError):
        if _lock(fd, path):
            return fd
    os.close(fd)
    return None


def is_owned(path: Path) -> bool:
    """Whether the owner of a file lives, as far as that can be seen; where there are no locks it may."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # a shared one, so that two who look see the same
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def whole_lines(fd: int, start: int = 0) -> bytes:
    """What a file has from *start* to the end of its last whole line. Raises :class:`OSError`."""
    text = bytearray()
    while piece := os.pread(fd, 1 << 20, start + len(text)):
        text += piece
    return bytes(text[: text.rfind(b"\n") + 1])


def append(fd: int, lines: bytes) -> None:
    """Write lines, whole or not at all. Raises :class:`OSError`."""
    size = os.fstat(fd).st_size
    try:
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, size)
        raise


def leave(fd: int, path: Path, *, delete: bool) -> None:
    """Give a file up, and *delete* it before anybody else has it."""
    if delete:
        with suppress(OSError):
            path.unlink()
    os.close(fd)


def _lock(fd: int, path: Path) -> bool:
    """Lock a file; ``False``: somebody else has it, or has deleted it. Raises :class:`OSError`."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False
