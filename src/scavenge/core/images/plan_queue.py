"""Which image is fetched next, and from which source: the most urgent one that has an open lane. Pure.

Images with the same lanes left stand in one line, so that a lane that is shut costs nothing however many wait for it;
there are few lanes, and so few lines.

Invariants: an image that is fetchable has one entry, in the line of its route, where it is put again when that changes;
whatever else is in a line is stale, and no more than about half of it. Lines are never without an entry that is not
stale.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from typing import TypeAlias

import attrs

from scavenge.core.images.plan_image import Image
from scavenge.core.images.plan_lanes import Lanes

Route: TypeAlias = "tuple[str, ...]"
_Entry: TypeAlias = "tuple[tuple[int, int], int, int, Image]"
"""Urgency, order, and a number: no two entries have the same, so images are never compared."""
STALE_AT_LEAST = 64


@attrs.define(eq=False)
class _Line:
    route: Route
    entries: list[_Entry] = attrs.field(factory=list)
    live: int = 0


@attrs.define(eq=False)
class FetchQueue:
    """The images that are to be fetched."""

    lanes: Lanes
    _lines: dict[Route, _Line] = attrs.field(factory=dict, init=False)
    _where: dict[Image, tuple[_Line, _Entry]] = attrs.field(factory=dict, init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def put(self, image: Image) -> None:
        """See to it that an image stands where it belongs: in the line if it is fetchable, else not."""
        if not image.is_fetchable:
            self._drop(image)
            return
        urgency, route = image.urgency, image.trial.route()
        if image in self._where:
            line, entry = self._where[image]
            if entry[0] == urgency and line.route == route:
                return
            self._drop(image)
        line = self._lines.setdefault(route, _Line(route))
        entry = (urgency, image.order, next(self._numbers), image)
        heapq.heappush(line.entries, entry)
        line.live += 1
        self._where[image] = line, entry

    def _drop(self, image: Image) -> None:
        if image not in self._where:
            return
        line, _ = self._where.pop(image)
        line.live -= 1
        if not line.live:
            del self._lines[line.route]
        elif len(line.entries) > 2 * line.live + STALE_AT_LEAST:
            line.entries[:] = [entry for entry in line.entries if self._stands(entry)]
            heapq.heapify(line.entries)

    def _stands(self, entry: _Entry) -> bool:
        where = self._where.get(entry[3])
        return where is not None and where[1] is entry

    def best(self, now: float) -> tuple[Image, int] | None:
        """The image to fetch next, and the number of the source."""
        found: tuple[_Entry, int] | None = None
        for line in self._lines.values():
            place = self._open_place(line.route, now)
            if place is not None and (found is None or self._first(line) < found[0]):
                found = self._first(line), place
        if found is None:
            return None
        image = found[0][3]
        return image, image.trial.next()[found[1]]

    def _open_place(self, route: Route, now: float) -> int | None:
        return next((place for place, lane in enumerate(route) if self.lanes[lane].is_open(now)), None)

    def _first(self, line: _Line) -> _Entry:
        while not self._stands(line.entries[0]):
            heapq.heappop(line.entries)
        return line.entries[0]

    def opens_at(self, now: float) -> float:
        """When the next line opens that is shut as a whole; infinity: none is, or none does by itself."""
        shut = (line.route for line in self._lines.values() if self._open_place(line.route, now) is None)
        return min((self._opens_at(route, now) for route in shut), default=math.inf)

    def _opens_at(self, route: Route, now: float) -> float:
        return min((self.lanes[lane].shut_until for lane in route if self.lanes[lane].is_shut(now)), default=math.inf)

    def shut_out(self, now: float) -> list[Image]:
        """The images whose lanes are all shut."""
        shut = (line for line in self._lines.values() if all(self.lanes[lane].is_shut(now) for lane in line.route))
        return [entry[3] for line in shut for entry in line.entries if self._stands(entry)]

    def __iter__(self) -> Iterator[Image]:
        """The first of each line."""
        return (self._first(line)[3] for line in self._lines.values())
