"""How many workers are wanted, and which are needed no more. Pure; starts and ends none."""

from __future__ import annotations

import math

import attrs

from scavenge.core.supervision.clock import AwakeClock
from scavenge.core.supervision.crew import Crew, Worker
from scavenge.core.supervision.parking import Parking
from scavenge.core.supervision.settings import GROW_ABOVE, IDLE_AFTER_S, SupervisorSettings


def workers_wanted(settings: SupervisorSettings, multiplex: int, parking: Parking, crew: Crew) -> int:
    """How many workers the rollouts in flight call for: places for all and some to spare; a whole one for a suspect."""
    suspects = parking.suspects + crew.alone
    others = len(parking) + crew.playing - suspects
    above, of = GROW_ABOVE
    needed = suspects - (-others * of // (above * multiplex))
    return max(settings.min, min(settings.max, needed))


@attrs.define
class Surplus:
    """For how long more workers have been ready than are wanted. Instants are those of the awake clock."""

    since_s: float = math.inf
    """Infinity while there is none."""

    def to_retire(self, surplus: int, crew: Crew, clock: AwakeClock) -> list[Worker]:
        """The workers to retire now, when *surplus* are not wanted: of those that are idle, the highest slots."""
        if surplus <= 0:
            self.since_s = math.inf
            return []
        self.since_s = min(self.since_s, clock.awake_s)
        idle = [worker for worker in crew.idle() if clock.is_due(self._retire_at_s(worker))]
        return sorted(idle, key=lambda worker: -worker.slot.index)[:surplus]

    def next_at_s(self, crew: Crew) -> float:
        """When there may be one to retire, if nothing happens."""
        return min(map(self._retire_at_s, crew.idle()), default=math.inf)

    def _retire_at_s(self, worker: Worker) -> float:
        return max(worker.idle_since_s, self.since_s) + IDLE_AFTER_S
