"""Where ``tide`` goes from one window to the next: up while it pays, back from a queue, afresh on another server.

It decides centres from readings. It must not know refusals, caps or the server's own figures but for what it is told,
nor what time it is. How the centre becomes a limit is not its business either.

Invariants: it never goes up on a reading that shows a queue; every centre it gives is positive and finite.
"""

from __future__ import annotations

import math

import attrs

from scavenge.core.limits.tide_fit import History, Point
from scavenge.core.limits.tide_windows import Reading

CLEAR = 0.8
"""A step with at least this elasticity is so clear that nobody has to be done before the next."""
WAITING = 0.2
"""With more than this part of them waiting for their first token, requests have not settled."""
_PAID = 0.25
"""A step of the ramp with less elasticity than this was the last; and to where it is that, the ramp leaps."""
_LEAP, _FIRST_LEAP = 2.0, 1.5
"""A step of the ramp, and its first one, when it is not known whether the server has room at all."""
_LEAST_LEAP = 1.1
_MOST_WAITING = 0.5
"""With more than this part of them waiting for their first token, for whatever reason, no ramp goes on."""
_QUEUE = 3.0
"""Fewer requests than this are no queue, however many they are among the rest."""
PREEMPTING = 1.0
_SHORT_QUEUE = 0.10
_LONG_QUEUE = 0.25
_BEYOND_EDGE = 1.03
"""How far beyond what is being worked on the centre may be: a server must not run dry between two requests."""
_DRAINING = 1.25
"""With so many times the centre in flight, it has stepped back already and what is too much is on its way out."""
_EDGE_RISES, _EDGE_RISES_MOST = 0.01, 0.5
"""In the first window without a queue; twice as much in each one after it."""
_OVER_EDGE = 1.03
_WORSE, _BETTER = 0.72, 1.4
"""Goodput against what was expected: beyond these it is another server, if it is so twice."""
_STEEP = 0.4
_GROWTH, _STEEP_GROWTH = 1.25, 1.5
_GROWTH_UNSEEN = 1.08


@attrs.define
class Course:
    """The way of one endpoint's centre. ``target`` is the elasticity that more requests must have to be worth it."""

    target: float
    ramping: bool = True
    elasticity: float | None = attrs.field(default=None, init=False)
    """As it was found last."""
    history: History = attrs.field(factory=History, init=False)
    _edge: float = attrs.field(default=math.inf, init=False)
    """What was being worked on when a queue was last seen; rises as long as there is none."""
    _edge_rises: float = attrs.field(default=_EDGE_RISES, init=False)
    _off: int = attrs.field(default=0, init=False)

    def is_clear(self, reading: Reading) -> bool:
        """Whether it is seen before requests are done: a step of the ramp has paid, or many streams stand still."""
        if reading.stalled > max(_QUEUE, _SHORT_QUEUE * reading.in_flight):
            return True
        step = self.history.step_to(Point(reading.in_flight, reading.goodput))
        return (step is None or step >= CLEAR) and reading.awaiting <= WAITING * reading.in_flight

    def follow(self, reading: Reading, centre: float, queue: float, share: float) -> tuple[float, str]:
        """The next centre and why; *queue* requests wait in the server, which is a *share* of those in flight.

        A server that preempts what it works on is told by a *share* of :data:`PREEMPTING`.
        """
        shifted = self._is_shifted(reading)
        if shifted:
            self._begin_anew()
        self.history.add(Point(reading.in_flight, reading.goodput))
        if share >= PREEMPTING or (queue > _QUEUE and share > _SHORT_QUEUE):
            return self._yield(reading, queue, centre, share), "queue"
        if shifted:
            return centre, "shift"
        self._raise_edge()
        new, reason = self._climb(reading, centre) if self.ramping else self._cruise(reading, centre)
        return min(new, max(centre, _OVER_EDGE * self._edge)), reason

    def wait(self) -> None:
        """It is kept from going up. A ramp that waits begins anew: what was seen before is old by then."""
        if self.ramping:
            self.history.forget()

    def _is_shifted(self, reading: Reading) -> bool:
        """Whether the goodput is far from the expected one for the second time."""
        slope = self.history.slope_at(reading.in_flight)
        expected = slope.goodput_at(reading.in_flight) if slope is not None else None
        if expected is None:
            return False
        ratio = reading.goodput / expected
        self._off = 0 if _WORSE <= ratio <= _BETTER else self._off + 1
        return self._off >= 2

    def _begin_anew(self) -> None:
        """Forget, and ramp from where it is: a server that has no use for more shows that soon."""
        self._off, self._edge = 0, math.inf
        self.history.forget()
        self.ramping = True

    def _yield(self, reading: Reading, queue: float, centre: float, share: float) -> float:
        """Go back towards what is being worked on."""
        self.ramping = False
        self._edge, self._edge_rises = max(1.0, reading.in_flight - queue), _EDGE_RISES
        if share >= PREEMPTING:
            at_most, at_least = 0.96, 0.5
        elif share > _LONG_QUEUE:
            at_most, at_least = 1.0, 0.5
        else:
            at_most, at_least = 0.98, 0.9
        if reading.in_flight > _DRAINING * centre:
            at_most = 1.0
        return max(at_least * centre, min(at_most * centre, _BEYOND_EDGE * self._edge + 1.0))

    def _raise_edge(self) -> None:
        """The longer there has been no queue, the less it counts where there was one."""
        self._edge *= 1.0 + self._edge_rises
        self._edge_rises = min(_EDGE_RISES_MOST, 2.0 * self._edge_rises)

    def _climb(self, reading: Reading, centre: float) -> tuple[float, str]:
        """Double, or go to where the next step would not pay any more."""
        half_load, step = self.history.half_load(), self.history.last_step()
        leap = _FIRST_LEAP if step is None else _LEAP
        if half_load is not None:
            # with N/G = A + B*N the elasticity is e where N = A/B * (1 - e)/e
            leap = min(leap, half_load * (1.0 - _PAID) / _PAID / reading.in_flight)
        if (
            reading.awaiting > _MOST_WAITING * reading.in_flight
            or leap < _LEAST_LEAP
            or (step is not None and step < _PAID)
        ):
            self.ramping = False
            return centre, "flat"
        return centre * leap, "ramp"

    def _cruise(self, reading: Reading, centre: float) -> tuple[float, str]:
        """Go by the elasticity, as far as it is sure."""
        slope = self.history.slope_at(reading.in_flight)
        if slope is None:
            return centre * _GROWTH_UNSEEN, "gain"
        self.elasticity = e = slope.elasticity
        unsure = slope.error / 2.0
        if e - unsure > self.target:
            self.ramping = e - 2.0 * unsure > _STEEP
            most = _STEEP_GROWTH if self.ramping else _GROWTH
            e = min(e, 0.9)
            away = e / (1.0 - e) * (1.0 - self.target) / self.target
            return centre * min(most, math.sqrt(away)), "gain"
        if e + unsure < self.target / 2.0:
            return centre * max(0.9, 0.99 - 0.6 * (self.target - e)), "flat"
        return centre, "flat"
