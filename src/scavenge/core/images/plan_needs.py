"""Who needs which image, who waits, and what that comes to in figures. Pure.

Invariants: a waiter is in the line of each of its images until it is answered or withdrawn; the figures are sums of
the marks that the images bear. A waiter's patience ends no sooner than the entry of it that comes first.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence

import attrs

from scavenge.core.images.commands import WaiterId
from scavenge.core.images.plan_image import Busy, Image, Known, Waiter
from scavenge.core.images.plan_trial import Trial


class Figure(enum.IntEnum):
    """What is counted: images."""

    WANTED = 0
    """That pending rollouts need."""
    PRESENT = 1
    """Those of them that are there."""
    FAILED = 2
    """Those of them that no source gives."""
    BROUGHT = 3
    """That were brought and are there."""
    AHEAD = 4
    """That were brought, are needed and were not leased yet."""
    LEASED = 5
    ABSENT_AND_WAITED_FOR = 6
    """Of which another listing might say something else."""
    UNSETTLED = 7
    """That are needed, are not there and may come."""
    ASSUMED = 8
    """That are needed, and assumed to be there."""


def _marks(image: Image) -> tuple[bool, ...]:
    known, pending, needed = image.known, image.pending > 0, image.is_needed
    may_have_come = known is Known.ABSENT and image.busy is Busy.NO and not image.distrusted
    brought = image.is_ours and known not in (Known.ABSENT, Known.FAILED)
    return (
        pending,
        pending and image.is_ready,
        pending and known is Known.FAILED,
        brought,
        brought and needed and not image.used,
        image.leases > 0,
        may_have_come and bool(image.waiters),
        needed and not image.is_ready and known is not Known.FAILED,
        needed and known is Known.ASSUMED,
    )


@attrs.define(eq=False)
class Needs:
    """All images, and all who wait."""

    wait_timeout_s: float
    attempts: int
    images: dict[str, Image] = attrs.field(factory=dict, init=False)
    waiters: dict[WaiterId, Waiter] = attrs.field(factory=dict, init=False)
    unknown: dict[Image, None] = attrs.field(factory=dict, init=False)
    """The images that are needed and of which nothing is known."""
    _figures: list[int] = attrs.field(factory=lambda: [0] * len(Figure), init=False)
    _marked: dict[Image, tuple[bool, ...]] = attrs.field(factory=dict, init=False)
    moved_at: float = attrs.field(default=-math.inf, init=False)
    """When an image was seen to come last, or a part of one."""
    _timeouts: list[tuple[float, WaiterId]] = attrs.field(factory=list, init=False)
    """A heap; those that were answered are still among them."""
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)

    def __getitem__(self, name: str) -> Image:
        image = self.images.get(name)
        if image is None:
            raise ValueError(f"image {name} was never registered")
        return image

    def figure(self, figure: Figure) -> int:
        """How many images are like that."""
        return self._figures[figure]

    def count(self, image: Image) -> None:
        """Count an image anew; to be called whenever something of it has changed."""
        if image.known is Known.UNKNOWN and image.is_needed:
            self.unknown[image] = None
        else:
            self.unknown.pop(image, None)
        marks = _marks(image)
        before = self._marked.get(image)
        if marks == before:
            return
        self._marked[image] = marks
        for figure, mark in enumerate(marks):
            self._figures[figure] += mark - (before[figure] if before else 0)

    # --- needs

    def find(self, name: str) -> Image:
        """An image, which is new if it was not known."""
        image = self.images.get(name)
        if image is None:
            number = next(self._numbers)
            image = self.images[name] = Image(name, number, Trial(attempts=self.attempts))
        return image

    def register(self, image: Image, lanes: Sequence[str]) -> None:
        """One more rollout will need it."""
        if not image.pending:
            image.order = next(self._numbers)
            image.trial.lanes = tuple(lanes)
        image.pending += 1

    # --- waiters

    def wait(self, images: Sequence[Image], now: float) -> Waiter:
        """Somebody waits for all of these from now on."""
        waiter = Waiter(WaiterId(next(self._numbers)), tuple(dict.fromkeys(images)), now)
        self.waiters[waiter.id] = waiter
        heapq.heappush(self._timeouts, (now + self.wait_timeout_s, waiter.id))
        for image in waiter.images:
            image.waiters[waiter.id] = waiter
        return waiter

    def end_wait(self, waiter: Waiter) -> None:
        """It waits no longer."""
        del self.waiters[waiter.id]
        for image in waiter.images:
            del image.waiters[waiter.id]

    def impatient(self, now: float) -> Waiter | None:
        """Somebody who has waited for long enough; whose image was not tried yet waits on while others come."""
        while self.timeout_at <= now:
            waiter = self.waiters[self._timeouts[0][1]]
            until = self._turn_at(waiter) + self.wait_timeout_s
            if until <= now:
                return waiter
            heapq.heapreplace(self._timeouts, (until, waiter.id))
        return None

    def _turn_at(self, waiter: Waiter) -> float:
        """Since when it waits for more than that others come first; it may be earlier than its wait began."""
        lacking = (image for image in waiter.images if not image.is_ready)
        return min(self.moved_at if image.tried_at is None else image.tried_at for image in lacking)

    @property
    def timeout_at(self) -> float:
        """When somebody may have waited for long enough."""
        while self._timeouts and self._timeouts[0][1] not in self.waiters:
            heapq.heappop(self._timeouts)
        return self._timeouts[0][0] if self._timeouts else math.inf
