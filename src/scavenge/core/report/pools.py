"""What the pools and the evaluations of a run did over time, all endpoints together. Pure.

Invariant: at most :data:`MOST_NAMES` pools and evaluations are told apart; what others did counts for :data:`OTHERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import attrs

from scavenge.core.report.spread import Spread
from scavenge.core.report.steps import Step, Steps
from scavenge.core.report.sums import Bins, Load

MOST_NAMES = 40
OTHERS = "(others)"
MOST_LIMITS = 20_000
"""Endpoints whose limits are summed up."""
SERIES_BINS, STEP_BINS = 1_000, 300
OK, ERROR = 0, 1
PARTS = ("queued_s", "model_s", "total_s")


@attrs.define(eq=False)
class PoolStory:
    """One pool."""

    name: str
    load: Load = attrs.field(factory=lambda: Load(SERIES_BINS))
    """Requests in flight."""
    flow: Load = attrs.field(factory=lambda: Load(SERIES_BINS))
    """Tokens a second, each reply's spread evenly over the time of its attempt."""
    limits: Steps = attrs.field(factory=lambda: Steps(STEP_BINS))
    """The sum of all endpoints' limits."""
    live: Steps = attrs.field(factory=lambda: Steps(STEP_BINS))
    session_limits: Steps = attrs.field(factory=lambda: Steps(STEP_BINS))
    budgets: Steps = attrs.field(factory=lambda: Steps(STEP_BINS))
    most_live: int = 0
    _limits_now: dict[str, int] = attrs.field(factory=dict, init=False)
    _sum: int = attrs.field(default=0, init=False)

    def limit_moved(self, time: float, url: str, limit: int) -> None:
        """An endpoint's gate allows another number of requests."""
        if url not in self._limits_now and len(self._limits_now) >= MOST_LIMITS:
            return
        self._sum += limit - self._limits_now.get(url, 0)
        self._limits_now[url] = limit
        self.limits.add(Step(time, self._sum))

    def left(self, time: float, url: str) -> None:
        """An endpoint is no longer listed."""
        if (limit := self._limits_now.pop(url, None)) is not None:
            self._sum -= limit
            self.limits.add(Step(time, self._sum if self._limits_now else None))

    def sessions_moved(self, time: float, live: int, limit: int | None, budget: float | None, why: str) -> None:
        """The session gate allows more or less."""
        self.most_live = max(self.most_live, live)
        for steps, value in ((self.live, live), (self.session_limits, limit), (self.budgets, budget)):
            if value is not None or steps:
                steps.add(Step(time, value, why))

    def ended(self, time: float) -> None:
        """The run, or a part of it, is over."""
        for steps in (self.limits, self.live, self.session_limits, self.budgets):
            if steps:
                steps.add(Step(time, None))
        self._limits_now.clear()
        self._sum = 0


@attrs.define(eq=False)
class EvalStory:
    """One evaluation."""

    name: str
    finished: Bins = attrs.field(factory=lambda: Bins(2, SERIES_BINS))
    """Rollouts that are ok, and errors."""
    spreads: dict[str, Spread] = attrs.field(factory=lambda: {part: Spread() for part in PARTS})


Story = TypeVar("Story")


@attrs.define(eq=False)
class Named(Generic[Story]):
    """Stories by name, in the order in which they were met."""

    make: Callable[[str], Story]
    most: int = MOST_NAMES
    _all: dict[str, Story] = attrs.field(factory=dict, init=False)

    def of(self, name: str) -> Story:
        """The story of that name, begun if it is not known."""
        found = self._all.get(name)
        if found is None:
            name = OTHERS if len(self._all) >= self.most else name
            found = self._all[name] = self._all.get(name) or self.make(name)
        return found

    def __iter__(self) -> Iterator[Story]:
        return iter(self._all.values())
