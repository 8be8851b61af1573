"""``tide``: an endpoint's limit follows what more requests bring, and the queue they make; failures seldom cut it.

How it decides, window by window:

* *Ramp*: go up in big steps while a step pays, to where the line ``N/G = A + B*N`` says that more would not; and no
  further than there is room for replies that are still growing, see :mod:`scavenge.core.limits.tide_room`.
* *Queue*: requests without a first token beyond what an empty server makes of them, and streams that fell silent, are
  the server's queue seen from outside. It ends the ramp; a long one takes the limit back to what is being worked on.
* *Cruise*: steps up and down around the centre show the elasticity of the goodput; well above the target the centre
  goes up, near none it comes down, and in between it stays. Where it is steep, the ramp takes over again.
* *Shift*: goodput far from what is expected at this load, twice, is another server or other work: forget, and ramp from
  here. Less goodput alone is no reason to cut, since work that brings less a second may want more at once.
* *Refusals, timeouts, the server's own figures*: see :mod:`scavenge.core.limits.tide_brakes`.

There is no unloaded latency to compare with: a batching server has no knee in its latency, and what is anchored there
holds a part of its throughput only. Where the ideas come from: a start-up that ends when the delivery rate stops
growing, and probing up and down, from BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue
14(5), 2016); throughput against requests in flight as the judge, from the covariance test of Uber's Cinnamon auto-tuner
(2023); ``N = G * tau`` is Little's law (1961); the elasticity over windows is ours.

It must not know which requests these are, nor who sends them. All time is told.

Invariants: ``min <= limit <= max``, never above the endpoint's own cap, at least 1; failed, cached and cancelled work
never raises it, nor does a window in which it did not bind.
"""

from __future__ import annotations

import math

import attrs

from scavenge.core.limits.tide_brakes import CUT, Refusals, ServerWord, Timeouts
from scavenge.core.limits.tide_course import PREEMPTING, Course
from scavenge.core.limits.tide_room import Room
from scavenge.core.limits.tide_served import Served
from scavenge.core.limits.tide_windows import Reading, Span, Window
from scavenge.signals import Ended, Ending, Flow, GateView, ServerLoad, WarmStart
from scavenge.types import CapChanged


def _at_least_min(settings: TideSettings, field: attrs.Attribute[int], value: int) -> None:
    if value < settings.min:
        raise ValueError(f"{field.name}: expected at least min ({settings.min}), got {value}")


@attrs.frozen
class TideSettings:
    """``[admission]`` with ``policy = "tide"``. Limits are in requests per endpoint."""

    start: int = attrs.field(default=8, validator=attrs.validators.ge(1))
    """Where an endpoint begins of whose kind nothing is known."""
    min: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    max: int = attrs.field(default=1024, validator=_at_least_min)
    target_elasticity: float = attrs.field(default=0.05, validator=[attrs.validators.gt(0.0), attrs.validators.lt(1.0)])
    """By what part of one per cent one per cent more in flight must raise the goodput to be worth it."""


_BINDING = 0.7
"""With a smaller part of the limit in flight it did not bind, and nothing is learnt about it."""
_DITHER = 0.08
_SMALL = 12
"""Below this the steps around the centre are whole requests."""
_UNLOADED = 1.5
"""An empty server's first tokens may take so many times their mean without being a queue."""


