"""What failed requests say about how many an endpoint takes, and the memory of it. Pure; moves no limit.

Only a refusal (429 and the like) and a request that ran out of time speak of congestion. A 5xx, a lost connection, a
request that was wrong or given up do not: with two random 5xx in a hundred, a limit that is cut for each has nothing
left. What was let in before the last cut has nothing to say about the time after it, however late it comes (the
controller of PrimeIntellect-ai/prime-rl once went from 1024 to 8 that way). How long a server asks one request to stay
away is no measure of its capacity, and moves no clock here (inspect_ai, issue 5137: Retry-After longer than the time
between two tries put the end of a cooldown off for ever, and with it cuts and growth).
"""

from __future__ import annotations

import math

import attrs

from scavenge.signals import Ended, Ending

LATE_AT_LEAST = 3
LATE_PART = 0.10
"""Timeouts count when they are so many, and such a part of what ended since the last cut: they keep coming for one
whole ``request_timeout`` after the cause is gone."""
BELOW_CEILING = 0.97
"""Growth ends at this part of a level that was refused (NeMo DataDesigner's ceiling, which is above the level)."""
RELAXES_BY = 1.1
RELAXES_EVERY_S = 120.0
"""The level that was refused is taken to be so much higher, at least by one request, after each such time."""


@attrs.define
class Strain:
    """Hears how requests end, and says when there is a reason to cut: once for one burst."""

    cooldown_s: float
    """How long after a cut there is no other."""
    cut_at: float = attrs.field(default=-math.inf, init=False)
    _over: int = attrs.field(default=0, init=False)
    _late: int = attrs.field(default=0, init=False)
    """Of the requests that were let in since the last cut: those served or out of time, and those out of time."""

    def hear(self, ended: Ended, now: float) -> str:
        """Why to cut now: ``429`` or ``timeout``; nothing when there is no reason."""
        if ended.admitted_at < self.cut_at:
            return ""
        late = ended.ending is Ending.TIMEOUT
        self._over += late or ended.ending is Ending.OK
        self._late += late
        if now < self.cut_at + self.cooldown_s:
            return ""
        if ended.ending is Ending.RATE_LIMITED:
            return "429"
        return "timeout" if late and self._late >= max(LATE_AT_LEAST, LATE_PART * self._over) else ""

    def cut(self, now: float) -> None:
        """Begin anew after a cut."""
        self.cut_at, self._over, self._late = now, 0, 0


@attrs.define
class Ceiling:
    """Remembers the level that was refused last."""

    _refused: float = attrs.field(default=math.inf, init=False)
    _refused_at: float = attrs.field(default=0.0, init=False)

    def refuse(self, level: float, now: float) -> None:
        """So many in flight were too many."""
        self._refused, self._refused_at = level, now

    def highest(self, now: float) -> float:
        """What may be grown to; infinite when nothing was ever refused."""
        if math.isinf(self._refused):
            return math.inf
        times = max(0, int((now - self._refused_at) // RELAXES_EVERY_S))
        return BELOW_CEILING * max(self._refused * RELAXES_BY ** min(times, 500), self._refused + times)
