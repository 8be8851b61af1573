"""What is done about container images: one errand a command of the image plan, and its news back to the plan.

Knows neither who waits nor why something is done. Invariants: what is brought is in the ledger before its source is
asked, and leaves it only when it is gone or never came; the plan hears of the end of each errand exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Protocol, TypeVar

import attrs
import trio

from scavenge.core.images.commands import Deliver
from scavenge.core.images.plan import ImagePlan
from scavenge.errors import EngineError
from scavenge.events import ImageFetching, ImageReady, ImageReleased, Observer
from scavenge.images import Delivered, EngineInfo, EngineSilent, InUse, NotRemoved, RemovalEnd, Removed
from scavenge.runtime.ports import ImageEngine, ImageLedger, ImageSource, Threads

REMOVALS_AT_ONCE = 4

T = TypeVar("T")


class LedgerBook(Protocol):
    """The ledgers of this machine."""

    def open(self, engine: EngineInfo) -> ImageLedger:
        """This process's own ledger for an engine, kept open until the run ends. Blocks."""
        ...

    def take_over(self, engine: EngineInfo) -> Sequence[str]:
        """The images that dead processes brought and left; noted in our own ledger from now on. Blocks."""
        ...


@attrs.frozen(eq=False)
class ImagePorts:
    """What a pool of images needs of the world."""

    engine: ImageEngine
    sources: tuple[ImageSource, ...]
    """In the order in which they are tried."""
    ledgers: LedgerBook
    threads: Threads
    """Of its own, one at a time: the ledger's."""
    emit: Observer
    random: Random


@attrs.define(eq=False)
class ImageErrands:
    """Runs the errands of one pool. ``changed`` is called when the plan has heard something."""

    plan: ImagePlan
    ports: ImagePorts
    keep: bool
    """Whether what is brought stays, so that it is nobody's to remove."""
    changed: Callable[[], None]
    _ledger: ImageLedger | None = attrs.field(default=None, init=False)
    _unclaimed: list[str] = attrs.field(factory=list, init=False)

    def claim_later(self, images: Sequence[str]) -> None:
        """Take images for needed; the ledger hears of it with the next errand. Never waits."""
        self._unclaimed.extend(images)

    async def list_images(self) -> None:
        """Ask the engine what it has."""
        try:
            await self._meet_engine()
            names = {name for image in await self.ports.engine.list_images() for name in image.names}
        except EngineError as exc:
            self.plan.unlisted(str(exc), trio.current_time())
        else:
            self.plan.listed(names, trio.current_time())
        self.changed()
        await self._claim()

    async def _meet_engine(self) -> None:
        """Learn which engine it is, and open its ledger; once."""
        engine = await self.ports.engine.info()
        if self._ledger is not None:
            return
        self._ledger = await self._blocking(partial(self.ports.ledgers.open, engine))
        if not self.keep:
            for image in await self._blocking(partial(self.ports.ledgers.take_over, engine)):
                self.plan.adopt(image)

    async def _claim(self) -> None:
        """Note in the ledger what is needed, so that nobody else removes it."""
        if self._unclaimed and self._ledger is not None:
            images, self._unclaimed = list(dict.fromkeys(self._unclaimed)), []
            await self._blocking(partial(self._ledger.need, images))

    async def look_at_disk(self) -> None:
        """Find out how much room there is."""
        room = await self.ports.threads.run(self.ports.engine.disk, abandon_on_cancel=True)
        self.plan.disk(room, trio.current_time())
        self.changed()

    async def deliver(self, command: Deliver) -> None:
        """Have a source bring an image."""
        image, source = command.image, self.ports.sources[command.source]
        lane, started_at = source.lane(image), trio.current_time()
        self.ports.emit(ImageFetching(image, lane))
        await self._claim()
        if self._ledger is not None and not self.keep:
            await self._blocking(partial(self._ledger.bring, image))
        end = await source.deliver(image, partial(self.plan.progressed, image))
        now = trio.current_time()
        if isinstance(end, Delivered):
            self.ports.emit(ImageReady(image, lane, now - started_at, end.size_bytes))
        elif self._ledger is not None and not isinstance(end, EngineSilent):
            await self._blocking(partial(self._ledger.let_go, image))
        self.plan.delivery_ended(image, end, now)
        self.changed()

    async def remove(self, image: str) -> None:
        """Remove an image that this run brought, unless another process needs it: it is left to the last one."""
        self.plan.removed(image, await self._removal(image), trio.current_time())
        self.changed()

    async def remove_all(self, images: Sequence[str]) -> None:
        """Remove images, a few at a time; what cannot be removed stays in the ledger."""
        limiter = trio.CapacityLimiter(REMOVALS_AT_ONCE)

        async def remove(image: str) -> None:
            async with limiter:
                await self.remove(image)

        async with trio.open_nursery() as nursery:
            for image in images:
                nursery.start_soon(remove, image)

    async def _removal(self, image: str) -> RemovalEnd:
        ledger = self._ledger
        if ledger is None:
            return NotRemoved("the engine has not been heard")
        if await self._blocking(partial(ledger.is_needed_elsewhere, image)):
            return InUse("another run needs it")
        try:
            end = await self.ports.engine.remove(image)
        except EngineError as exc:
            return NotRemoved(str(exc))
        if isinstance(end, Removed):
            await self._blocking(partial(ledger.let_go, image))
        self.ports.emit(ImageReleased(image, "" if isinstance(end, Removed) else end.why))
        return end

    async def _blocking(self, step: Callable[[], T]) -> T:
        return await self.ports.threads.run(step)
