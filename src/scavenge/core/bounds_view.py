"""What the gates of a run allow, told from their events: requests in flight, rollouts under way. Pure; for progress.

Knows no gate. A session gate tells of a move, not of every session, so what is under way is counted from the rollouts;
those that call the model once, and need no place, are among them.

Invariant: the state does not grow with the samples, nor with endpoints that have gone.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from scavenge.events import LimitMoved, RolloutFinished, RolloutStarted, SessionsMoved
from scavenge.types import EndpointId, Url

Place = tuple[EndpointId, Url]


@attrs.define
class BoundsView:
    """The limits that were told, and how many rollouts are under way."""

    under_way: int = 0
    _limits: dict[Place, int] = attrs.field(factory=dict)
    _sessions: dict[EndpointId, SessionsMoved] = attrs.field(factory=dict)

    def on_event(self, event: LimitMoved | SessionsMoved | RolloutStarted | RolloutFinished) -> None:
        """Hear of an event."""
        match event:
            case LimitMoved():
                self._limits[event.endpoint_id, event.url] = event.new
            case SessionsMoved():
                self._sessions[event.endpoint_id] = event
            case RolloutStarted():
                self.under_way += 1
            case _:
                self.under_way = max(0, self.under_way - 1)

    def forget(self, place: Place) -> None:
        """An endpoint has gone."""
        self._limits.pop(place, None)

    def limit(self, places: Iterable[Place]) -> int | None:
        """How many requests the gates of these endpoints allow together; ``None`` where one has told no limit."""
        limits = [self._limits.get(place) for place in places]
        known = [limit for limit in limits if limit is not None]
        return sum(known) if known and len(known) == len(limits) else None

    def sessions(self) -> str:
        """What is under way, and within what; empty while no session gate has told of a bound."""
        moved = self._sessions.values()
        parts = []
        if limits := [event.limit for event in moved if event.limit is not None]:
            parts.append(f"at most {sum(limits):,} sessions")
        if budgets := [event.budget_tokens for event in moved if event.budget_tokens is not None]:
            parts.append(f"contexts up to {sum(budgets):,.0f} tokens")
        return f"{self.under_way:,} under way ({', '.join(parts)})" if parts else ""
