"""Who needs which image, who waits, and what that comes to in figures. Pure.

Invariants: a waiter is in the line of each of its images until it is answered or withdrawn; the figures are sums of
the marks that the images bear.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections import deque
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
    _timeouts: deque[Waiter] = attrs.field(factory=deque, init=False)
    """In the order in which they began to wait; those that were answered are still among them."""
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
        waiter = Waiter(WaiterId(next(self._numbers)), tuple(dict.fromkeys(images)), now, now + self.wait_timeout_s)
        self.waiters[waiter.id] = waiter
        self._timeouts.append(waiter)
        for image in waiter.images:
            image.waiters[waiter.id] = waiter
        return waiter

    def end_wait(self, waiter: Waiter) -> None:
        """It waits no longer."""
        del self.waiters[waiter.id]
        for image in waiter.images:
            del image.waiters[waiter.id]

    def longest(self) -> Waiter | None:
        """Who has waited longest."""
        while self._timeouts and self._timeouts[0].id not in self.waiters:
            self._timeouts.popleft()
        return self._timeouts[0] if self._timeouts else None

    @property
    def timeout_at(self) -> float:
        """When somebody will have waited for long enough."""
        longest = self.longest()
        return math.inf if longest is None else longest.until
