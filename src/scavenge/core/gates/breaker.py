"""The circuit breaker of a run: ends it when sample after sample fails for good. Pure; ends nothing itself.

It is for what no retry cures (a wrong key, a wrong model, a broken scorer), where going on only makes errors. Failed
attempts that were tried again, and waiting for endpoints, never reach it. An error whose ``counts`` is false says
nothing about the run (a prompt too long, a broken row of the dataset), so it neither counts nor resets.

Invariant: once it has tripped it stays tripped.
"""

from __future__ import annotations

import attrs

from scavenge.errors import CircuitBroken
from scavenge.rollouts import ErrorInfo


@attrs.define
class CircuitBreaker:
    """Trips at ``limit`` failures in a row; a limit of 0 is off."""

    limit: int
    in_a_row: int = attrs.field(default=0, init=False)
    tripped: bool = attrs.field(default=False, init=False)
    _last: ErrorInfo | None = attrs.field(default=None, init=False)

    def observe(self, error: ErrorInfo | None) -> bool:
        """Hear how a rollout ended (``None``: well); whether the run must end."""
        if self.tripped:
            return True
        if error is None:
            self.in_a_row = 0
        elif error.counts:
            self.in_a_row += 1
            self._last = error
            self.tripped = 0 < self.limit <= self.in_a_row
        return self.tripped

    def error(self) -> CircuitBroken:
        """The error that ends a run whose breaker has tripped."""
        last = f"{self._last.type}: {self._last.message}" if self._last is not None else "none"
        return CircuitBroken(
            f"{self.in_a_row} samples in a row failed for good (max_consecutive_failures = {self.limit}), "
            f"the last one with {last}; remove the cause, then resume the run"
        )
