"""The images that are left alone for a while, in the order in which that ends. Pure.

Invariant: an image that cools has an entry for the instant at which it stops; other entries are stale.
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
        """An image may have begun to cool."""
        if image.trial.cooling:
            heapq.heappush(self._entries, (image.trial.again_at, next(self._numbers), image))

    def cooled(self, now: float) -> Iterator[Image]:
        """The images that have cooled; each is to be settled."""
        while self.next_at() <= now:
            image = heapq.heappop(self._entries)[2]
            image.trial.cooling = False
            yield image

    def next_at(self) -> float:
        """When the next will have cooled."""
        while self._entries and not self._counts(self._entries[0]):
            heapq.heappop(self._entries)
        return self._entries[0][0] if self._entries else math.inf

    def _counts(self, entry: tuple[float, int, Image]) -> bool:
        trial = entry[2].trial
        return trial.cooling and trial.again_at == entry[0]
