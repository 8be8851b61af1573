"""What became of the container images of a run: which came from where, how long that took, what went wrong. Pure.

Invariant: at most :data:`MOST_KEPT` images that came and as many that failed are kept, the slowest and the first; sums
are of all. At most :data:`MOST_SOURCES` sources are told apart.
"""

from __future__ import annotations

import heapq
from collections import Counter

import attrs

from scavenge.core.figures import precise_duration, size
from scavenge.core.report.pools import Named
from scavenge.core.summary import Table

MOST_KEPT = 200
MOST_SOURCES = 20
MOST_OUTCOMES = 12
OTHER = "other"


@attrs.define(eq=False)
class SourceStory:
    """What came from one source."""

    name: str
    images: int = 0
    size_bytes: float = 0.0
    seconds: float = 0.0
    longest_s: float = 0.0
    troubles: Counter[str] = attrs.field(factory=Counter)
    """Deliveries that failed, by outcome."""

    def came(self, seconds: float, size_bytes: float) -> None:
        """An image came."""
        self.images += 1
        self.size_bytes += size_bytes
        self.seconds += seconds
        self.longest_s = max(self.longest_s, seconds)

    def failed(self, outcome: str) -> None:
        """A delivery failed."""
        known = outcome in self.troubles or len(self.troubles) < MOST_OUTCOMES
        self.troubles[outcome if known else OTHER] += 1


@attrs.frozen(order=True)
class Came:
    """An image that came; ``place`` is the order in which they did, the latest being the lowest."""

    seconds: float
    place: int
    image: str
    source: str
    size_bytes: float


@attrs.define(eq=False)
class ImageStories:
    """All images."""

    sources: Named[SourceStory] = attrs.field(factory=lambda: Named(SourceStory, MOST_SOURCES))
    came: int = 0
    failures: int = 0
    """Images that no source gave."""
    first_failed: list[tuple[str, str]] = attrs.field(factory=list)
    """The first of them, with the reason."""
    _slowest: list[Came] = attrs.field(factory=list)
    """A heap, the fastest on top."""

    def ready(self, image: str, source: str, seconds: float, size_bytes: float) -> None:
        """An image came."""
        self.sources.of(source).came(seconds, size_bytes)
        self.came += 1
        one = Came(seconds, -self.came, image, source, size_bytes)
        if len(self._slowest) < MOST_KEPT:
            heapq.heappush(self._slowest, one)
        else:
            heapq.heappushpop(self._slowest, one)

    def trouble(self, source: str, outcome: str) -> None:
        """A delivery failed."""
        self.sources.of(source).failed(outcome)

    def failed(self, image: str, why: str) -> None:
        """No source gives an image."""
        self.failures += 1
        if len(self.first_failed) < MOST_KEPT:
            self.first_failed.append((image, why))

    def tables(self) -> tuple[Table, ...]:
        """The sources, the images that came, the images that did not; a table without rows is left out."""
        tables = (self._sources(), self._came(), self._failed())
        return tuple(table for table in tables if table.rows)

    def _sources(self) -> Table:
        head = ("source", "images", "size", "time in all", "mean", "longest", "deliveries that failed")
        return Table("container images, by source", head, tuple(_source_row(one) for one in self.sources))

    def _came(self) -> Table:
        more = f": the {MOST_KEPT} that took longest, of {self.came}" if self.came > MOST_KEPT else ""
        rows = (
            (one.image, one.source, precise_duration(one.seconds), size(one.size_bytes))
            for one in sorted(self._slowest, reverse=True)
        )
        return Table(f"container images that were brought{more}", ("image", "source", "took", "size"), tuple(rows))

    def _failed(self) -> Table:
        more = f": the first {MOST_KEPT}, of {self.failures}" if self.failures > MOST_KEPT else ""
        return Table(f"container images that no source gives{more}", ("image", "why"), tuple(self.first_failed))


def _source_row(one: SourceStory) -> tuple[str, ...]:
    troubles = ", ".join(f"{count} {outcome}" for outcome, count in sorted(one.troubles.items())) or "–"
    if not one.images:
        return (one.name, "0", "–", "–", "–", "–", troubles)
    spent = (one.seconds, one.seconds / one.images, one.longest_s)
    return (one.name, str(one.images), size(one.size_bytes), *(precise_duration(part) for part in spent), troubles)