class Tide:
    """One endpoint's limit.

    versionadded: 0.1
    """

    wants_load = True

    def __init__(self, settings: TideSettings) -> None:
        self._settings = settings
        self._cap: int | None = None
        self._course = Course(settings.target_elasticity)
        self._refusals = Refusals()
        self._timeouts = Timeouts()
        self._server = ServerWord()
        self._served = Served()
        self._room = Room()
        self._window: Window | None = None
        self._windows = 0
        self._reading: Reading | None = None
        self._queue: float | None = None
        self._reason = "start"
        self._centre = max(float(settings.min), min(float(settings.start), float(settings.max)))
        self._limit = int(self._centre)
        self._limit_since = self._grown_at = -math.inf

    def observe(self, event: object, now: float) -> None:
        """Hear of something that happened on the endpoint."""
        match event:
            case Flow():
                self._on_flow(event, now)
            case Ended():
                self._on_ended(event, now)
            case ServerLoad():
                self._server.on_load(event, now)
                if self._centre > self._highest():
                    self._move(self._centre, "slots", now)
            case CapChanged():
                self._on_cap(event.max_concurrent, now)
            case WarmStart() if self._is_new:
                self._course.ramping = False
                self._move(float(event.limit), "warm", now)

    def limit(self, now: float) -> int:
        """The number of requests that may be in flight."""
        return self._limit

    def next_wake_at(self, now: float) -> float:
        """When the window is to be looked at; at once, where none has begun."""
        return self._window.wake_at if self._window is not None else now

    def view(self, now: float) -> GateView:
        """What it knows."""
        return GateView(
            limit=self._limit,
            reason=self._reason,
            queue=self._queue,
            goodput=self._reading.goodput if self._reading is not None else None,
            elasticity=self._course.elasticity,
            half_load=self._course.history.half_load(),
            settled=not self._course.ramping or self._reason == "kv",
        )

    # --- windows

    @property
    def _is_new(self) -> bool:
        return self._window is None and not self._served.residence_s

    def _begin(self, now: float) -> None:
        self._window = Window(now, self._span(), self._limit_since)

    def _span(self) -> Span:
        return self._ramp_span() if self._course.ramping else self._cruise_span()

    def _ramp_span(self) -> Span:
        """Short: as soon as the first tokens are there and some tokens have come of each stream."""
        seen = self._reading
        token_s = seen.in_flight / seen.goodput if seen is not None else 0.0
        measure_s = max(1.5, 20.0 * token_s)
        return Span(
            settle_s=max(1.0, 5.0 * token_s),
            measure_s=measure_s,
            done_needed=max(3.0, 0.35 * self._limit),
            longest_s=max(60.0, measure_s, self._served.residence_s),
            whole_needed=max(4.0, 0.15 * self._limit),
            patience_s=10.0,
            blind_s=max(3.0, measure_s),
            check_s=0.5,
        )

    def _cruise_span(self) -> Span:
        """Long enough for what a step changed to have worked its way through half of the requests."""
        length_s = max(5.0, 0.5 * self._served.residence_s)
        return Span(
            settle_s=0.3 * length_s,
            measure_s=0.7 * length_s,
            done_needed=min(8.0, self._limit),
            longest_s=4.0 * length_s,
            whole_needed=max(16.0, 0.6 * self._limit),
        )

    def _on_flow(self, flow: Flow, now: float) -> None:
        window = self._window
        if window is not None:
            window.span = self._span()
        if window is None or not window.on_flow(flow, now):
            self._begin(now)
            return
        self._room.on_flow(flow)
        is_over = window.is_over
        if not is_over and not window.may_be_over:
            return
        reading = window.reading()
        binds = reading is not None and reading.in_flight >= _BINDING * self._limit
        if reading is not None and binds and (is_over or self._course.is_clear(reading)):
            self._judge(reading, now, window.done)
            self._begin(now)
        elif is_over:
            self._begin(now)

    def _judge(self, reading: Reading, now: float, done: int) -> None:
        """Go where the window says, as far as nothing speaks against it."""
        self._windows += 1
        self._reading = reading
        explained = _UNLOADED * reading.done_per_s * self._served.first_token_s
        self._queue = queue = max(0.0, reading.awaiting - explained) + reading.stalled
        share = max(queue, self._server.waiting()) / reading.in_flight
        if self._server.take_thrashing(done):
            share = PREEMPTING
        new, reason = self._course.follow(reading, self._centre, queue, share)
        if reason == "shift":
            self._refusals.ceiling.forget()
            self._timeouts.ceiling.forget()
        if new > self._centre:
            new, reason = self._held_back(reading, new, reason, now)
        highest = min(self._highest(), self._refusals.ceiling.highest(now), self._timeouts.ceiling.highest(now))
        if new >= highest:
            new, self._course.ramping = highest, False
        self._move(new, reason, now, steps=not self._course.ramping)

    def _held_back(self, reading: Reading, new: float, reason: str, now: float) -> tuple[float, str]:
        """How far up it may go: as far as there is room, and not before it is known whether there is any."""
        settled = 0.0 < self._served.residence_s < now - self._grown_at
        room = self._server.room(self._room, settled=settled)
        held = self._server.holds(now)
        if not held and room == math.inf and self._course.ramping and self._served.is_too_few(reading.in_flight):
            held = "young"
        if not held and new <= room:
            return new, reason
        self._course.wait()
        return (self._centre, held) if held else (max(self._centre, room), "kv")

    # --- what ends, and the cap

    def _on_ended(self, ended: Ended, now: float) -> None:
        if ended.ending is Ending.OK:
            self._served.on_done(ended)
            self._room.on_done(ended)
            if self._window is not None:
                self._window.on_done(ended)
        if self._timeouts.on_ended(ended, now):
            self._timeouts.ceiling.put(self._centre, now)
            self._cut(CUT * self._centre, "timeout", now)
        if ended.ending is Ending.RATE_LIMITED:
            level = self._refusals.on_refused(ended, self._centre, now)
            if level is not None:
                self._cut(level, "429", now)

    def _cut(self, level: float, reason: str, now: float) -> None:
        self._course.ramping = False
        self._timeouts.on_cut(now, self._served.residence_s)
        self._move(level, reason, now)
        self._begin(now)

    def _on_cap(self, cap: int | None, now: float) -> None:
        """Keep to it; a gate that was at its old cap knows nothing of what is above, and begins again."""
        centre = self._centre
        if self._cap is not None and centre >= self._cap and (cap is None or cap > self._cap):
            self._course.ramping = True
            centre = max(centre, float(self._settings.start))
        self._cap = cap
        if centre != self._centre or self._limit > self._highest():
            self._move(centre, self._reason, now)

    # --- from the centre to the limit

    def _move(self, centre: float, reason: str, now: float, *, steps: bool = False) -> None:
        highest = self._highest()
        grew = int(centre) > int(self._centre)
        if grew:
            self._grown_at = now
        self._centre = max(1.0, min(float(self._settings.min), highest), min(centre, highest))
        level = self._beside_centre() if steps and not grew else self._centre
        limit = max(1, int(min(level, highest)))
        self._reason = reason
        if limit != self._limit:
            self._limit, self._limit_since = limit, now

    def _beside_centre(self) -> float:
        """The next step around the centre: above it and below it in turn."""
        centre, up = self._centre, self._windows % 2 == 1
        if self._refusals.ceiling.is_near(centre) or self._timeouts.ceiling.is_near(centre):
            return centre
        if centre < _SMALL:
            return centre + (1.0 if up else 0.0)
        return max(float(self._settings.min), centre * (1.0 + _DITHER if up else 1.0 - _DITHER))

    def _highest(self) -> float:
        cap = math.inf if self._cap is None else max(1.0, float(self._cap))
        return min(float(self._settings.max), cap, self._server.highest())
