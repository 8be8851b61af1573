"""The slots that workers are started in: which may be tried now, and when the others. Pure; knows no rollout.

What may go wrong is told apart. *Not spawned* is the machine's trouble, and is tried on and on. *Died loading* is the
environment's: until a worker has become ready, nothing speaks for a second try. Both are failures of a start, and
back off together; a slot with :data:`BUDGET` of them in a row is *exhausted*: it is probed, one slot of the pool at a
time and each ``backoff_max_s`` at most. A worker that gets ready shows that workers can be started, and ends all of
that. *Died serving* backs off by itself, slot by slot: what ends it is a rollout that was finished.

Invariants: a slot has at most one worker, and there are ``size`` slots at most; a slot that backs off, is probed or is
held is made up for by no fresh one, so that trouble is not multiplied by the slots; each slot that has failed is tried
again at some instant, as long as workers are missing and the environment has not been given up.
"""

from __future__ import annotations

import enum
import math
from random import Random

import attrs

from scavenge.core.backoff import equal_jitter_s
from scavenge.core.naming import one_line
from scavenge.core.supervision.settings import BUDGET, FIRST_BACKOFF_S

NO_REST = (0, -math.inf)


class How(enum.Enum):
    """How a worker came to nothing; :attr:`scavenge.events.WorkerEnded.how` tells it in the same words."""

    NOT_SPAWNED = "not spawned"
    LOADING = "died loading"
    SERVING = "died serving"


class Use(enum.Enum):
    """What is in a slot."""

    FREE = "free"
    STARTING = "starting"
    READY = "ready"
    OVER = "over"
    """A worker that stops, or is killed: of no use any more, but still there."""


@attrs.define(eq=False)
class Slot:
    """One slot and what happened in it."""

    index: int
    use: Use = Use.FREE
    failures: int = 0
    """Starts in a row that came to nothing."""
    crashes: int = 0
    """Workers in a row that became ready and died before they had finished a rollout."""
    how: How | None = None
    """The last of both."""
    why: str = ""
    failed_as: int = 0
    """Which failure of the pool the last one was: several may come at one instant."""
    start_at: float = -math.inf
    """When the back-off for failed starts is over."""
    serve_at: float = -math.inf
    """When the back-off for deaths while serving is over."""

    @property
    def failed(self) -> bool:
        """Whether something went wrong here that nothing has made up for yet."""
        return self.failures + self.crashes > 0

    @property
    def exhausted(self) -> bool:
        """Whether it has failed so often that it is only probed."""
        return self.failures >= BUDGET

    @property
    def due_at(self) -> float:
        """When its back-off is over."""
        return max(self.start_at, self.serve_at)


