"""The admission policy ``aimd``: grows while nothing is refused, and cuts when something is. For hosted services.

It doubles after each clean round until the first refusal (slow start), and grows by a twentieth a round from then on.
A round is as many replies as the limit, with nearly the whole limit in flight at some moment of it. A refusal (429 and
the like) takes it to 0.8 of what was in flight, and what was in flight then is remembered: it grows to just below that,
and the memory relaxes by a tenth every two minutes. Many timeouts halve it and end the slow start, too, or a server
that queues without end would be given more than it can ever serve in time. A server that neither refuses nor is late
has it grow to ``max``: for one's own servers, which queue, ``tide`` is the policy.

Each job has a clock of its own. Cuts have a cooldown; rounds count replies to requests let in since the last cut, in
the cooldown too; the ceiling has its own time. A Retry-After moves none of them. What is no reply of the model (cached,
cancelled, a 5xx) is neither for nor against growth.

Sources: additive increase and multiplicative decrease, Chiu and Jain 1989; rounds, slow start, the binding test and the
cooldown of 15 s, the adaptive connections of Inspect AI; the ceiling and one cut for a burst, NVIDIA NeMo DataDesigner.

Invariants: see :mod:`scavenge.core.limits.level`.
"""

from __future__ import annotations

import attrs

from scavenge.core.limits.congestion import Ceiling, Strain
from scavenge.core.limits.level import BINDING, Level, LevelSettings, above_0
from scavenge.signals import Ended, Ending, Flow, GateView, WarmStart
from scavenge.types import CapChanged

LEAST_ROUND = 4
"""A round has no fewer replies than this, however low the limit is."""
GROWTH = 0.05
CUT = 0.8
LATE_CUT = 0.5
LOOK_EVERY_S = 2.0
"""How often the requests in flight are looked at, for the most of a round."""


@attrs.frozen
class AimdSettings(LevelSettings):
    """``[admission]`` with ``policy = "aimd"``. ``start`` and ``max`` are in requests, ``cooldown`` in seconds."""

    start: int = attrs.field(default=20, validator=attrs.validators.ge(1))
    cooldown: float = attrs.field(default=15.0, validator=above_0)
    """How long after a cut there is no other."""


@attrs.define
class Round:
    """How far the present round is."""

    served: int = 0
    refused: int = 0
    peak: float = 0.0
    """The most that was in flight."""

    def hear(self, ended: Ended) -> None:
        """Count a request that ended."""
        self.served += ended.ending is Ending.OK
        self.refused += ended.ending is Ending.RATE_LIMITED
        self.peak = max(self.peak, ended.in_flight)

    def is_over(self, limit: float) -> bool:
        """Whether it has all its replies."""
        return self.served >= max(LEAST_ROUND, limit)

    def is_clean(self, limit: float) -> bool:
        """Whether the limit was in use, and nobody was refused."""
        return not self.refused and self.peak >= BINDING * limit


def next_step(level: float) -> float:
    """The level after one more clean round."""
    return level + max(1.0, GROWTH * level)


@attrs.define(init=False)
class Aimd:
    """The policy of one endpoint."""

    _level: Level
    _strain: Strain
    _ceiling: Ceiling
    _round: Round
    _is_slow_start: bool
    _looked_at: float | None

    def __init__(self, settings: AimdSettings) -> None:
        self._level = Level(float(settings.start), settings.max)
        self._strain = Strain(settings.cooldown)
        self._ceiling = Ceiling()
        self._round = Round()
        self._is_slow_start = True
        self._looked_at = None

    def observe(self, event: object, now: float) -> None:
        """Hear of something that happened on the endpoint."""
        if self._looked_at is None:
            self._looked_at = now
        match event:
            case CapChanged() | WarmStart():
                self._level.hear(event)
            case Flow():
                self._looked_at = now
                self._round.peak = max(self._round.peak, event.in_flight_now)
            case Ended():
                self._on_ended(event, now)

    def limit(self, now: float) -> int:
        """The number of requests that may be in flight."""
        return self._level.limit

    def next_wake_at(self, now: float) -> float:
        """A moment after the last look at what is in flight."""
        return now if self._looked_at is None else self._looked_at + LOOK_EVERY_S

    def view(self, now: float) -> GateView:
        """The limit with its reason; settled once it was cut."""
        return GateView(self._level.limit, self._level.reason, settled=not self._is_slow_start)

    def _on_ended(self, ended: Ended, now: float) -> None:
        if why := self._strain.hear(ended, now):
            self._cut(why, ended, now)
        elif ended.admitted_at >= self._strain.cut_at:
            self._round.hear(ended)
            if self._round.is_over(self._level.limit):
                self._end_round(now)

    def _cut(self, why: str, ended: Ended, now: float) -> None:
        if why == "429":
            refused = min(self._level.at, float(max(1, ended.in_flight)))
            self._ceiling.refuse(refused, now)
            self._level.move(CUT * refused, why)
        else:
            self._level.move(LATE_CUT * self._level.at, why)
        self._strain.cut(now)
        self._round = Round()
        self._is_slow_start = False

    def _end_round(self, now: float) -> None:
        ended, self._round = self._round, Round()
        at = self._level.at
        if ended.is_clean(self._level.limit):
            grown = 2 * at if self._is_slow_start else next_step(at)
            self._level.move(max(at, min(grown, self._ceiling.highest(now))), "ramp" if self._is_slow_start else "gain")
