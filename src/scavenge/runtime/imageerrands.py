"""What is done about container images: one errand a command of the image plan, and its news back to the plan.

Knows neither who waits nor why something is done. Invariants: what is brought is in the ledger before its source is
asked, and leaves it only when it is gone or cannot have come; the plan hears of the end of each errand exactly once.
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
from scavenge.core.images.reference import familiar
from scavenge.core.naming import listed
from scavenge.errors import EngineError
from scavenge.events import ImageFetching, ImageReady, ImageReleased, Observer, Warned
from scavenge.images import (
    Delivered,
    Denied,
    DiskFull,
    DiskRoom,
    EngineInfo,
    InUse,
    Missing,
    NotRemoved,
    RemovalEnd,
    Removed,
    Throttled,
)
from scavenge.runtime.ports import ImageEngine, ImageLedger, ImageSource, Threads

REMOVALS_AT_ONCE = 4
NOTHING_CAME = (Missing, Denied, Throttled, DiskFull)
"""The ends of a delivery after which the engine cannot have the image; after others it may."""
LOOK_WITHIN_S = 10.0
"""How long a look at the disk may take; after that its room counts as unseen."""

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
    looking: Threads
    """For looks at the disk, of which one may hang."""
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
    _engine: EngineInfo | None = attrs.field(default=None, init=False)
    """The one whose ledger that is."""
    _ours: set[str] = attrs.field(factory=set, init=False)
    """What was not there when it was to be brought first."""
    _left: dict[str, None] = attrs.field(factory=dict, init=False)
    """What is to be removed at the end, and is not yet."""
    _unclaimed: list[str] = attrs.field(factory=list, init=False)

    def claim_later(self, images: Sequence[str]) -> None:
        """Take images for needed; the ledger hears of it by :meth:`claim`. Never waits."""
        self._unclaimed.extend(images)

    async def list_images(self) -> None:
        """Ask the engine what it has."""
        try:
            await self._meet_engine()
            await self.claim()  # first, so that nobody removes what is seen
            names = {name for image in await self.ports.engine.list_images() for name in image.names}
        except EngineError as exc:
            self.plan.unlisted(str(exc), trio.current_time())
        else:
            self.plan.listed(names, trio.current_time())
        self.changed()

    async def _meet_engine(self) -> None:
        """Learn which engine it is, and open its ledger where it is another one than before."""
        engine = await self.ports.engine.info()
        if self._engine is not None and self._engine.engine_id == engine.engine_id:
            return
        if self._engine is not None:
            self.plan.disown()
            self._ours.clear()
        self._ledger, self._engine = await self._blocking(partial(self.ports.ledgers.open, engine)), engine
        await self._take_over(engine)

    async def _take_over(self, engine: EngineInfo) -> None:
        """Take what processes left that have ended: it is ours to remove."""
        if not self.keep:
            for image in await self._blocking(partial(self.ports.ledgers.take_over, engine)):
                self.plan.adopt(image)

    @property
    def has_claims(self) -> bool:
        """Whether something is to be noted by :meth:`claim`."""
        return bool(self._unclaimed) and self._ledger is not None

    async def claim(self) -> None:
        """Note in the ledger what is needed, so that nobody else removes it."""
        if self._unclaimed and self._ledger is not None:
            images, self._unclaimed = list(dict.fromkeys(self._unclaimed)), []
            await self._blocking(partial(self._ledger.need, images))

    async def look_at_disk(self) -> None:
        """Find out how much room there is."""
        room: DiskRoom | None = None
        with trio.move_on_after(LOOK_WITHIN_S):
            room = await self.ports.looking.run(self.ports.engine.disk, abandon_on_cancel=True)
        self.plan.disk(room, trio.current_time())
        self.changed()

    async def deliver(self, command: Deliver) -> None:
        """Have a source bring an image."""
        image, source = command.image, self.ports.sources[command.source]
        lane, started_at = source.lane(image), trio.current_time()
        await self.claim()
        if await self._is_there(image):
            self.plan.found(image)
            self.changed()
            return
        self.ports.emit(ImageFetching(image, lane))
        if self._ledger is not None and not self.keep and not self.plan.is_theirs(image):
            self._ours.add(image)
            await self._blocking(partial(self._ledger.bring, image))
        end = await source.deliver(image, partial(self.plan.progressed, image))
        now = trio.current_time()
        if isinstance(end, Delivered):
            self.ports.emit(ImageReady(image, lane, now - started_at, end.size_bytes))
        elif self._ledger is not None and isinstance(end, NOTHING_CAME):
            await self._blocking(partial(self._ledger.let_go, image))
        self.plan.delivery_ended(image, end, now)
        self.changed()

    async def _is_there(self, image: str) -> bool:
        """Whether somebody else has brought an image since the engine was asked for all of them."""
        if self.keep or image in self._ours:
            return False
        try:
            return await self.ports.engine.inspect(image) is not None
        except EngineError:  # the source hears of it, too, and tells
            return False

    async def remove(self, image: str) -> None:
        """Remove an image that this run brought, unless another process needs it: it is left to the last one."""
        self.plan.removed(image, await self._removal(image), trio.current_time())
        self.changed()

    async def remove_all(self) -> None:
        """Remove what this run brought, and what those left to it that ended before it, a few images at a time.

        What cannot be removed stays in the ledger.
        """
        if self._engine is not None:
            await self._take_over(self._engine)
        images = self.plan.leftovers()
        self._left = dict.fromkeys(images)
        limiter = trio.CapacityLimiter(REMOVALS_AT_ONCE)

        async def remove(image: str) -> None:
            async with limiter:
                await self.remove(image)

        async with trio.open_nursery() as nursery:
            for image in images:
                nursery.start_soon(remove, image)

    def tell_left(self) -> None:
        """Tell what is left of that, if anything is. Never waits."""
        if self._left:
            names = listed(list(map(familiar, self._left)), 3)
            text = f"left in the container engine: {names}; the next run removes what is left, or `scavenge images gc`"
            self.ports.emit(Warned(text))

    async def _removal(self, image: str) -> RemovalEnd:
        ledger = self._ledger
        if ledger is None:
            return NotRemoved("the engine has not been heard")
        if await self._blocking(partial(ledger.is_needed_elsewhere, image)):
            self._left.pop(image, None)
            return InUse("another run needs it")
        try:
            end = await self.ports.engine.remove(image)
        except EngineError as exc:
            end = NotRemoved(str(exc))
        if isinstance(end, Removed):
            self._left.pop(image, None)
            await self._blocking(partial(ledger.let_go, image))
        self.ports.emit(ImageReleased(image, "" if isinstance(end, Removed) else end.why))
        return end

    async def _blocking(self, step: Callable[[], T]) -> T:
        return await self.ports.threads.run(step)
