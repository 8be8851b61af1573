"""Image archives in a folder: one on this machine, or one that many machines mount.

Decides how a file comes into the folder: under a name of its own that begins with a dot, put on disk, and then renamed.
So a file is never seen half, also when the machine goes down. What a killed process left of a file goes when that file
is stored the next time, a day later at the soonest: it may be another machine's that is still at it. What is read is
read in threads, and never in the loop.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

import attrs

from scavenge.core.naming import one_line
from scavenge.edge.images.durable import sync_folder
from scavenge.edge.images.pieces import PIECE_BYTES, Pieces, read_piece
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import StoreError
from scavenge.images import Transferred
from scavenge.runtime.ports import Report

THREADS = 4
"""How many files are read and written at a time; a folder that hangs (a dead mount) holds no more threads."""

DEAD_S = 86_400.0
"""A part that nobody has written to for so long is nobody's."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@attrs.frozen
class FolderConfig:
    """The keys of an ``[[images.store]]`` of type ``folder``."""

    path: Path


class FolderFiles:
    """The files of a folder, by their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = LimitedThreads(THREADS)

    @asynccontextmanager
    async def open_file(self, name: str, start: int = 0) -> AsyncIterator[AsyncIterator[bytes]]:
        """A file's bytes from *start* on.

        Raises ``FileNotFoundError`` where the folder does not have it, :class:`StoreError` where it cannot be read.
        Cancelled, it leaves at most a read behind that nobody waits for.
        """
        pieces = Pieces(partial(self._read, name), start)
        await pieces.fetch()
        yield pieces

    async def _read(self, name: str, at: int) -> bytes:
        return await self._threads.run(partial(self._read_piece, name, at), abandon_on_cancel=True)

    def _read_piece(self, name: str, at: int) -> bytes:
        path = self._path(name)
        with self._told(path):
            try:
                return read_piece(path, at)
            except FileNotFoundError:
                if self._folder.is_dir():
                    raise
                what = "there is no such folder, so nothing can be said of what is in it; mount it, or see `path`"
                raise StoreError(f"{one_line(str(self._folder))}: {what}") from None

    async def put_file(self, name: str, file: str, report: Report) -> None:
        """Store the file at the path *file* under a name.

        Raises :class:`StoreError`. Cancelled, it leaves nothing behind.
        """
        path = self._path(name)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            with self._told(path):
                await self._threads.run(partial(self._make_room, part.parent))
                await self._threads.run(partial(_remove_dead, path))
                async with _Copy.begin(self._threads, Path(file), part) as copy:
                    while await self._threads.run(copy.step):
                        report(copy.transferred())
                await self._threads.run(partial(_settle, part, path))
        finally:
            with suppress(OSError):  # it has its name, or never came to be
                part.unlink(missing_ok=True)

    def _make_room(self, folder: Path) -> None:
        """Make the folder itself, and those in it; what it lies in has to be there, or a mount is missing."""
        try:
            self._folder.mkdir(exist_ok=True)
        except FileNotFoundError:
            what = "it cannot be made, since the folder that it should lie in is not there; see `path`"
            raise StoreError(f"{one_line(str(self._folder))}: {what}") from None
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise StoreError(f"{one_line(str(self._folder))}: {one_line(name)!r} is no name of a file in it")
        return self._folder / name

    @contextmanager
    def _told(self, path: Path) -> Iterator[None]:
        """Say which file it is about, in one line with a remedy. One that is not there is nothing to be told."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as exc:
            remedy = "make room there" if exc.errno in _FULL else "see `path` and its permissions"
            raise StoreError(f"{one_line(str(path))}: {exc.strerror or exc}; {remedy}") from None


@attrs.define
class _Copy:
    """A file that is being copied. Its calls block."""

    source: IO[bytes]
    target: IO[bytes]
    total_bytes: int

    @classmethod
    @asynccontextmanager
    async def begin(cls, threads: LimitedThreads, file: Path, part: Path) -> AsyncIterator[_Copy]:
        """A copy of *file* that becomes *part*, which must not exist."""
        with ExitStack() as stack:
            copy = await threads.run(partial(cls._open, stack, file, part))
            yield copy

    @classmethod
    def _open(cls, stack: ExitStack, file: Path, part: Path) -> _Copy:
        source = stack.enter_context(file.open("rb"))
        target = stack.enter_context(part.open("xb", buffering=0))
        return cls(source, target, os.fstat(source.fileno()).st_size)

    def step(self) -> bool:
        """Copy one piece; at the end, put the whole on disk. Whether there may be more."""
        if piece := self.source.read(PIECE_BYTES):
            view = memoryview(piece)
            while view:
                view = view[self.target.write(view) :]
            return True
        os.fsync(self.target.fileno())
        return False

    def transferred(self) -> Transferred:
        """How far it is."""
        return Transferred(self.target.tell(), self.total_bytes)


def _remove_dead(path: Path) -> None:
    """Remove what killed processes left of a file."""
    for part in path.parent.glob(f".{path.name}.*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > DEAD_S:
                part.unlink()


def _settle(part: Path, path: Path) -> None:
    """Give a file that is whole its name, and put the name on disk."""
    part.replace(path)
    sync_folder(path.parent)
