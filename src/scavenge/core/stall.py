"""How long a pool has been getting nowhere: no usable endpoint, or nothing but ``busy`` and ``lost`` coming back. Pure.

Invariant: silence is not a stall. While some endpoint is usable, only what comes back moves the clock: a stretch of
``busy`` and ``lost`` lasts from its first to its latest outcome, and any other outcome ends it, as does a silence of
:data:`GAP_S`: two losses an hour apart, with long generations under way in between, are no stretch.
"""

from __future__ import annotations

import attrs

from scavenge.types import Busy, Lost, Outcome

GAP_S = 120.0
"""Longer than any back-off, so that one who keeps trying is heard more often."""


@attrs.define
class StallClock:
    """Measures the stall of one pool; it starts without a usable endpoint."""

    unusable_since: float | None
    _barren_since: float | None = None
    _barren_until: float = 0.0
    barren_why: str | None = None
    """What came back last, while nothing else comes back."""

    def on_usable(self, usable: bool, now: float) -> None:
        """Hear whether some endpoint may be given work."""
        if usable:
            self.unusable_since = None
        elif self.unusable_since is None:
            self.unusable_since = now

    def on_outcome(self, outcome: Outcome, now: float) -> None:
        """Hear how an attempt ended."""
        if not isinstance(outcome, Busy | Lost):
            self._barren_since = self.barren_why = None
            return
        if self._barren_since is None or now - self._barren_until > GAP_S:
            self._barren_since = now
        self._barren_until = now
        self.barren_why = f"{outcome.name}: {outcome.message}"

    def stalled_s(self, now: float) -> float:
        """How long the present stall has lasted; 0 while the pool gets on."""
        unusable_s = 0.0 if self.unusable_since is None else now - self.unusable_since
        barren_s = 0.0 if self._barren_since is None else self._barren_until - self._barren_since
        return max(unusable_s, barren_s)
