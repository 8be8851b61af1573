"""The images that are left alone for a while, or whose sources are, in the order in which that ends. Pure.

Invariant: each of these images has an entry for the first instant at which that ends; other entries are stale.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

import attrs

from scavenge.core.images.plan_image import Image


@attrs.define(eq=False)
class Cooling:
    """Images that cool."""

    _entries: list[tuple[float, int, Image]] = attrs.field(factory=list, init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def note(self, image: Image) -> None:
        """An image may have begun to cool, or one of its sources to rest."""
        if image.trial.wakes_at < math.inf:
            heapq.heappush(self._entries, (image.trial.wakes_at, next(self._numbers), image))

    def cooled(self, now: float) -> Iterator[Image]:
        """The images of which more may be tried; each is to be settled, and noted again."""
        while self.next_at() <= now:
            image = heapq.heappop(self._entries)[2]
            image.trial.wake(now)
            yield image

    def next_at(self) -> float:
        """When the next may be tried again."""
        while self._entries and not self._counts(self._entries[0]):
            heapq.heappop(self._entries)
        return self._entries[0][0] if self._entries else math.inf

    def _counts(self, entry: tuple[float, int, Image]) -> bool:
        return entry[2].trial.wakes_at == entry[0]
