"""What became of each endpoint in a run: its state, its gate's limit, its requests, over time. Pure.

Invariant: at most :data:`MOST_ENDPOINTS` are kept. When there are more, the half with the fewest tokens is forgotten
and only counted: an endpoint that did next to nothing is no loss, and among thousands nobody looks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import attrs

from scavenge.core.health_state import State
from scavenge.core.report.steps import Step, Steps
from scavenge.core.report.sums import Load

DRAINING, GONE, UNKNOWN = "draining", "gone", "other"
STATES = (
    State.LIVE.value,
    State.PROBATION.value,
    State.PAUSED.value,
    State.PROBING.value,
    DRAINING,
    State.MISCONFIGURED.value,
    State.EJECTED.value,
    GONE,
    UNKNOWN,
)
"""States as they are told here, from the best on: where a bin has many, the best and the worst are kept."""
MOST_ENDPOINTS = 2_000
LOAD_BINS, LIMIT_BINS, STATE_BINS = 150, 100, 60
"""Of one endpoint."""


@attrs.define(eq=False)
class EndpointStory:
    """One endpoint of one pool. ``place`` is the order in which they were met."""

    pool: str
    url: str
    place: int
    tokens: float = 0.0
    changes: int = 0
    """How often its state changed."""
    load: Load = attrs.field(factory=lambda: Load(LOAD_BINS))
    limits: Steps = attrs.field(factory=lambda: Steps(LIMIT_BINS))
    states: Steps = attrs.field(factory=lambda: Steps(STATE_BINS))
    """Places in :data:`STATES`; never ``None``."""
    limit: int | None = None
    listed: bool = True
    draining: bool = False
    health: str = State.PROBING.value

    def joined(self, time: float) -> None:
        """It was listed."""
        self.listed, self.draining, self.health = True, False, State.PROBING.value
        self._tell(time, "listed")

    def drains(self, time: float, why: str) -> None:
        """It takes no new work."""
        self.draining = True
        self._tell(time, why)

    def drains_no_more(self, time: float) -> None:
        """It takes work again."""
        self.draining = False
        self._tell(time, "no longer draining")

    def is_told(self, time: float, health: str, why: str) -> None:
        """Its health has another state."""
        self.health = health
        self._tell(time, why)

    def left(self, time: float, why: str = "removed") -> None:
        """It is no longer listed, or the run has ended."""
        self.listed = False
        self._tell(time, why)
        if self.limit is not None:
            self.limit = None
            self.limits.add(Step(time, None, why))

    def limit_moved(self, time: float, limit: int, why: str) -> None:
        """Its gate allows another number of requests."""
        self.limit = limit
        self.limits.add(Step(time, limit, why))

    def _tell(self, time: float, why: str) -> None:
        state = GONE if not self.listed else DRAINING if self.draining else self.health
        self.changes += 1
        self.states.add(Step(time, STATES.index(state if state in STATES else UNKNOWN), why))


@attrs.define(eq=False)
class EndpointStories:
    """All endpoints."""

    most: int = MOST_ENDPOINTS
    forgotten: Counter[str] = attrs.field(factory=Counter, init=False)
    """How many, by pool."""
    _all: dict[tuple[str, str], EndpointStory] = attrs.field(factory=dict, init=False)
    _met: int = attrs.field(default=0, init=False)

    def of(self, pool: str, url: str) -> EndpointStory:
        """An endpoint's story, begun if it is not known."""
        found = self._all.get((pool, url))
        if found is None:
            if len(self._all) >= self.most:
                self._forget_half()
            found = self._all[pool, url] = EndpointStory(pool, url, self._met)
            self._met += 1
        return found

    def __iter__(self) -> Iterator[EndpointStory]:
        """In the order in which they were met."""
        return iter(list(self._all.values()))

    def of_pool(self, pool: str) -> list[EndpointStory]:
        """Those of a pool, those with the most tokens first."""
        return sorted((one for one in self._all.values() if one.pool == pool), key=_weight)

    def _forget_half(self) -> None:
        kept = sorted(sorted(self._all.values(), key=_weight)[: self.most // 2], key=lambda one: one.place)
        names = {(one.pool, one.url) for one in kept}
        self.forgotten.update(pool for pool, url in self._all if (pool, url) not in names)
        self._all = {(one.pool, one.url): one for one in kept}


def _weight(story: EndpointStory) -> tuple[float, int, int]:
    return -story.tokens, -story.changes, story.place
