"""The admission policy ``gradient2``: compares the speed of single streams, one window of replies with the last one.

A window is a number of replies, ``max(8, limit)``, all of requests that were let in since the window before it was
closed; a stream's speed is its tokens over its whole time here. When a window is full, with ``s`` its mean speed:

    limit = limit * clamp(s / s of the last window, 0.5, 1) + sqrt(limit)

It is the gradient idea of Netflix' concurrency-limits (``Gradient2Limit``) with one window in the place of the long
average, so that it knows no latency that is right or wrong. A refusal, or many timeouts, takes the limit to 0.7 of
itself, and growth and windows wait for 30 s while the requests that are too many leave; a limit is at least 1, so what
is let in at the lower limit in that time is served and not counted. A 5xx or a lost endpoint moves nothing.

What is known about it: **it does not settle.** Comparing windows has no anchor. With u the part of a stream's time that
grows with the number of streams, a growth of ``sqrt(limit)/(1 + u)`` a window is its fixed point at any limit and on
any server, and what stops it is the noise of two means that are clamped at 1, which depends on how much the speeds of
replies differ, and not on the server. In 90 simulated minutes of chat at a server that holds 256, the limit
of a simple form of it was at 5, 15, 30, 60 and 90 min:

    coefficient of variation 0.3    122  300  477  734  977
    coefficient of variation 1      126  268  261  312  577
    coefficient of variation 2      137  247  272  255  239

and with 1 in the place of 0.5 and speeds taken from the first token on, at ``max``. So ``max`` is its only sure bound.
It needs no streaming, only replies that say how many tokens they have. ``tide`` does what this is meant for.

Invariants: see :mod:`scavenge.core.limits.level`; a request let in before ``counts_from`` is in no window.
"""

from __future__ import annotations

import math

import attrs

from scavenge.core.limits.congestion import Strain
from scavenge.core.limits.level import Level, LevelSettings, above_0
from scavenge.signals import Ended, Ending, GateView, WarmStart
from scavenge.types import CapChanged

LEAST_REPLIES = 8
"""A window has no fewer replies than this, however low the limit is."""
LEAST_GRADIENT = 0.5
CUT = 0.7


@attrs.frozen
class Gradient2Settings(LevelSettings):
    """``[admission]`` with ``policy = "gradient2"``. ``start`` and ``max`` are in requests, ``pause`` in seconds."""

    pause: float = attrs.field(default=30.0, validator=above_0)
    """How long growth and windows wait after a cut."""


@attrs.define
class _Window:
    """Replies whose requests were let in since ``counts_from``."""

    counts_from: float = -math.inf
    speeds: list[float] = attrs.field(factory=list)
    peak: int = 0
    """The most in flight that one of its requests saw when it was let in, itself included."""


@attrs.define(init=False)
class Gradient2:
    """The policy of one endpoint. It hears of what ends and needs to be woken for nothing."""

    _level: Level
    _strain: Strain
    _window: _Window
    _last_speed: float | None

    def __init__(self, settings: Gradient2Settings) -> None:
        self._level = Level(float(settings.start), settings.max)
        self._strain = Strain(settings.pause)
        self._window = _Window()
        self._last_speed = None

    def observe(self, event: object, now: float) -> None:
        """Hear of something that happened on the endpoint."""
        match event:
            case CapChanged() | WarmStart():
                self._level.hear(event)
            case Ended():
                if why := self._strain.hear(event, now):
                    self._cut(why, now)
                elif event.ending is Ending.OK:
                    self._on_served(event, now)

    def limit(self, now: float) -> int:
        """The number of requests that may be in flight."""
        return self._level.limit

    def next_wake_at(self, now: float) -> None:
        """Never: whole replies are all that it looks at."""

    def view(self, now: float) -> GateView:
        """The limit with its reason, and the tokens per second that the last window's speed comes to."""
        limit, speed = self._level.limit, self._last_speed
        return GateView(limit, self._level.reason, goodput=None if speed is None else speed * limit)

    def _cut(self, why: str, now: float) -> None:
        self._level.move(CUT * self._level.at, why)
        self._strain.cut(now)
        self._window = _Window(now + self._strain.cooldown_s)

    def _on_served(self, ended: Ended, now: float) -> None:
        """Count a reply whose speed is known, and close the window that it fills."""
        window = self._window
        if ended.admitted_at < window.counts_from or not ended.output_tokens or ended.duration_s <= 0:
            return
        speed = ended.output_tokens / ended.duration_s
        if not 0.0 < speed < math.inf:  # a quotient that no number holds
            return
        window.speeds.append(speed)
        window.peak = max(window.peak, ended.in_flight)
        if len(window.speeds) >= max(LEAST_REPLIES, self._level.limit):
            self._close(window)
            self._window = _Window(now)

    def _close(self, window: _Window) -> None:
        """Compare with the last window; where the limit did not bind there is nothing to learn from the speed."""
        speed = sum(window.speeds) / len(window.speeds)
        if self._level.is_bound_by(window.peak):
            if self._last_speed is not None:
                gradient = max(LEAST_GRADIENT, min(1.0, speed / self._last_speed))
                at = self._level.at
                moved = at * gradient + math.sqrt(at)
                self._level.move(moved, "gain" if moved > at else "flat")
            self._last_speed = speed
