"""Stores and archives for tests of what comes out of a store."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from fake_images import AMD64, FakeImage, docker_archive
from scavenge.images import ImageRecord, Transferred
from scavenge.runtime.ports import Report

IMAGE = "docker.io/library/x:1"


def record_of(image: FakeImage, data: bytes, name: str = IMAGE) -> ImageRecord:
    return ImageRecord(
        image=name,
        platform=image.platform,
        config_digest=image.image_id,
        diff_ids=image.diff_ids,
        archive="x.tar",
        size_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        created="2026-01-31T12:00:00Z",
        made_by="test",
    )


def archive_of(image: FakeImage, name: str = IMAGE) -> bytes:
    return docker_archive([(name, image)])


@attrs.define
class Pieces:
    data: bytes
    size: int
    error: Exception | None = None
    """What comes in place of the end."""
    at: int = 0

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        piece, self.at = self.data[self.at : self.at + self.size], self.at + self.size
        if not piece and self.error is not None:
            raise self.error
        if not piece:
            raise StopAsyncIteration
        return piece


@attrs.define
class MemoryStore:
    """A store whose every answer can be changed."""

    record: ImageRecord | None = None
    data: bytes = b""
    piece_bytes: int = 10_000
    find_error: Exception | None = None
    open_error: Exception | None = None
    read_error: Exception | None = None
    put_error: Exception | None = None
    nursery: bool = False
    """Whether the block of an archive has a nursery around it, as that of a store with tasks."""
    spoil: bytes | None = None
    """What is stored in place of what is put."""
    calls: list[str] = attrs.field(factory=list)

    async def find(self, image: str, platform: str) -> ImageRecord | None:
        self.calls.append("find")
        await trio.lowlevel.checkpoint()
        if self.find_error is not None:
            raise self.find_error
        return self.record

    @asynccontextmanager
    async def open_archive(self, record: ImageRecord) -> AsyncIterator[AsyncIterator[bytes]]:
        self.calls.append("open")
        await trio.lowlevel.checkpoint()
        if self.open_error is not None:
            raise self.open_error
        pieces = Pieces(self.data, self.piece_bytes, self.read_error)
        if not self.nursery:
            yield pieces
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            yield pieces
            nursery.cancel_scope.cancel()

    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        self.calls.append("put")
        await trio.lowlevel.checkpoint()
        if self.put_error is not None:
            raise self.put_error
        data = Path(archive).read_bytes()
        report(Transferred(len(data), len(data)))
        self.record, self.data = record, data if self.spoil is None else self.spoil


def large(layers: Sequence[bytes] = (b"l" * 1_500_000,)) -> FakeImage:
    return FakeImage(layers=tuple(layers), platform=AMD64)
