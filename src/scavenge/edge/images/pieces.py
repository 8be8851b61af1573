"""Bytes of files that are read piece by piece in threads. Decides nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import attrs
import trio

from scavenge.images import Transferred
from scavenge.runtime.ports import Report, Threads

PIECE_BYTES = 4 * 2**20


@attrs.define
class Pieces:
    """The pieces of a file, one after the other; the first one may be fetched ahead."""

    read: Callable[[int], Awaitable[bytes]]
    """Reads the piece that begins at a place; an empty one is the end."""
    at: int = 0
    piece: bytes | None = None

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        if self.piece is None:
            await self.fetch()
        else:
            await trio.lowlevel.checkpoint()
        piece, self.piece = self.piece, None
        if not piece:
            raise StopAsyncIteration
        return piece

    async def fetch(self) -> None:
        """Read the next piece, which is given out then."""
        self.piece = await self.read(self.at)
        self.at += len(self.piece)


def read_piece(path: Path, at: int) -> bytes:
    """Read one piece of a file; blocks. The file is opened for it alone, so a read that hangs can be left behind."""
    with path.open("rb", buffering=0) as file:
        file.seek(at)
        return file.read(PIECE_BYTES)


def local_pieces(path: Path, size_bytes: int, threads: Threads, report: Report) -> Pieces:
    """A local file of a known size; *report* hears how much of it was given out."""

    async def read(at: int) -> bytes:
        piece = await threads.run(partial(read_piece, path, at), abandon_on_cancel=True)
        report(Transferred(at, size_bytes))
        return piece

    return Pieces(read)
