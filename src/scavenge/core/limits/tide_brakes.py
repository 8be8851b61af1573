"""When a gate must step back, or may not step forward, whatever the goodput says: refusals, timeouts, the server.

Each job has a clock of its own. A refusal (429) cuts at most every :data:`REFUSAL_REST_S`, and is remembered as a
*ceiling* which rises slowly. Timeouts cut when they are many among the last outcomes, and only those of requests that
were admitted after the last cut count: the others tell of the time before it. They leave a ceiling, too. A
``Retry-After`` moves nothing here.

Decides factors and bounds, not limits. Invariant: a cut forgets the timeouts that led to it.
"""

from __future__ import annotations

import math

import attrs

from scavenge.core.limits.tide_room import Room
from scavenge.signals import Ended, Ending, ServerLoad

REFUSAL_REST_S = 15.0
TIMEOUT_REST_S = 15.0
CUT = 0.85
"""What is left of the level at a cut."""
BELOW_CEILING = 0.97
CEILING_RISES_S = 120.0
CEILING_RISES, CEILING_RISES_BY = 0.1, 0.5
"""After :data:`CEILING_RISES_S` by this part, or so many requests; then by twice that part each time."""
_NEAR = 0.93
FULL_CACHE = 0.92
"""With more of its key-value cache in use, a server is given no more requests."""
ROOMY_CACHE = 0.5
"""With less in use by requests that have grown, there is room whatever was reckoned: they share what they hold."""
LOAD_FRESH_S = 15.0
"""A server that has told its figures and tells none for so long is not trusted to take more."""
LOOK_AHEAD = 2
"""Requests beyond the server's slots, so that none is idle between two of them."""
_TIMEOUTS = 3
_TIMEOUTS_PART = 0.10
_OUTCOMES = 512
"""Of so many outcomes, half is forgotten: what went well an hour ago excuses nothing."""
_PREEMPTED_PART = 0.02


@attrs.define
class Ceiling:
    """A level that was too high; the longer it is respected, the faster it is doubted."""

    part: float
    """The part of it that is allowed."""
    level: float = math.inf
    _rises_at: float = math.inf
    _rises: float = CEILING_RISES

    def put(self, level: float, now: float) -> None:
        """This was too high."""
        self.level, self._rises_at, self._rises = level, now + CEILING_RISES_S, CEILING_RISES

    def highest(self, now: float) -> float:
        """The highest level that it allows."""
        if now >= self._rises_at:
            self.level = max(self.level * (1.0 + self._rises), self.level + CEILING_RISES_BY)
            self._rises_at, self._rises = now + CEILING_RISES_S, min(1.0, 2.0 * self._rises)
        return self.part * self.level

    def is_near(self, centre: float) -> bool:
        """Whether steps around the *centre* would run into it."""
        return centre >= _NEAR * self.part * self.level

    def forget(self) -> None:
        """The endpoint is not what it was."""
        self.level = self._rises_at = math.inf


@attrs.define
class Refusals:
    """429s: a ceiling, and when to cut."""

    ceiling: Ceiling = attrs.field(factory=lambda: Ceiling(BELOW_CEILING))
    rests_until: float = -math.inf

    def on_refused(self, ended: Ended, centre: float, now: float) -> float | None:
        """The level to go down to from *centre*; ``None``: this one belongs to the last cut."""
        if now < self.rests_until or ended.admitted_at < self.rests_until - REFUSAL_REST_S:
            return None
        level = max(1.0, min(centre, float(ended.in_flight)))
        self.rests_until = now + REFUSAL_REST_S
        self.ceiling.put(level, now)
        return CUT * level


@attrs.define
class Timeouts:
    """Requests that ran out of their time, among those admitted since the last cut."""

    ceiling: Ceiling = attrs.field(factory=lambda: Ceiling(CUT))
    since: float = -math.inf
    """The last cut."""
    rests_until: float = -math.inf
    timeouts: int = 0
    outcomes: int = 0

    def on_ended(self, ended: Ended, now: float) -> bool:
        """Whether they are so many that the level is to be cut."""
        if ended.admitted_at < self.since:
            return False
        if self.outcomes >= _OUTCOMES:
            self.outcomes, self.timeouts = self.outcomes // 2, self.timeouts // 2
        self.outcomes += 1
        if ended.ending is not Ending.TIMEOUT:
            return False
        self.timeouts += 1
        return now >= self.rests_until and self.timeouts >= max(_TIMEOUTS, _TIMEOUTS_PART * self.outcomes)

    def on_cut(self, now: float, residence_s: float) -> None:
        """The level was cut, for whatever reason."""
        self.since, self.timeouts, self.outcomes = now, 0, 0
        self.rests_until = now + max(TIMEOUT_REST_S, residence_s / 2)


@attrs.define
class ServerWord:
    """What the server said last about itself. A counter that went back is a process that started anew."""

    load: ServerLoad | None = None
    heard_at: float = -math.inf
    preempted: int = 0
    """Preemptions since they were last taken."""

    def on_load(self, load: ServerLoad, now: float) -> None:
        """Hear of the server's figures."""
        before = self.load.preemptions if self.load is not None else None
        if before is not None and load.preemptions is not None:
            self.preempted += max(0, load.preemptions - before)
        self.load, self.heard_at = load, now

    def holds(self, now: float) -> str:
        """Why there may be no more in flight than now; empty: nothing is known against it."""
        if self.load is None:
            return ""
        if now - self.heard_at > LOAD_FRESH_S:
            return "stale"
        return "kv" if (self.load.kv_usage or 0.0) > FULL_CACHE else ""

    def room(self, room: Room, *, settled: bool) -> float:
        """How many requests it has room for once they have grown; *settled*: those that it has, have done so."""
        load, kv_tokens = self.load, (self.load.kv_tokens or 0) if self.load is not None else 0
        if load is None or kv_tokens <= 0 or load.kv_usage is None or (settled and load.kv_usage < ROOMY_CACHE):
            return math.inf
        held_now = load.kv_usage * kv_tokens / load.running if load.running else math.inf
        return room.requests(kv_tokens, held_now)

    def highest(self) -> float:
        """The highest level that makes sense for its slots."""
        slots = self.load.slots if self.load is not None else None
        return slots + LOOK_AHEAD if slots is not None and slots > 0 else math.inf

    def waiting(self) -> float:
        """Requests that it says are waiting in it."""
        return float(self.load.waiting or 0) if self.load is not None else 0.0

    def take_thrashing(self, done: float) -> bool:
        """Whether it preempted too many against the *done* requests since this was asked last."""
        preempted, self.preempted = self.preempted, 0
        return preempted > max(1.0, _PREEMPTED_PART * done)
