"""Has container images on this machine before the rollouts that need them: carries out what the image plan decides.

Data flow: needs, waits and what deliveries come to → the plan → commands → this. The plan is asked in one task only,
which wakes when there is news or when the plan wants to be asked again; each command is a task of the service nursery.

Invariants: whoever holds an image has leased it in the plan, and gives it back without a wait on every way out; between
the answer to a waiter and its lease nothing else is decided.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from scavenge.core.images.commands import (
    Answer,
    Command,
    Deliver,
    List,
    LookAtDisk,
    Ready,
    Remove,
    Unavailable,
    WaiterId,
)
from scavenge.core.images.plan import ImagePlan, PlanSettings
from scavenge.core.images.reference import BadReference, canonical
from scavenge.errors import ImageUnavailable, single_error
from scavenge.events import ImagesChanged
from scavenge.runtime.imageerrands import ImageErrands, ImagePorts
from scavenge.status import ImagesStatus

TELL_EVERY_S = 1.0
"""How often it is told how far deliveries are."""
RELEASE_WITHIN_S = 60.0
"""How long the images that a run brought may take to be removed at its end; the next run goes on with it."""
STOPPED_RELEASE_WITHIN_S = 2.0
"""The same of a run that is cancelled."""


@attrs.define(eq=False)
class ImageHold:
    """Images that are there and stay there until :meth:`release`."""

    images: tuple[str, ...]
    _pool: ImagePool
    _held: bool = True

    def has(self, image: str) -> bool:
        """Whether that is one of its images, by whatever reference."""
        try:
            return canonical(image) in self.images
        except BadReference:
            return False

    async def renew(self, image: str) -> None:
        """Have one of its images delivered that is not there after all, and hold them all again.

        Raises :class:`scavenge.errors.ImageUnavailable`. Cancelled, or raising, it holds nothing.
        """
        self.release()
        self._pool.missing(canonical(image))
        await self._pool.hold(self.images)  # which is this one again
        self._held = True

    def release(self) -> None:
        """Give them back. Never waits; a second time it does nothing."""
        if self._held:
            self._held = False
            self._pool.unlease(self.images)


@attrs.define(eq=False)
class ImageWait:
    """Somebody who waits for images, and what came of it."""

    waiter: WaiterId
    images: tuple[str, ...]
    said: trio.Event = attrs.field(factory=trio.Event)
    answer: Ready | Unavailable | None = None
    wanting: str = ""
    """The image that is not to be had."""


@attrs.define(eq=False)
class ImagePool:
    """The images of a run. Its calls need the pool to be open (:func:`open_images`)."""

    ports: ImagePorts
    settings: PlanSettings
    plan: ImagePlan = attrs.field(init=False)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)
    _waits: dict[WaiterId, ImageWait] = attrs.field(factory=dict, init=False)
    _errands: ImageErrands = attrs.field(init=False)
    _told: ImagesStatus | None = attrs.field(default=None, init=False)
    _hurried: bool = attrs.field(default=False, init=False)
    _ending: trio.CancelScope | None = attrs.field(default=None, init=False)
    """There while what was brought is removed."""

    def __attrs_post_init__(self) -> None:
        self.plan = ImagePlan(self.settings, self.ports.random)
        self._errands = ImageErrands(self.plan, self.ports, self.settings.keep, self._changed)

    def _changed(self) -> None:
        """Have the plan asked again."""
        self._news.set()

    # --- what is needed

    def register(self, images: Sequence[str], rollouts: int = 1) -> None:
        """So many more rollouts will need these images. Never waits and asks nobody.

        Each of them ends with one :meth:`done`.
        """
        now = trio.current_time()
        for image in images:
            lanes = [source.lane(image) for source in self.ports.sources]
            for _ in range(rollouts):
                self.plan.register(image, lanes, now)
        self._errands.claim_later(images)
        self._changed()

    def done(self, images: Sequence[str]) -> None:
        """A rollout that was registered needs its images no more: it was played, or never will be."""
        for image in images:
            self.plan.done(image)
        self._changed()

    def missing(self, image: str) -> None:
        """Its use showed that an image is not there, whatever was believed."""
        self.plan.missing(image, trio.current_time())
        self._changed()

    def status(self) -> ImagesStatus | None:
        """How the images are doing; ``None`` while no rollout has asked for one."""
        status = self.plan.status(trio.current_time())
        return status if status.wanted or status.brought or status.waiting else None

    # --- who holds them

    def hold_nowait(self, images: Sequence[str]) -> ImageHold | None:
        """The images, if all are there now."""
        if not all(self.plan.is_ready(image) for image in images):
            return None
        for image in images:
            self.plan.lease(image)
        return ImageHold(tuple(images), self)

    async def hold(self, images: Sequence[str]) -> ImageHold:
        """Wait until all of the images are there, and hold them.

        Raises :class:`scavenge.errors.ImageUnavailable` for one that no source gives, or that has not come within
        ``wait_timeout``. Cancelled, or raising, it holds nothing and waits for nothing any more.
        """
        return await self.wait_held(self.ask(images))

    def ask(self, images: Sequence[str]) -> ImageWait:
        """Begin a wait for images, in turn; :meth:`wait_held` ends it. Never waits."""
        waiter = self.plan.wait_all(images, trio.current_time())
        wait = self._waits[waiter] = ImageWait(waiter, tuple(images))
        self._changed()
        return wait

    async def wait_held(self, wait: ImageWait) -> ImageHold:
        """Wait until all of the images of a wait are there, and hold them, as :meth:`hold` does."""
        try:
            await wait.said.wait()
        except BaseException:
            self._forget(wait)
            raise
        if isinstance(wait.answer, Unavailable):
            raise ImageUnavailable(f"container image {wait.wanting} is not to be had: {wait.answer.why}")
        return ImageHold(wait.images, self)

    def unlease(self, images: Sequence[str]) -> None:
        """Give back the images of a hold."""
        for image in images:
            self.plan.unlease(image)
        self._changed()

    def _forget(self, wait: ImageWait) -> None:
        """End a wait that is cancelled; its answer may have come at the same moment."""
        if wait.answer is None:
            del self._waits[wait.waiter]
            self.plan.withdraw(wait.waiter)
            self._changed()
        elif isinstance(wait.answer, Ready):
            self.unlease(wait.images)

    # --- carrying out

    async def run_pool(self, service_nursery: trio.Nursery) -> None:
        """Decide and have carried out, in tasks of *service_nursery*, until cancelled."""
        while True:
            self._news = trio.Event()
            now = trio.current_time()
            for command in self.plan.decide(now):
                self._carry_out(command, service_nursery)
            if self._errands.has_claims:
                service_nursery.start_soon(self._errands.claim)
            self._tell(now)
            wake_at = self.plan.next_wake_at(now)
            with trio.move_on_at(float("inf") if wake_at is None else wake_at):
                await self._news.wait()

    def _carry_out(self, command: Command, service_nursery: trio.Nursery) -> None:
        match command:
            case Answer():
                self._answer(command)
            case List():
                service_nursery.start_soon(self._errands.list_images)
            case LookAtDisk():
                service_nursery.start_soon(self._errands.look_at_disk)
            case Deliver():
                service_nursery.start_soon(self._errands.deliver, command, name=f"image {command.image}")
            case Remove():
                service_nursery.start_soon(self._errands.remove, command.image)

    def _answer(self, command: Answer) -> None:
        wait = self._waits.pop(command.waiter)
        wait.answer = command.what
        wait.wanting = command.image
        if isinstance(command.what, Ready):
            for image in wait.images:
                self.plan.lease(image)
            self._changed()  # more may be fetched ahead now
        wait.said.set()

    # --- telling

    def _tell(self, now: float) -> None:
        for event in self.plan.told():
            self.ports.emit(event)
        status = self.plan.status(now)
        if self._told is None or _shown(status) != _shown(self._told):
            self._told = status
            self.ports.emit(ImagesChanged(status))

    async def run_telling(self) -> None:
        """Tell how far deliveries are, every second while there are any, until cancelled."""
        while True:
            await trio.sleep(TELL_EVERY_S)
            status = self.plan.status(trio.current_time())
            if status.deliveries:
                self.ports.emit(ImagesChanged(status))

    # --- the end

    def hurry(self) -> None:
        """The run is stopped: let its end take two seconds at most. Never waits."""
        self._hurried = True
        if self._ending is not None:
            self._ending.deadline = min(self._ending.deadline, trio.current_time() + STOPPED_RELEASE_WITHIN_S)

    async def end(self, ending: trio.CancelScope) -> None:
        """Remove what this run brought, in a scope that :meth:`hurry` may shorten; what is left stays in the ledger."""
        self._ending = ending
        if self._hurried:
            self.hurry()
        await self._errands.remove_all()

    def tell_left(self) -> None:
        """Tell what :meth:`end` could not remove. Never waits."""
        self._errands.tell_left()


def _shown(status: ImagesStatus) -> tuple[object, ...]:
    """What of a status is told at once when it changes."""
    names = tuple((one.image, one.source) for one in status.deliveries)
    counts = (status.wanted, status.present, status.failed, status.waiting, status.brought)
    return (status.state, status.why, counts, names)


@asynccontextmanager
async def open_images(pool: ImagePool) -> AsyncIterator[ImagePool]:
    """Keep a pool at work while the block runs. The block ends what it holds.

    Leaving ends deliveries under way, and removes what the run brought unless it keeps images: within a minute, or
    within two seconds where the block raises or :meth:`ImagePool.hurry` was called. The next run removes what is left.
    """
    with single_error():
        try:
            async with trio.open_nursery() as services:
                services.start_soon(pool.run_pool, services, name="image plan")
                services.start_soon(pool.run_telling, name="image progress")
                yield pool
                services.cancel_scope.cancel()
        except BaseException:
            pool.hurry()
            raise
        finally:
            with trio.move_on_after(RELEASE_WITHIN_S, shield=True) as ending:
                await pool.end(ending)
            pool.tell_left()
