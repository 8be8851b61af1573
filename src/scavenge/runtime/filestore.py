"""A store of image archives on top of files by name: what every store of the usual layout is made of.

It decides in which order files are written and what of them is believed. It must not know where the files are.

Invariant: a record is written when its archive is there, and an archive is never replaced by another one (its name
holds its digest). So what is found is whole, whoever else writes, and whenever a writer was stopped.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager

import attrs

from scavenge.core.images.layout import (
    MOST_RECORD_BYTES,
    BadRecord,
    archive_name,
    kind_of,
    misfit,
    parse_record,
    read_platform,
    record_json,
    record_name,
)
from scavenge.errors import StoreError
from scavenge.images import ImageRecord, Transferred
from scavenge.runtime.ports import Report, StoreFiles


class FileStore:
    """Keeps image archives as files, each with its record.

    versionadded: 0.1
    """

    def __init__(self, files: StoreFiles) -> None:
        self._files = files

    async def find(self, image: str, platform: str) -> ImageRecord | None:
        """The record of an image for a platform; ``None``: it is not there.

        Raises :class:`scavenge.StoreError` for a file that is no record of that image, and what the files raise.
        """
        wanted = read_platform(platform)
        name = record_name(image, wanted)
        if (data := await self._read_whole(name)) is None:
            return None
        try:
            record = parse_record(data)
        except BadRecord as exc:
            raise StoreError(f"{name}: {exc}; ship the image again") from None
        if what := misfit(record, image, wanted):
            raise StoreError(f"{name}: {what}, and should be that of {image} for {platform}; ship the image again")
        return record

    @asynccontextmanager
    async def open_archive(self, record: ImageRecord) -> AsyncIterator[AsyncIterator[bytes]]:
        """The archive that a record names, as it is stored.

        Raises :class:`scavenge.StoreError` where it is not there, and what the files raise.
        """
        async with AsyncExitStack() as stack:
            try:
                pieces = await stack.enter_async_context(self._files.open_file(record.archive))
            except FileNotFoundError:
                what = f"{record.archive}: not there, although the record of {record.image} names it"
                raise StoreError(f"{what}; ship the image again") from None
            yield pieces

    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        """Store an archive, and then its record. What was there before is found until then.

        Raises :class:`scavenge.StoreError`, and what the files raise. Cancelled, it may leave an archive that no record
        names.
        """
        name = archive_name(record.image, record.platform, record.sha256, kind_of(record.archive))
        await self._files.put_file(name, archive, report)
        with _held_in_file(record_json(attrs.evolve(record, archive=name))) as file:
            await self._files.put_file(record_name(record.image, record.platform), file, _unheard)

    async def _read_whole(self, name: str) -> bytes | None:
        data = bytearray()
        async with AsyncExitStack() as stack:
            try:
                pieces = await stack.enter_async_context(self._files.open_file(name))
            except FileNotFoundError:
                return None
            async for piece in pieces:
                data += piece
                if len(data) > MOST_RECORD_BYTES:
                    break  # the reader says that it is too long
        return bytes(data)


@contextmanager
def _held_in_file(text: bytes) -> Iterator[str]:
    """A file with a few kilobytes of text in it, while the block runs."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="scavenge-", suffix=".json"))
            file.write(text)
            file.flush()
        except OSError as exc:
            what = f"the record cannot be held in a temporary file: {exc.strerror}"
            raise StoreError(f"{what}; make room, or see TMPDIR") from exc
        yield file.name


def _unheard(transferred: Transferred) -> None:
    """A record is too small for anybody to watch."""
