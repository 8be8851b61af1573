"""An archive as it comes from a store: checked against its record and inflated, on its way to an engine.

It decides what is not let through: the end of an archive that is not the one of its record. The last of it is held back
until all has been seen, so that no engine takes one for whole that is not. Hashing and inflating is done in threads.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from functools import partial

import attrs

from scavenge.core.images.archive_image import compression_of
from scavenge.core.naming import one_line
from scavenge.edge.images.inflating import BadCompression, CannotInflate, Inflater
from scavenge.errors import StoreError, leaves
from scavenge.images import Broken, DeliveryEnd, ImageRecord, Throttled, Transferred, Unfit
from scavenge.runtime.ports import Report, Threads

PIECE_BYTES = 2**20
HELD_BYTES = 2**17
"""How much is held back at least: more than the zeroes that a tar ends with (10 KiB), after which nobody reads on."""


class Stopped(Exception):
    """The delivery is over; ``end`` says how."""

    def __init__(self, end: DeliveryEnd) -> None:
        super().__init__(end)
        self.end = end


def told(error: BaseException) -> str:
    """What a store raised, in one line."""
    leaf = next(iter(leaves(error)))
    text = one_line(str(leaf)) or type(leaf).__name__
    return text if isinstance(leaf, StoreError) or text == type(leaf).__name__ else f"{type(leaf).__name__}: {text}"


def broke(error: BaseException) -> Broken | Throttled:
    """What it means that a store raised something."""
    for leaf in leaves(error):
        if isinstance(leaf, StoreError) and leaf.retry_after_s is not None:
            return Throttled(told(leaf), leaf.retry_after_s)
    return Broken(told(error))


@attrs.define(eq=False)
class Checked:
    """The archive of a record as a plain tar.

    Reading it raises :class:`Stopped`: for what the store raises, and at the end for what is not as the record says.
    """

    pieces: AsyncIterator[bytes]
    record: ImageRecord
    threads: Threads
    report: Report
    whole: bool = attrs.field(default=False, init=False)
    """Whether all has been seen, and was right."""
    _hasher: hashlib._Hash = attrs.field(factory=hashlib.sha256, init=False)
    _size_bytes: int = attrs.field(default=0, init=False)
    _inflater: Inflater | None = attrs.field(default=None, init=False)
    _inflating: Iterator[bytes] = attrs.field(factory=lambda: iter(()), init=False)
    _held: deque[bytes] = attrs.field(factory=deque, init=False)
    _held_bytes: int = attrs.field(default=0, init=False)

    def __aiter__(self) -> Checked:
        return self

    async def __anext__(self) -> bytes:
        while not self.whole and self._held_bytes < HELD_BYTES + (len(self._held[0]) if self._held else 0):
            if piece := await self._plain():
                self._held.append(piece)
                self._held_bytes += len(piece)
            else:
                self._check()
        if not self._held:
            raise StopAsyncIteration
        piece = self._held.popleft()
        self._held_bytes -= len(piece)
        return piece

    async def _plain(self) -> bytes:
        """The next piece of the tar, empty at its end."""
        while True:
            if self._inflater is not None and (piece := await self.threads.run(self._inflate)):
                return piece
            stored = await self._stored()
            if not stored:
                return b""
            await self.threads.run(partial(self._take_in, stored))
            self.report(Transferred(self._size_bytes, self.record.size_bytes or None))
            if self._inflater is None:
                return stored
            self._inflating = self._inflater.feed(stored)

    async def _stored(self) -> bytes:
        """The next piece as it is stored, of a decent size, empty at the end."""
        gathered = bytearray()
        try:
            while len(gathered) < PIECE_BYTES and (piece := await anext(self.pieces, None)) is not None:
                gathered += piece
        except Exception as exc:  # whatever a store raises
            raise Stopped(broke(exc)) from exc
        return bytes(gathered)

    def _take_in(self, stored: bytes) -> None:
        if not self._size_bytes and (kind := compression_of(stored)):
            try:
                self._inflater = Inflater(kind)
            except CannotInflate as exc:
                raise Stopped(Unfit(f"{self.record.archive}: {exc}")) from None
        self._hasher.update(stored)
        self._size_bytes += len(stored)

    def _inflate(self) -> bytes:
        gathered = bytearray()
        try:
            while len(gathered) < PIECE_BYTES and (piece := next(self._inflating, b"")):
                gathered += piece
            return bytes(gathered)
        except BadCompression as exc:
            raise Stopped(Unfit(f"{self.record.archive}: {exc}")) from None

    def _check(self) -> None:
        """All has come: raise unless it is what the record says."""
        if end := differing(self.record, self._hasher.hexdigest(), self._size_bytes):
            raise Stopped(end)
        if self._inflater is not None and not self._inflater.whole:
            raise Stopped(Unfit(f"{self.record.archive}: its compressed data has no end"))
        self.whole = True


def differing(record: ImageRecord, sha256: str, size_bytes: int) -> Broken | Unfit | None:
    """What is wrong with an archive of which so much has come, with that digest.

    A record without a digest is that of a store which checks what it gives; its size may be 0: not known.
    """
    known = record.sha256 or record.size_bytes
    if not known or (sha256, size_bytes) == (record.sha256 or sha256, record.size_bytes):
        return None
    if size_bytes < record.size_bytes:
        return Broken(f"{record.archive}: it ended after {size_bytes} of {record.size_bytes} bytes")
    if size_bytes > record.size_bytes:
        return Unfit(f"{record.archive}: longer than its record says, {size_bytes} bytes and not {record.size_bytes}")
    return Unfit(f"{record.archive}: its sha256 is {sha256}, and its record says {record.sha256}")
