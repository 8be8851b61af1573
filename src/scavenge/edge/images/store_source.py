"""Images out of a store: an archive that was shipped there, streamed into the engine without a copy on disk.

Decides what a store's answers mean for the image. It must not know what kind of store it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scavenge.core.images.layout import misfit
from scavenge.core.naming import one_line
from scavenge.edge.images.stored import Checked, Stopped, broke
from scavenge.edge.images.verify import delivered
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import EngineError, leaves
from scavenge.images import Broken, Delivered, DeliveryEnd, EngineSilent, ImageRecord, Missing, Platform
from scavenge.runtime.ports import ImageEngine, ImageStore, Report, Threads

THREADS = 2
"""How many archives are hashed and inflated at a time."""


class StoreSource:
    """Delivers what a store has. Whoever opened the store keeps it open."""

    def __init__(self, label: str, store: ImageStore, engine: ImageEngine, threads: Threads | None = None) -> None:
        self.label = label
        self._store = store
        self._engine = engine
        self._threads = threads or LimitedThreads(THREADS)

    def lane(self, image: str) -> str:
        """All that comes from one store counts together."""
        return self.label

    async def deliver(self, image: str, report: Report) -> DeliveryEnd:
        """Bring an image into the engine, and check it: its archive's digest on the way, its layers' afterwards."""
        try:
            platform = (await self._engine.info()).platform
            record = await self._find(image, platform)
            end = await self._load(record, platform, report)
            if not isinstance(end, Delivered):
                return end
            return await delivered(self._engine, image, platform, record.diff_ids)
        except Stopped as exc:
            return exc.end
        except EngineError as exc:
            return EngineSilent(str(exc)) if exc.silent else Broken(str(exc))

    async def _find(self, image: str, platform: Platform) -> ImageRecord:
        try:
            record = await self._store.find(image, str(platform))
        except Exception as exc:  # whatever a store raises
            raise Stopped(broke(exc)) from exc
        if record is None:
            raise Stopped(Missing("not in it"))
        if what := misfit(record, image, platform):
            raise Stopped(Missing(f"not in it for {platform}: {one_line(what)}"))
        return record

    async def _load(self, record: ImageRecord, platform: Platform, report: Report) -> DeliveryEnd:
        async with self._opened(record) as pieces:
            archive = Checked(pieces, record, self._threads, report)
            end = await self._engine.load(archive, platform)
            if isinstance(end, Delivered) and (wrong := await _wrong_behind(archive)) is not None:
                await self._engine.remove(record.image)
                return wrong
            return end

    @asynccontextmanager
    async def _opened(self, record: ImageRecord) -> AsyncIterator[AsyncIterator[bytes]]:
        """The archive of a record; what the store raises is :class:`Stopped`, what else comes out is as it was."""
        try:
            async with self._store.open_archive(record) as pieces:
                yield pieces
        except Exception as exc:
            ours = [leaf for leaf in leaves(exc) if isinstance(leaf, (Stopped, EngineError))]
            raise (ours[0] if ours else Stopped(broke(exc))) from exc


async def _wrong_behind(archive: Checked) -> DeliveryEnd | None:
    """What is wrong with an archive, by what comes behind that which the engine has waited for."""
    try:
        async for _ in archive:
            pass
    except Stopped as exc:
        return exc.end
    return None
