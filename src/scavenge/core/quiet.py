"""How long nothing good has come of something, and when that is worth telling. Pure; knows no tasks and no threads.

A quiet stretch is told when it has lasted ``after_s``, and again each time it has lasted twice as long as when it was
told last. Any sign of progress ends it.

Invariant: only time in which somebody looked is quiet. Between two looks at most ``look_counts_s`` passes, however long
it was by the clock: a process that was stopped, or a machine that was asleep, has not been watched in the meantime.
"""

from __future__ import annotations

import math

import attrs

from scavenge.events import AttemptEnded, Event, ImageReady, RolloutFinished, WorkerReady
from scavenge.types import Busy, Lost, Misrouted

QUIET_AFTER_S = 300.0
"""How long a run is quiet before that is told."""
LOOK_EVERY_S = 5.0
"""How often to look whether a run is quiet."""
NO_PROGRESS = frozenset({Busy.name, Lost.name, Misrouted.name})
"""Outcomes after which the request is as far as before."""


@attrs.define
class QuietClock:
    """Measures a quiet stretch. ``again`` is false where one report a stretch is enough."""

    looked_at: float
    after_s: float = QUIET_AFTER_S
    look_counts_s: float = 3 * LOOK_EVERY_S
    again: bool = True
    quiet_s: float = 0.0
    _due_s: float = attrs.field(default=attrs.Factory(lambda self: self.after_s, takes_self=True), init=False)
    """How long the stretch has to last for the next report."""

    def on_sign(self, at: float) -> None:
        """Hear of a sign of progress, at an instant that may lie before the last look."""
        self.looked_at = max(self.looked_at, at)
        self.quiet_s = 0.0
        self._due_s = self.after_s

    def look(self, now: float) -> float | None:
        """Let time pass up to now. How many seconds have been quiet, when that is to be told; else ``None``."""
        self.quiet_s += min(max(0.0, now - self.looked_at), self.look_counts_s)
        self.looked_at = max(self.looked_at, now)
        if self.quiet_s < self._due_s:
            return None
        self._due_s = 2 * self.quiet_s if self.again else math.inf
        return self.quiet_s


def is_progress(event: Event) -> bool:
    """Whether an event says that the run got on: a result, an attempt that brought its request further, a worker that
    has loaded its environment, or a container image that has come.
    """
    match event:
        case RolloutFinished() | WorkerReady() | ImageReady():
            return True
        case AttemptEnded():
            return event.attempt.outcome not in NO_PROGRESS
        case _:
            return False
