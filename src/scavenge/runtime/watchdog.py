"""Watches whether a run gets on, and tells with a full picture when nothing comes of it, whatever the cause.

Data flow: events and bytes → quiet clock → picture → ``Stalled``. It only tells; it ends nothing and changes nothing.

A byte is a sign of progress while a long reply comes, and only then: one that answers a probe comes from an idle server
too, and one that refuses a request brings it no further. So bytes count where a request has been under way for
:data:`LONG_REPLY_S`, and a probe of its endpoint has not ended since. Shorter replies speak by their end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs
import trio

from scavenge.core.quiet import LOOK_EVERY_S, QuietClock, is_progress
from scavenge.errors import single_error
from scavenge.events import EvalGaveUp, Event, Observer, Stalled, Warned
from scavenge.runtime.fleet import Fleet
from scavenge.runtime.picture import take_picture
from scavenge.runtime.pool import Pool
from scavenge.status import ImagesStatus, Picture, WorkersStatus

LONG_REPLY_S = 60.0
"""How long a request is under way before the bytes of its reply count."""
NEVER = float("-inf")

T = TypeVar("T")


@attrs.define(eq=False)
class Watchdog:
    """An observer of a run's events, and the task that looks whether there were any of note. One for each run."""

    fleet: Fleet
    emit: Observer = attrs.field(repr=False)
    workers: Callable[[], Sequence[WorkersStatus]] = tuple
    """How the workers of the run are doing."""
    images: Callable[[], ImagesStatus | None] = lambda: None
    """How the container images of the run are doing."""
    clock: QuietClock = attrs.field(factory=lambda: QuietClock(trio.current_time()))
    _heard_at: float = NEVER
    """The latest byte of a long reply that has counted."""
    _gave_up_at: float = NEVER
    _broken: bool = False
    """Watching failed at the last try, which has been told."""

    def __call__(self, event: Event) -> None:
        """Hear of an event; when an evaluation gives up, show what there was to see."""
        now = trio.current_time()
        if is_progress(event):
            self.clock.on_sign(now)
        elif isinstance(event, EvalGaveUp) and self._gave_up_at != now:
            self._gave_up_at = now  # all evaluations of a pool do it at one instant
            self.clock.look(now)
            self._tell(self.clock.quiet_s)

    async def run_watchdog(self) -> None:
        """Look every few seconds until cancelled. A failure to look is told, and ends nothing."""
        while True:
            await trio.sleep(LOOK_EVERY_S)
            heard_at = self._guarded(lambda: max(map(last_heard_at, self.fleet.pools.values()), default=NEVER), NEVER)
            if heard_at > self._heard_at:
                self._heard_at = heard_at
                self.clock.on_sign(heard_at)
            if (quiet_s := self.clock.look(trio.current_time())) is not None:
                self._tell(quiet_s)

    def _tell(self, quiet_s: float) -> None:
        picture = self._guarded(self._picture, None)
        if picture is not None:
            self.emit(Stalled(quiet_s, picture))
        else:
            self.emit(Warned(f"nothing has come back for {quiet_s:.0f} s, and no picture can be taken of the run"))

    def _picture(self) -> Picture:
        return take_picture(self.fleet, trio.current_time(), self.workers(), self.images())

    def _guarded(self, see: Callable[[], T], otherwise: T) -> T:
        """What *see* sees; the first failure in a row is told."""
        try:
            seen = see()
        except Exception as exc:  # a bug in what is looked at must not end the run that it may be holding up
            if not self._broken:
                self.emit(Warned(f"the watchdog cannot look at the run: {type(exc).__name__}: {exc}"))
            self._broken = True
            return otherwise
        self._broken = False
        return seen


@asynccontextmanager
async def open_watchdog(
    fleet: Fleet,
    emit: Observer,
    workers: Callable[[], Sequence[WorkersStatus]] = tuple,
    images: Callable[[], ImagesStatus | None] = lambda: None,
) -> AsyncIterator[Watchdog]:
    """Watch a run while the block plays it, also while it unwinds. Leaving ends the watch and does not wait."""
    with single_error():
        async with trio.open_nursery() as watching:
            watchdog = Watchdog(fleet, emit, workers, images)
            watching.start_soon(watchdog.run_watchdog, name="watchdog")
            try:
                yield watchdog
            finally:
                watching.cancel_scope.cancel()


def last_heard_at(pool: Pool) -> float:
    """When a byte last came of a long reply; minus infinity when there is no such reply, or no byte of one."""
    latest = NEVER
    oldest = {held.url: held.granted_at for held in reversed(pool.dispatcher.held()) if not held.revoked}
    for url, granted_at in oldest.items():
        member = pool.members.get(url) or pool.departing[url]
        heard_at = member.client.heard_at
        if heard_at >= granted_at + LONG_REPLY_S and heard_at > member.probed_at:
            latest = max(latest, heard_at)
    return latest
