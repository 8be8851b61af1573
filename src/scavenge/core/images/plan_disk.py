"""Whether there is room for another delivery: what was seen of the engine's disk. Pure.

What is under way is expected to become as large as the largest image so far. A delivery begins when what is left beside
those is the floor at least, and would hold one more.
"""

from __future__ import annotations

import math

import attrs

from scavenge.core.images.plan_settings import (
    FLOOR_MOST_BYTES,
    FLOOR_SHARE,
    FULL_FOR_S,
    LOOK_EVERY_S,
    SHORT_LOOK_EVERY_S,
)
from scavenge.images import DiskRoom


def floor_bytes(min_free_bytes: int | None, total_bytes: int) -> int:
    """How much room a disk is to keep: what is set, else the smaller of 10 GB and 5 % of it."""
    return min(FLOOR_MOST_BYTES, int(total_bytes * FLOOR_SHARE)) if min_free_bytes is None else min_free_bytes


@attrs.define(eq=False)
class Disk:
    """What is known of the disk. ``looking``: a look is under way."""

    min_free_bytes: int | None = None
    free_bytes: int | None = None
    floor_bytes: int = 0
    """How much is to stay free; known once the disk was seen."""
    looking: bool = False
    full_until: float = -math.inf
    """Nothing is fetched before, unless something is freed."""
    _largest_bytes: int = 0
    _looked_at: float = -math.inf

    def look(self) -> None:
        """A look is asked for."""
        self.looking = True

    def seen(self, room: DiskRoom | None, now: float) -> None:
        """So it is. Raises :class:`ValueError` when nobody looked."""
        if not self.looking:
            raise ValueError("no look at the disk is under way")
        self.looking = False
        self.free_bytes = None if room is None else room.free_bytes
        self.floor_bytes = 0 if room is None else floor_bytes(self.min_free_bytes, room.total_bytes)
        self._looked_at = now

    def delivered(self, size_bytes: int) -> None:
        """An image came: it takes its room until the disk is looked at again."""
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        if self.free_bytes is not None:
            self.free_bytes -= size_bytes

    def filled(self, now: float) -> None:
        """There was no room for a delivery."""
        self.full_until = now + FULL_FOR_S

    def removed(self, freed: bool) -> None:
        """A removal is over: see how much is free now."""
        self._looked_at = -math.inf
        if freed:
            self.full_until = -math.inf

    def look_at(self, under_way: int, now: float) -> float:
        """When a look is too old for another delivery beside *under_way*."""
        return self._looked_at + (LOOK_EVERY_S if self.has_room(under_way, now) else SHORT_LOOK_EVERY_S)

    def has_room(self, under_way: int, now: float) -> bool:
        """Whether another delivery may begin beside *under_way*."""
        return not self.is_full(now) and self._left_bytes(under_way) >= max(self.floor_bytes, self._largest_bytes)

    def is_above_floor(self, now: float) -> bool:
        """Whether one delivery may at least be tried."""
        return not self.is_full(now) and self._left_bytes(0) >= self.floor_bytes

    def is_full(self, now: float) -> bool:
        """Whether the disk was full not long ago."""
        return now < self.full_until

    def _left_bytes(self, under_way: int) -> float:
        return math.inf if self.free_bytes is None else self.free_bytes - under_way * self._largest_bytes
