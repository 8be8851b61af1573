"""What a gate makes of the end of a request: from an outcome to an :class:`scavenge.signals.Ending`. Pure.

A server that is starting answers 503 to everything. That is no word about how much it can take, so 503 and 529 count as
a plea for patience only from a server that has been serving; 429 always does.
"""

from __future__ import annotations

from typing import assert_never

from scavenge.signals import Ending
from scavenge.types import (
    Answer,
    Busy,
    Failed,
    Lost,
    LostCause,
    Misrouted,
    Ok,
    Outcome,
    Rejected,
    TimedOut,
)

TOO_MANY = 429
"""The status that means a limit was reached, whoever set it (RFC 6585, section 4)."""
SERVING_S = 60.0
"""For how long after a reply a server counts as one that serves."""
_OURS = frozenset({LostCause.LOCAL, LostCause.LATE})
"""Losses that this machine made itself."""


def ending_of(answer: Answer | None, served_s: float) -> Ending:
    """How a request ended; no *answer*: it was given up. The last good reply was *served_s* seconds ago."""
    if answer is None:
        return Ending.CANCELLED
    if answer.cached and isinstance(answer.outcome, Ok):
        return Ending.CACHED
    return _ending(answer.outcome, served_s)


def _ending(outcome: Outcome, served_s: float) -> Ending:
    match outcome:
        case Ok():
            return Ending.OK
        case Busy(http_status=status):
            return Ending.RATE_LIMITED if status == TOO_MANY or served_s <= SERVING_S else Ending.SERVER_ERROR
        case Lost(cause=cause):
            return Ending.CANCELLED if cause in _OURS else Ending.DOWN
        case Failed():
            return Ending.SERVER_ERROR
        case Misrouted() | Rejected():
            return Ending.CLIENT_ERROR
        case TimedOut():
            return Ending.TIMEOUT
        case _:
            assert_never(outcome)
