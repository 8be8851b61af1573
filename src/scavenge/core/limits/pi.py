"""The admission policy ``pi``: keeps a small queue in the server, by proportional and integral control.

The queue is what a client sees of it: streamed requests without a first token, less those that an idle server would
still be reading (arrivals per second times 1.5 times the time to the first token of the first requests), and streams
that fell silent. A server that tells how many requests wait in it is believed when that is more. Every few seconds:

    error = (target - queue) / scale, between -1 and 1
    log limit += 0.2 * error + 0.1 * (error - last error)

with a target of a twentieth of what is in flight. Until the first queue is seen it grows by half each time instead.
Without streams and without a server's own figures nothing is seen of a queue, and the limit stays where it is. Neither
does it move up while the limit does not bind or nothing comes of what is in flight, nor at all while requests from
before a cut leave. A refusal, or many timeouts, takes it to 0.85 of what was in flight, once in 15 s.

Source: the velocity form of the PI controller of queues in routers, Hollot, Misra, Towsley and Gong 2001 ("On designing
improved controllers for AQM routers supporting TCP flows"); a logarithm in the place of the drop probability, as the
levels of servers differ by a factor of a hundred. Gains by simulation.

Invariants: see :mod:`scavenge.core.limits.level`.
"""

from __future__ import annotations

import math

import attrs

from scavenge.core.limits.congestion import Ceiling, Strain
from scavenge.core.limits.level import Level, LevelSettings, above_0
from scavenge.signals import Ended, Ending, Flow, GateView, ServerLoad, WarmStart
from scavenge.types import CapChanged

INTEGRAL_GAIN = 0.2
PROPORTIONAL_GAIN = 0.1
SCALE = 0.25
"""A queue of the target and this part of what is in flight is as wrong as a queue can be."""
LEAST_QUEUE = 2.0
"""A smaller queue is none: a request or two are always on their way."""
RAMP = math.log(1.5)
CUT = 0.85
COOLDOWN_S = 15.0
IDLE_IN_FLIGHT = 8
IDLE_SAMPLES = 64
"""The time to the first token of an idle server is the mean of the first so many requests, let in beside few others."""
READING_PART = 1.5
"""How much longer than on an idle server the reading of a prompt may take before it is called queueing."""
FRESH_S = 15.0
"""How long a server's own figures are good for."""


@attrs.frozen
class PiSettings(LevelSettings):
    """``[admission]`` with ``policy = "pi"``. ``start`` and ``max`` are in requests, ``interval`` in seconds."""

    queue: float = attrs.field(default=0.05, validator=[above_0, attrs.validators.le(1.0)])
    """The part of the requests in flight that is to be queueing."""
    interval: float = attrs.field(default=5.0, validator=above_0)


@attrs.define
class _Reading:
    """How long an idle server takes to the first token, in seconds."""

    mean_s: float = 0.0
    samples: int = 0

    def hear(self, ended: Ended) -> None:
        """Learn from a request that had the server nearly to itself."""
        if ended.first_token_s is not None and ended.in_flight <= IDLE_IN_FLIGHT and self.samples < IDLE_SAMPLES:
            self.samples += 1
            self.mean_s += (ended.first_token_s - self.mean_s) / self.samples


@attrs.define(init=False)
class Pi:
    """The policy of one endpoint."""

    wants_load = True

    _settings: PiSettings
    _level: Level
    _strain: Strain
    _ceiling: Ceiling
    _reading: _Reading
    _is_ramping: bool
    _error: float
    _served: int
    """Replies since the last look."""
    _looked_at: float | None
    _load: ServerLoad
    _load_at: float
    _queue: float | None
    _goodput: float | None

    def __init__(self, settings: PiSettings) -> None:
        self._settings = settings
        self._level = Level(float(settings.start), settings.max)
        self._strain = Strain(COOLDOWN_S)
        self._ceiling = Ceiling()
        self._reading = _Reading()
        self._is_ramping = True
        self._error = 0.0
        self._served = 0
        self._looked_at = None
        self._load, self._load_at = ServerLoad(), -math.inf
        self._queue = self._goodput = None

    def observe(self, event: object, now: float) -> None:
        """Hear of something that happened on the endpoint."""
        if self._looked_at is None:
            self._looked_at = now
        match event:
            case CapChanged() | WarmStart():
                self._level.hear(event)
            case ServerLoad():
                self._load, self._load_at = event, now
            case Ended():
                self._on_ended(event, now)
            case Flow():
                self._looked_at = now
                if event.span_s > 0:
                    self._on_flow(event, now)
                self._served = 0

    def limit(self, now: float) -> int:
        """The number of requests that may be in flight."""
        return self._level.limit

    def next_wake_at(self, now: float) -> float:
        """One interval after the last look."""
        return now if self._looked_at is None else self._looked_at + self._settings.interval

    def view(self, now: float) -> GateView:
        """The limit with its reason, and the queue; settled once a queue was seen."""
        limit, reason = self._level.limit, self._level.reason
        return GateView(limit, reason, self._queue, self._goodput, settled=not self._is_ramping)

    def _on_ended(self, ended: Ended, now: float) -> None:
        if ended.ending is Ending.OK:
            self._served += 1
            self._reading.hear(ended)
        if why := self._strain.hear(ended, now):
            level = min(self._level.at, float(max(1, ended.in_flight)))
            if why == "429":
                self._ceiling.refuse(level, now)
            self._level.move(CUT * level, why)
            self._strain.cut(now)
            self._is_ramping, self._error = False, 0.0

    def _on_flow(self, flow: Flow, now: float) -> None:
        self._goodput = flow.output_tokens / flow.span_s
        self._queue = queue = self._queue_seen(flow, now)
        if queue is None or flow.in_flight_now > self._level.limit:
            return
        step = self._step(queue, flow.in_flight)
        if step > 0:
            if self._level.is_bound_by(flow.in_flight) and (flow.output_tokens > 0 or self._served):
                grown = min(self._level.at * math.exp(step), self._ceiling.highest(now))
                self._level.move(max(self._level.at, grown), "ramp" if self._is_ramping else "gain")
        else:
            self._level.move(self._level.at * math.exp(step), "queue")

    def _queue_seen(self, flow: Flow, now: float) -> float | None:
        """How many requests queue in the server; ``None``: nothing tells."""
        told = self._load.waiting if now - self._load_at <= FRESH_S else None
        if flow.streamed < 0.5:
            return None if told is None else float(told)
        reading = READING_PART * self._served / flow.span_s * self._reading.mean_s
        return max(0.0, flow.awaiting - reading, float(told or 0)) + flow.stalled

    def _step(self, queue: float, in_flight: float) -> float:
        """By how much the logarithm of the limit moves."""
        target = max(LEAST_QUEUE, self._settings.queue * in_flight)
        self._is_ramping = self._is_ramping and queue <= target
        last, scale = self._error, max(target, SCALE * in_flight)
        self._error = max(-1.0, min(1.0, (target - queue) / scale))
        if self._is_ramping:
            return RAMP
        return INTEGRAL_GAIN * self._error + PROPORTIONAL_GAIN * (self._error - last)
