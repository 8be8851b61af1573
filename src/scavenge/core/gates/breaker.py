"""The circuit breaker of a run: ends it when sample after sample fails for good. Pure; ends nothing itself.

It is for what no retry cures (a wrong key, a wrong model, a broken scorer), where going on only makes errors. Failed
attempts that were tried again, and waiting for endpoints, never reach it. An error whose ``counts`` is false says
nothing about the run (a prompt too long, a broken row of the dataset), so it neither counts nor resets.

Where endpoints are listed once and for all, a run whose very first results are all misrouted has a wrong key or a wrong
model: it ends after :data:`FIRST` of them already.

Invariant: once it has tripped it stays tripped.
"""

from __future__ import annotations

import attrs

from scavenge.errors import CircuitBroken
from scavenge.rollouts import ErrorInfo

FIRST = 5
"""So many results that are all misrouted, before any other, end a run that is not elastic."""


@attrs.define
class CircuitBreaker:
    """Trips at ``limit`` failures in a row; a limit of 0 is off. ``elastic``: endpoints may still be mended."""

    limit: int
    elastic: bool = True
    in_a_row: int = attrs.field(default=0, init=False)
    tripped: bool = attrs.field(default=False, init=False)
    _last: ErrorInfo | None = attrs.field(default=None, init=False)
    _misrouted: int | None = attrs.field(default=0, init=False)
    """How many there were while there was nothing else; ``None``: there was something else."""

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
        if self._misrouted is not None:
            self._misrouted = self._misrouted + 1 if error is not None and error.misrouted else None
        self.tripped = self.tripped or self._never_begins
        return self.tripped

    @property
    def _never_begins(self) -> bool:
        return not self.elastic and (self._misrouted or 0) >= FIRST

    def error(self) -> CircuitBroken:
        """The error that ends a run whose breaker has tripped."""
        last = f"{self._last.type}: {self._last.message}" if self._last is not None else "none"
        if self._never_begins:
            return CircuitBroken(
                f"the first {self._misrouted} samples all failed in the same way, the last one with {last};"
                " mend the key, the model or the URL, then resume the run"
            )
        return CircuitBroken(
            f"{self.in_a_row} samples in a row failed for good (max_consecutive_failures = {self.limit}), "
            f"the last one with {last}; remove the cause, then resume the run"
        )