@attrs.define(eq=False)
class Slots:
    """All slots of a pool."""

    size: int
    backoff_max_s: float
    random: Random = attrs.field(repr=False)
    ever_ready: bool = False
    """Whether any worker ever was."""
    _made: list[Slot] = attrs.field(factory=list, init=False)
    """Slots that were ever used; the others are like one another."""
    _failures: int = attrs.field(default=0, init=False)
    """How many workers ever came to nothing."""
    _probed: Slot | None = attrs.field(default=None, init=False)
    _next_probe_at: float = attrs.field(default=-math.inf, init=False)
    _rest: tuple[int, float] = attrs.field(default=NO_REST, init=False)
    """With so many workers missing there is nothing to start before that instant, as long as no slot changes."""

    # --- what happened

    def on_started(self, slot: Slot, now: float) -> None:
        """A worker is started in a slot that :meth:`to_start` named."""
        self._set(slot, Use.STARTING)
        if slot.exhausted:
            self._probed = slot
            self._next_probe_at = now + self.backoff_max_s

    def on_failed(self, slot: Slot, how: How, why: str, now: float) -> None:
        """The worker in a slot came to nothing."""
        if how is How.SERVING:
            slot.serve_at = now + self._backoff_s(slot.crashes)
            slot.crashes += 1
        else:
            slot.start_at = now + self._backoff_s(slot.failures)
            slot.failures += 1
            self._probed = None if slot is self._probed else self._probed
        self._failures += 1
        slot.how, slot.why, slot.failed_as = how, one_line(why), self._failures
        self._set(slot, Use.OVER)

    def _backoff_s(self, steps: int) -> float:
        return equal_jitter_s(steps, FIRST_BACKOFF_S, self.backoff_max_s, self.random)

    def on_ready(self, slot: Slot) -> None:
        """A worker became ready: workers can be started."""
        self._set(slot, Use.READY)
        self.ever_ready = True
        self._probed = None
        for one in self._made:
            one.failures = 0
            one.start_at = -math.inf

    def on_finished(self, slot: Slot) -> None:
        """A worker finished a rollout."""
        slot.crashes = 0

    def on_over(self, slot: Slot) -> None:
        """The worker in a slot is ended by us, and has not failed."""
        self._set(slot, Use.OVER)

    def on_free(self, slot: Slot) -> None:
        """Nothing is in a slot any more."""
        self._set(slot, Use.FREE)

    def _set(self, slot: Slot, use: Use) -> None:
        slot.use = use
        self._rest = NO_REST

    # --- what follows

    def to_start(self, missing: int, now: float) -> list[Slot]:
        """The slots to start a worker in now, when so many are *missing*."""
        if missing <= 0 or self._rests(missing, now):
            return []
        down = self._down()
        due = sorted((slot for slot in down if slot.use is Use.FREE and self._try_at(slot) <= now), key=_due_at)
        exhausted = [slot for slot in due if slot.exhausted]
        chosen = [slot for slot in due if slot not in exhausted[1:]][:missing]
        waiting = sum(slot not in chosen and (slot.use is Use.FREE or self._try_at(slot) > now) for slot in down)
        chosen += self._fresh(missing - len(chosen) - waiting)
        self._rest = NO_REST if chosen else (missing, self.next_start_at(missing, now))
        return chosen

    def next_start_at(self, missing: int, now: float) -> float:
        """When :meth:`to_start` may name another slot, if nothing happens; infinity: not then."""
        if missing <= 0:
            return math.inf
        if self._rests(missing, now):
            return self._rest[1]
        return min((at for at in map(self._try_at, self._down()) if at > now), default=math.inf)

    def _rests(self, missing: int, now: float) -> bool:
        return missing == self._rest[0] and now < self._rest[1]

    def _down(self) -> list[Slot]:
        """The slots that have failed and are not used again yet."""
        return [slot for slot in self._made if slot.failed and slot.use in (Use.FREE, Use.OVER)]

    def _try_at(self, slot: Slot) -> float:
        if slot.how is How.LOADING and not self.ever_ready:
            return math.inf  # held: it is not tried again before another has shown that it can be loaded
        if not slot.exhausted:
            return slot.due_at
        return math.inf if self._probed else max(slot.due_at, self._next_probe_at)

    def _fresh(self, count: int) -> list[Slot]:
        """Slots without trouble, at most *count*, the lowest first."""
        if count <= 0:
            return []
        fresh = [slot for slot in self._made if slot.use is Use.FREE and not slot.failed][:count]
        made = len(self._made)
        new = [Slot(index) for index in range(made, min(self.size, made + count - len(fresh)))]
        self._made += new
        return fresh + new

    def hopeless(self) -> str | None:
        """Why no worker can be had at all; ``None`` while there is hope."""
        if self.ever_ready or any(slot.use is Use.STARTING or slot.how is How.NOT_SPAWNED for slot in self._made):
            return None
        broken = [slot for slot in self._made if slot.how is How.LOADING]
        return max(broken, key=_failed_as).why if broken else None

    def trouble(self, missing: int) -> str:
        """What failed last and is missing for it; empty when nothing is."""
        last = max(self._troubled(missing), key=_failed_as, default=None)
        return "" if last is None or last.how is None else f"{last.how.value}, {last.why}"

    def again(self, missing: int, now: float) -> str:
        """When what failed is tried again."""
        if any(slot.use is Use.STARTING for slot in self._troubled(missing)):
            return "being tried again"
        wait_s = self.next_start_at(missing, now) - now
        return "tried again once another has loaded" if math.isinf(wait_s) else f"again in {math.ceil(wait_s)} s"

    def _troubled(self, missing: int) -> list[Slot]:
        uses = (Use.STARTING,) if missing <= 0 else (Use.STARTING, Use.FREE, Use.OVER)
        return [slot for slot in self._made if slot.failed and slot.use in uses]


def _due_at(slot: Slot) -> float:
    return slot.due_at


def _failed_as(slot: Slot) -> int:
    return slot.failed_as
