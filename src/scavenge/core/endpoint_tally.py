"""Counts what each endpoint did in a run, from its events. Pure.

An endpoint is alive while it is listed and its health is none of :data:`NOT_ALIVE`. Until the first word of its health
or the first answer that is taken on trust, and taken back if that word says it had not answered yet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from scavenge.core.health_state import State
from scavenge.core.summary import EndpointSummary
from scavenge.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptStarted,
    EndpointJoined,
    EndpointLeft,
    Event,
    HealthChanged,
    LimitMoved,
)
from scavenge.types import EndpointId, Url

NOT_ALIVE = frozenset({State.PROBING.value, State.EJECTED.value, State.MISCONFIGURED.value})


@attrs.define(eq=False)
class EndpointTally:
    """The counts of one endpoint in one pool."""

    endpoint_id: EndpointId
    url: Url
    requests: int = 0
    failures: Counter[str] = attrs.field(factory=Counter)
    tokens: int = 0
    alive_s: float = 0.0
    peak_in_flight: int = 0
    limit: int | None = None
    """What its gate told last; that of an earlier part until it tells."""
    peak_limit: int | None = None
    _in_flight: int = attrs.field(default=0, init=False)
    _alive_since: float | None = attrs.field(default=None, init=False)
    _sure: bool = attrs.field(default=False, init=False)
    """Whether it is known to answer since ``_alive_since``."""

    def joined(self, now: float) -> None:
        """It was listed."""
        self._alive_since, self._sure = now, False

    def left(self, now: float) -> None:
        """It is no longer listed."""
        self.alive_s += self._alive_for(now)
        self._alive_since = None

    def health_changed(self, old: str, new: str, now: float) -> None:
        """Its health took another state."""
        if old not in NOT_ALIVE:
            self._sure = True
            self.alive_s += self._alive_for(now)
        self._alive_since, self._sure = (None, False) if new in NOT_ALIVE else (now, True)

    def started(self) -> None:
        """A request was sent."""
        self._in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self._in_flight)

    def dropped(self) -> None:
        """A request was given up from our side."""
        self._in_flight -= 1

    def ended(self, outcome: str, tokens: int) -> None:
        """A request ended."""
        self._in_flight = max(0, self._in_flight - 1)
        self.requests += 1
        self.tokens += tokens
        if outcome == "ok":
            self._sure = True
        else:
            self.failures[outcome] += 1

    def limit_moved(self, new: int) -> None:
        """Its gate allows another number of requests in flight."""
        self.limit = new
        self.peak_limit = max(new, self.peak_limit or 0)

    def _alive_for(self, now: float) -> float:
        return now - self._alive_since if self._alive_since is not None and self._sure else 0.0

    def summary(self, now: float) -> EndpointSummary:
        """The figures now."""
        alive_s = self.alive_s + self._alive_for(now)
        failures = dict(self.failures)
        return EndpointSummary(
            self.endpoint_id,
            self.url,
            self.requests,
            failures,
            self.tokens,
            alive_s,
            self.peak_in_flight,
            self.limit,
            self.peak_limit,
        )


@attrs.define(eq=False)
class EndpointTallies:
    """The counts of all endpoints, in the order in which they were first met."""

    _all: dict[tuple[EndpointId, Url], EndpointTally] = attrs.field(factory=dict, init=False)

    def observe(self, event: Event, now: float) -> None:
        """Count an event, if it is one of an endpoint's."""
        match event:
            case AttemptStarted(endpoint_id, url):
                self._of(endpoint_id, url).started()
            case AttemptEnded(endpoint_id, attempt, tokens):
                self._of(endpoint_id, attempt.endpoint).ended(attempt.outcome, tokens)
            case AttemptDropped(endpoint_id, url):
                self._of(endpoint_id, url).dropped()
            case EndpointJoined(endpoint_id, url):
                self._of(endpoint_id, url).joined(now)
            case EndpointLeft(endpoint_id, url):
                self._of(endpoint_id, url).left(now)
            case HealthChanged(endpoint_id, url, old, new):
                self._of(endpoint_id, url).health_changed(old, new, now)
            case LimitMoved(endpoint_id=endpoint_id, url=url, new=new):
                self._of(endpoint_id, url).limit_moved(new)
            case _:
                pass

    def _of(self, endpoint_id: EndpointId, url: Url) -> EndpointTally:
        found = self._all.get((endpoint_id, url))
        if found is None:
            found = self._all[endpoint_id, url] = EndpointTally(endpoint_id, url)
        return found

    def carry_over(self, earlier: Mapping[str, Any]) -> None:
        """Add an endpoint's figures from the last summary of an earlier part."""
        if not isinstance(earlier.get("url"), str):
            return
        mine = self._of(EndpointId(str(earlier.get("endpoint_id"))), Url(earlier["url"]))
        mine.requests += int(number(earlier.get("requests")))
        mine.tokens += int(number(earlier.get("tokens")))
        mine.alive_s += number(earlier.get("alive_s"))
        mine.peak_in_flight = max(mine.peak_in_flight, int(number(earlier.get("peak_in_flight"))))
        if limit := int(number(earlier.get("limit"))):
            mine.limit, mine.peak_limit = limit, max(limit, int(number(earlier.get("peak_limit"))))
        failures = earlier.get("failures")
        for outcome, count in failures.items() if isinstance(failures, dict) else ():
            mine.failures[outcome] += int(number(count))

    def summary(self, now: float) -> tuple[EndpointSummary, ...]:
        """The figures now."""
        return tuple(each.summary(now) for each in self._all.values())


def number(value: object) -> float:
    """A figure of an earlier summary; 0 for what is none."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
