"""What was decided when something happened, until it is told. Pure.

Invariant: nothing is in it about a worker that is gone or a rollout that was answered or withdrawn meanwhile.
"""

from __future__ import annotations

import attrs

from scavenge.core.supervision.commands import Abort, Command, Condemn, Displace, Kill, Ticket, WorkerId


@attrs.define(eq=False)
class Outbox:
    """Commands that wait for the next decision."""

    kills: dict[WorkerId, Kill] = attrs.field(factory=dict)
    aborts: dict[Ticket, Abort] = attrs.field(factory=dict)
    endings: dict[Ticket, Displace | Condemn] = attrs.field(factory=dict)

    def take(self) -> list[Command]:
        """All of them; none is left."""
        taken: list[Command] = [*self.kills.values(), *self.aborts.values(), *self.endings.values()]
        for told in (self.kills, self.aborts, self.endings):
            told.clear()
        return taken
