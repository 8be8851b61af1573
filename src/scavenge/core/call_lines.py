"""Log lines of the calls of foreign clients: their words, and which of them are worth telling. Pure.

Invariant: of the calls of one pool that are given up, one a minute is told at ``warning``, and the next one says how
many came between; an outage that costs thousands of calls makes a few lines. The others are told at ``debug``.
"""

from __future__ import annotations

import attrs

from scavenge.core.figures import precise_duration
from scavenge.core.image_lines import Line
from scavenge.core.naming import one_line
from scavenge.events import CallEnded

TELL_EVERY_S = 60.0
NOT_OURS = frozenset({"rejected", "hung up", "ended"})
"""Ends that are the client's doing: what it asked for was refused, or it went, or ended its session."""


@attrs.define
class _Told:
    """What was told of one pool."""

    at: float
    untold: int = 0


@attrs.define(eq=False)
class CallLines:
    """Decides for each call that is over; remembers when it last told of a pool."""

    _told: dict[str, _Told] = attrs.field(factory=dict, init=False)

    def line(self, event: CallEnded, now: float) -> Line:
        """The line of a call."""
        pool = one_line(event.endpoint_id)
        after = f"after {precise_duration(event.duration_s)}, sent {event.attempts} time{'s' * (event.attempts != 1)}"
        if event.outcome == "ok":
            return Line("debug", f"{pool}: a call was answered {after}")
        if event.outcome in NOT_OURS:
            return Line("debug", f"{pool}: a call is over {after}: {event.outcome}")
        text = f"{pool}: a call was given up {after}: {event.outcome}"
        told = self._told.get(event.endpoint_id)
        if told is not None and now - told.at < TELL_EVERY_S:
            told.untold += 1
            return Line("debug", text)
        self._told[event.endpoint_id] = _Told(now)
        more = f" ({told.untold} more since this was last told)" if told is not None and told.untold else ""
        return Line("warning", text + more)
