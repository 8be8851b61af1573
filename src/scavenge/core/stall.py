"""How long a pool has been getting nowhere: no usable endpoint, or nothing that helps coming back. Pure.

What does not help is ``busy``, ``lost`` and ``misrouted``: the requests they came to are all still to be answered.

Invariants: a stretch without help lasts from its first such outcome to its latest, and any other outcome ends it.
Silence is no stall while endpoints are usable and have work: two losses an hour apart, with long generations under way
in between, are no stretch; but the time in which there was nobody to give work to (all paused, ejected ...) is none of
that silence, so a server that asks for an hour's patience each time does not make the clock forget. Nor is it a stall
while a request is under way that is older than the stretch: a long generation goes on beside a server that flaps.
"""

from __future__ import annotations

import math

import attrs

from scavenge.types import Busy, Lost, Misrouted, Outcome

SILENCE_S = 120.0
"""How long nothing may come back from endpoints that are at work before a stretch is forgotten."""


@attrs.define
class StallClock:
    """Measures the stall of one pool; it starts without a usable endpoint."""

    unusable_since: float | None
    _unhelped_since: float | None = None
    _unhelped_until: float = 0.0
    _usable_s: float = 0.0
    """For how long endpoints have been usable since the latest outcome, up to ``_usable_since``."""
    _usable_since: float | None = None
    unhelped_why: str | None = None
    """What came back last, while nothing helps."""

    def on_usable(self, usable: bool, now: float) -> None:
        """Hear whether some endpoint may be given work."""
        if usable:
            self.unusable_since = None
            self._usable_since = now if self._usable_since is None else self._usable_since
        elif self.unusable_since is None:
            self.unusable_since = now
            self._usable_s += 0.0 if self._usable_since is None else now - self._usable_since
            self._usable_since = None

    def on_outcome(self, outcome: Outcome, now: float) -> None:
        """Hear how an attempt ended."""
        silence_s = self._usable_s + (0.0 if self._usable_since is None else now - self._usable_since)
        self._usable_s = 0.0
        self._usable_since = None if self._usable_since is None else now
        if not isinstance(outcome, Busy | Lost | Misrouted):
            self._unhelped_since = self.unhelped_why = None
            return
        if self._unhelped_since is None or silence_s > SILENCE_S:
            self._unhelped_since = now
        self._unhelped_until = now
        self.unhelped_why = f"{outcome.name}: {outcome.message}"

    def stalled_s(self, now: float, oldest_work_at: float = math.inf) -> float:
        """How long the present stall has lasted; 0 while the pool gets on.

        *oldest_work_at* is when the oldest request that is under way was given to its endpoint.
        """
        unusable_s = 0.0 if self.unusable_since is None else now - self.unusable_since
        since = self._unhelped_since
        unhelped_s = 0.0 if since is None or oldest_work_at < since else self._unhelped_until - since
        return max(unusable_s, unhelped_s)
