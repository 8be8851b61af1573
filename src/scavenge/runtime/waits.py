"""Tells of one pool's waits: since when it gets nowhere and why, another reason for it, and its end. Ends nothing.

Whoever has it looks every :data:`LOOK_EVERY_S` seconds.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from scavenge.core.figures import without_numbers
from scavenge.events import Observer, PoolWaiting
from scavenge.runtime.pool import Pool

LOOK_EVERY_S = 1.0
"""How often a pool's stall is looked at."""
TELL_AFTER_S = 2.0
"""A wait shorter than this is not worth telling."""
TELL_AGAIN_AFTER_S = 10.0
"""How soon another reason for the same wait is told."""


@attrs.define(eq=False)
class WaitTeller:
    """Tells of a pool that has just been opened; the fleet has told of one that nothing is listed for."""

    pool: Pool
    emit: Observer = attrs.field(repr=False)
    wall_clock: Callable[[], float] = attrs.field(repr=False)
    _told: str = attrs.field(init=False)
    """The reason that was told last; empty: none, or that the wait was over."""
    _told_at: float = attrs.field(factory=trio.current_time, init=False)

    def __attrs_post_init__(self) -> None:
        self._told = "" if self.pool.members else self.pool.why_waiting()

    def look(self) -> float:
        """Tell what is new, and return for how long the pool has been getting nowhere; 0 while it gets on."""
        now, stalled_s = trio.current_time(), self.pool.stalled_s()
        waits = stalled_s > 0 if self._told else stalled_s >= TELL_AFTER_S
        why = self.pool.why_waiting() if waits else ""
        if _is_news(why, self._told, now - self._told_at):
            self._told, self._told_at = why, now
            self.emit(PoolWaiting(self.pool.endpoint_id, self.wall_clock() - stalled_s, why))
        return stalled_s


def _is_news(why: str, told: str, told_s: float) -> bool:
    """Whether a reason for waiting, or that there is none any more, is worth telling *told_s* seconds after another."""
    if not (why and told):
        return why != told
    return told_s >= TELL_AGAIN_AFTER_S and without_numbers(why) != without_numbers(told)
