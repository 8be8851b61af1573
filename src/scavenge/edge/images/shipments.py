"""Images out of tars on this machine's disks. Decides what is wrong with an image that its tars do not give.

Only the one image goes to the engine (:func:`scavenge.edge.images.archives.open_one_image`). Of several tars that have
it the newest is tried first; an image that turns out to be damaged in one of them is not taken from there again for as
long as the file stays as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import attrs
import trio

from scavenge.core.images.archive_values import BadArchive
from scavenge.core.naming import listed, one_line
from scavenge.edge.images.archives import FileChanged, OneImage, open_one_image
from scavenge.edge.images.inflating import CannotInflate
from scavenge.edge.images.tar_index import Place, TarIndex
from scavenge.edge.images.verify import delivered, runs_on
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import EngineError
from scavenge.images import Broken, Delivered, DeliveryEnd, EngineSilent, Missing, Platform, Transferred, Unfit
from scavenge.runtime.ports import ImageEngine, Report, Threads

LABEL = "shipments"
THREADS = 2
"""How many archives are read and checked at a time."""


class ShipmentSource:
    """Delivers what is in the tars of an index."""

    label = LABEL

    def __init__(self, engine: ImageEngine, index: TarIndex, threads: Threads | None = None) -> None:
        self._engine, self._index, self._threads = engine, index, threads or LimitedThreads(THREADS)
        self._set_aside: dict[Place, str] = {}

    def lane(self, image: str) -> str:
        """All tars count together."""
        return LABEL

    async def deliver(self, image: str, report: Report) -> DeliveryEnd:
        """Bring an image into the engine from the newest tar that has it whole."""
        await trio.lowlevel.checkpoint()
        try:
            platform = (await self._engine.info()).platform
            places = await self._index.find(image)
            fitting = [place for place in places if runs_on(platform, place.entry.platform)]
            if not fitting:
                return self._absent(places, platform)
            return await self._from_one_of(fitting, image, platform, report)
        except EngineError as exc:
            return EngineSilent(str(exc)) if exc.silent else Broken(str(exc))

    def _absent(self, places: Sequence[Place], platform: Platform) -> DeliveryEnd:
        if growing := self._index.growing:
            return Broken(f"not in any of the tars; still being written: {listed(map(str, growing), 3)}")
        if others := sorted({str(place.entry.platform) for place in places}):
            return Missing(f"in {places[0].path} for {listed(others)}, and the engine runs {platform}")
        return Missing(f"not in any of {self._index.archives} archives")

    async def _from_one_of(
        self, places: Sequence[Place], image: str, platform: Platform, report: Report
    ) -> DeliveryEnd:
        """Try the tars in turn. A file that is gone or changed is listed anew next time; what is damaged stays so."""
        await trio.lowlevel.checkpoint()
        gone, damaged = "", ""
        for place in places:
            if why := self._set_aside.get(place):
                damaged = damaged or why
                continue
            try:
                end = await self._load(place, image, platform, report)
            except (FileNotFoundError, FileChanged):
                self._index.forget(place)
                gone = gone or f"{place.path} was removed or changed meanwhile"
                continue
            except OSError as exc:
                gone = gone or f"{place.path} cannot be read: {exc.strerror}"
                continue
            except (BadArchive, CannotInflate) as exc:
                end = Unfit(one_line(f"{place.path}: {exc}"))
            if not isinstance(end, Unfit):
                return end
            self._set_aside[place] = end.why
            damaged = damaged or end.why
        return Broken(gone) if gone else Unfit(damaged)

    async def _load(self, place: Place, image: str, platform: Platform, report: Report) -> DeliveryEnd:
        entry = place.entry
        async with open_one_image(place.path, entry, image, self._threads, place.key) as archive:
            end = await self._engine.load(_Reported(archive, report), platform)
        return await delivered(self._engine, image, platform, entry.diff_ids) if isinstance(end, Delivered) else end


@attrs.define(eq=False)
class _Reported:
    """An archive on its way, told of."""

    archive: OneImage
    report: Report
    _done_bytes: int = attrs.field(default=0, init=False)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        self.report(Transferred(self._done_bytes, self.archive.size_bytes))
        piece = await anext(self.archive)
        self._done_bytes += len(piece)
        return piece
