"""Brings archives of images into a store, and proves that they have arrived: read back whole, and found again.

Decides when an image is there already, and when it has arrived. It must not know what kind of store it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs

from scavenge.core.images.layout import misfit
from scavenge.edge.images.pieces import local_pieces
from scavenge.edge.images.stored import differing, told
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import StoreError
from scavenge.images import ImageRecord, Transferred
from scavenge.runtime.ports import ImageStore, Report, Threads


class Step(Enum):
    """What is done with an archive; each step sees all of its bytes."""

    CHECKING = "checking"
    SENDING = "sending"
    READING_BACK = "reading back"


ShipReport: TypeAlias = Callable[[str, Step, Transferred], None]
"""Is told now and then which image is how far; neither waits nor raises."""


@attrs.frozen
class Shipped:
    """An image is in the store. ``was_there``: it had been shipped before, and nothing was sent."""

    record: ImageRecord
    was_there: bool


@attrs.frozen
class NotShipped:
    """An image did not get into the store."""

    image: str
    why: str


def _to_nobody(image: str, step: Step, transferred: Transferred) -> None:
    """Nobody watches."""


@attrs.frozen
class Shipper:
    """Ships into one store, which messages call *label*."""

    label: str
    store: ImageStore
    report: ShipReport = _to_nobody
    threads: Threads = attrs.field(factory=lambda: LimitedThreads(1))

    async def ship_all(self, archives: Iterable[tuple[ImageRecord, Path]]) -> list[Shipped | NotShipped]:
        """Ship archives with their records one after the other. One that fails does not stop the others."""
        return [await self._try(record, archive) for record, archive in archives]

    async def _try(self, record: ImageRecord, archive: Path) -> Shipped | NotShipped:
        try:
            return await self.ship(record, archive)
        except Exception as exc:  # whatever a store raises is told, and the next one is tried
            return NotShipped(record.image, told(exc))

    async def ship(self, record: ImageRecord, archive: Path) -> Shipped:
        """Ship one archive, unless it is there.

        Raises :class:`StoreError` for what is not what its record says, here or read back, and what the store raises.
        Cancelled, it leaves what the store leaves.
        """
        if (found := await self._there(record)) is not None:
            return Shipped(found, was_there=True)
        await self._check(record, archive)
        await self.store.put(record, str(archive), self._telling(record, Step.SENDING))
        if (found := await self._find(record)) is None:
            raise self._error(record, "it was stored, and cannot be found there")
        await self._read_back(found)
        if (again := await self._find(record)) is None or again.archive != found.archive:
            raise self._error(record, "its record changed while it was read back; somebody else ships it, too")
        return Shipped(found, was_there=False)

    async def _find(self, record: ImageRecord) -> ImageRecord | None:
        """The record in the store, if it is of the very same image."""
        found = await self.store.find(record.image, str(record.platform))
        if found is None or misfit(found, record.image, record.platform):
            return None
        if (found.config_digest, found.diff_ids) != (record.config_digest, record.diff_ids):
            return None
        return found if found.sha256 in (record.sha256, "") else None

    async def _there(self, record: ImageRecord) -> ImageRecord | None:
        """The record of the very same image, if its archive is there as far as its first bytes."""
        try:
            if (found := await self._find(record)) is not None:
                async with self.store.open_archive(found) as pieces:
                    return found if await anext(pieces, None) is not None or not found.size_bytes else None
        except Exception:  # a folder that is still to be made, a record that is damaged; putting tells what is wrong
            return None
        return None

    async def _check(self, record: ImageRecord, archive: Path) -> None:
        size_bytes = (await self.threads.run(archive.stat)).st_size
        hasher = hashlib.sha256()
        async for piece in local_pieces(archive, size_bytes, self.threads, self._telling(record, Step.CHECKING)):
            await self.threads.run(partial(hasher.update, piece))
        if (hasher.hexdigest(), size_bytes) != (record.sha256, record.size_bytes):
            what = f"{archive} is not what its record says; pack the image again"
            raise StoreError(f"{record.image}: {what}")

    async def _read_back(self, found: ImageRecord) -> None:
        """Read the archive that is in the store to its end."""
        report = self._telling(found, Step.READING_BACK)
        hasher, size_bytes = hashlib.sha256(), 0
        async with self.store.open_archive(found) as pieces:
            async for piece in pieces:
                await self.threads.run(partial(hasher.update, piece))
                size_bytes += len(piece)
                report(Transferred(size_bytes, found.size_bytes or None))
        if end := differing(found, hasher.hexdigest(), size_bytes):
            raise self._error(found, f"read back, it is not what was sent: {end.why}; ship it again")

    def _telling(self, record: ImageRecord, step: Step) -> Report:
        return partial(self.report, record.image, step)

    def _error(self, record: ImageRecord, what: str) -> StoreError:
        return StoreError(f"{record.image} in {self.label}: {what}")
