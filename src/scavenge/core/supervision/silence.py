"""Whether a worker that says nothing works, or hangs. Pure. Instants are those of the awake clock.

One that is not heard of is looked at once a step. Processor time that it has used since the last look is a sign like
any other: one that holds its interpreter's lock in a long computation is busy, one that was stopped is not.
"""

from __future__ import annotations

import attrs

from scavenge.core.supervision.clock import SLACK_S
from scavenge.core.supervision.settings import BUSY_SHARE, LOOKS


@attrs.define
class Silence:
    """How long a worker has given no sign."""

    hung_after_s: float
    since_s: float
    look_at_s: float = attrs.field(init=False)
    """When it is to be looked at."""
    _seen: tuple[float, float] | None = attrs.field(default=None, init=False)
    """The processor time that it had used, and when that was, at the last look of this silence."""

    def __attrs_post_init__(self) -> None:
        self.look_at_s = self.since_s + self.hung_after_s / LOOKS

    def on_sign(self, now_s: float) -> None:
        """It was heard of."""
        self.since_s = now_s
        self.look_at_s = now_s + self.hung_after_s / LOOKS
        self._seen = None

    def on_look(self, now_s: float) -> None:
        """It is being looked at."""
        self.look_at_s = now_s + self.hung_after_s / LOOKS

    def hangs(self, cpu_s: float | None, now_s: float) -> bool:
        """Take in its processor time; true when it has given no sign for too long. ``None``: nobody knows."""
        if cpu_s is not None:
            before, self._seen = self._seen, (cpu_s, now_s)
            if before is None:
                return False
            if cpu_s - before[0] > BUSY_SHARE * (now_s - before[1]):
                self.on_sign(now_s)
                self._seen = (cpu_s, now_s)
        return now_s - self.since_s >= self.hung_after_s - SLACK_S
