"""The time that the supervisor was awake for: what a worker is blamed for is measured by it. Pure.

While our own loop stalls, workers speak and nobody hears them. So however late we look at the clock, one step has
passed at most; whoever waits for an instant looks at least once a step.
"""

from __future__ import annotations

import attrs

SLACK_S = 1e-6
"""What is due within it is due now: sums of steps are not exact, and a wait for nothing would never end."""


@attrs.define
class AwakeClock:
    """Counts ``awake_s`` from 0 on, up to ``now``, when it was looked at last."""

    step_s: float
    now: float
    awake_s: float = 0.0

    def tick(self, now: float) -> None:
        """Look at the clock."""
        if now > self.now:
            self.awake_s += min(now - self.now, self.step_s)
            self.now = now

    def is_due(self, due_s: float) -> bool:
        """Whether we have been awake for *due_s*."""
        return due_s <= self.awake_s + SLACK_S

    def wait_s(self, due_s: float) -> float:
        """How long to sleep for something that is due after *due_s* awake."""
        return min(self.step_s, max(0.0, due_s - self.awake_s))
