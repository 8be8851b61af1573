"""Counts what has happened in each pool behind a gateway, from its events: for those who ask again and again. Pure.

Invariants: hearing an event costs O(1); nothing is counted by endpoint, session or model, so that the state does not
grow with what comes and goes; and there are totals of at most :data:`POOLS_MAX` pools, more count as :data:`REST`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from scavenge.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptStarted,
    CallEnded,
    EndpointJoined,
    EndpointLeft,
    Event,
    HealthChanged,
    LeasesRevoked,
)

POOLS_MAX = 1000
REST = "others"
"""The pool under which everything is counted of those that come after :data:`POOLS_MAX` others."""
CALL_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)
"""From one cached word to a long chain of thought on a slow server."""
FIRST_BYTE_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
DROPPED = "dropped"
"""What stands for the outcome of an attempt that was given up from our side, and so has none."""
OUT_OF_WORK = ("ejected", "misconfigured")
"""States of health whose beginnings are counted."""


@attrs.define(eq=False)
class Spread:
    """How often a value fell between two bounds, and the sum of all values. A bound belongs to what is below it."""

    bounds: Sequence[float]
    total: float = attrs.field(default=0.0, init=False)
    _counts: list[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def up_to(self) -> Iterator[tuple[float, int]]:
        """How many values were not above each bound, infinity last."""
        so_far = 0
        for bound, count in zip((*self.bounds, float("inf")), self._counts, strict=True):
            so_far += count
            yield bound, so_far


def _spreads(bounds: Sequence[float]) -> Callable[[], Mapping[bool, Spread]]:
    return lambda: {False: Spread(bounds), True: Spread(bounds)}


def _zeros(*names: object) -> Callable[[], Counter[Any]]:
    """A counter in which these names stand at 0 from the beginning: who asks for a rate needs the value before."""
    return lambda: Counter(dict.fromkeys(names, 0))


@attrs.define(eq=False)
class PoolTotals:
    """What has happened in one pool."""

    calls: Counter[tuple[str, bool]] = attrs.field(factory=_zeros(("ok", False), ("ok", True)), init=False)
    """By outcome, and whether the client wanted a stream."""
    durations: Mapping[bool, Spread] = attrs.field(factory=_spreads(CALL_BOUNDS_S), init=False)
    """Of the calls that were answered, by whether the client wanted a stream."""
    first_bytes: Mapping[bool, Spread] = attrs.field(factory=_spreads(FIRST_BYTE_BOUNDS_S), init=False)
    attempts: Counter[str] = attrs.field(factory=_zeros("ok"), init=False)
    resent: int = attrs.field(default=0, init=False)
    """Attempts at what had been sent before."""
    tokens: Counter[str] = attrs.field(factory=_zeros("prompt", "completion"), init=False)
    cached_tokens: int = attrs.field(default=0, init=False)
    """Those of the prompts' tokens that servers had in their caches."""
    revoked: int = attrs.field(default=0, init=False)
    """Requests whose endpoint was lost under them."""
    changes: Counter[str] = attrs.field(factory=_zeros("joined", "left", *OUT_OF_WORK), init=False)
    """What became of endpoints."""

    def on_call(self, event: CallEnded) -> None:
        """A call is over; only one that was answered tells how long an answer takes."""
        self.calls[event.outcome, event.streamed] += 1
        self.tokens["prompt"] += event.usage.prompt_tokens or 0
        self.cached_tokens += event.usage.cached_tokens or 0
        if event.outcome == "ok":
            self.durations[event.streamed].add(event.duration_s)
            if event.first_byte_s is not None:  # told by a clock that may have been set back
                self.first_bytes[event.streamed].add(max(0.0, event.first_byte_s))

    def on_attempt(self, event: AttemptEnded) -> None:
        """An attempt has its outcome."""
        self.attempts[event.attempt.outcome] += 1
        self.tokens["completion"] += event.tokens

    def on_other(self, event: Event) -> None:
        """Anything else that is counted."""
        match event:
            case AttemptStarted():
                self.resent += event.again
            case AttemptDropped():
                self.attempts[DROPPED] += 1
            case LeasesRevoked():
                self.revoked += event.leases
            case EndpointJoined():
                self.changes["joined"] += 1
            case EndpointLeft():
                self.changes["left"] += 1
            case HealthChanged() if event.new in OUT_OF_WORK:
                self.changes[event.new] += 1
            case _:
                pass


_OTHERS = (AttemptStarted, AttemptDropped, LeasesRevoked, EndpointJoined, EndpointLeft, HealthChanged)
_COUNTED: dict[type, Callable[[PoolTotals, Any], None]] = {
    CallEnded: PoolTotals.on_call,
    AttemptEnded: PoolTotals.on_attempt,
    **dict.fromkeys(_OTHERS, PoolTotals.on_other),
}


@attrs.define(eq=False)
class GatewayTotals:
    """The totals of all pools, in the order in which they were first met."""

    pools: dict[str, PoolTotals] = attrs.field(factory=dict, init=False)

    def observe(self, event: Event) -> None:
        """Count an event, if it is one that is counted."""
        count = _COUNTED.get(type(event))
        if count is not None:
            endpoint_id: str = event.endpoint_id  # type: ignore[union-attr]  # all that are counted have one
            count(self.of(endpoint_id), event)

    def of(self, endpoint_id: str) -> PoolTotals:
        """The totals of a pool, from now on."""
        found = self.pools.get(endpoint_id)
        if found is None:
            name = endpoint_id if len(self.pools) < POOLS_MAX else REST
            found = self.pools.get(name)
        if found is None:
            found = self.pools[name] = PoolTotals()
        return found
