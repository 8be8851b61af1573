"""What the last windows say about an endpoint: how its goodput answers to the number of requests in flight.

Two readings of the same points. Close by, goodput is a power of the requests in flight, ``G ~ N^e``, and a weighted
regression of ``ln G`` on ``ln N`` gives the elasticity ``e`` with its error. Over a wide range a batching server takes
``N/G = A + B*N`` seconds for a token of each stream (Little's law makes ``N/G`` of what a window sees), so that
``e = A/(A + B*N)`` and half of the most it gives comes at ``N = A/B``, its *half load*.

Knows no limits and no clock: points are counted, not timed.

Invariants: every point has a positive, finite number of requests and goodput; at most :data:`REMEMBERED` are kept.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import attrs

REMEMBERED = 16
"""Windows that count; the older ones weigh little by then."""
_FADE = 0.9
"""The weight of a window against that of the one after it."""
_NEAR = 0.5
"""Points this far away in ``ln N`` weigh ``1/e`` of those at hand: the power law holds close by only."""
_KNOWN = 0.7
"""Nothing is predicted farther than this, in ``ln N``, from the points' mean."""
_SPREAD = 5e-4
"""Points whose ``ln N`` varies less tell nothing about a slope."""
_FEWEST = 3


@attrs.frozen
class Point:
    """One window: the mean number of requests in flight, and the work per second that came of them."""

    in_flight: float
    goodput: float


@attrs.frozen
class Slope:
    """The straight line of ``ln G`` on ``ln N``."""

    elasticity: float
    error: float
    """The standard error of the elasticity."""
    mean_x: float
    mean_y: float

    def goodput_at(self, in_flight: float) -> float | None:
        """The goodput to expect; ``None`` too far away from what was seen."""
        away = math.log(in_flight) - self.mean_x
        if abs(away) > _KNOWN:
            return None
        return math.exp(self.mean_y + max(-0.5, min(1.0, self.elasticity)) * away)


@attrs.define
class History:
    """The last windows."""

    points: deque[Point] = attrs.field(factory=lambda: deque(maxlen=REMEMBERED), init=False)

    def add(self, point: Point) -> None:
        """Take in one more."""
        self.points.append(point)

    def forget(self) -> None:
        """The endpoint is not what it was."""
        self.points.clear()

    def slope_at(self, in_flight: float) -> Slope | None:
        """The line close to *in_flight*; ``None`` where the points are too few or too much alike."""
        if len(self.points) < _FEWEST:
            return None
        xs = [math.log(point.in_flight) for point in self.points]
        ys = [math.log(point.goodput) for point in self.points]
        here, newest = math.log(in_flight), len(xs) - 1
        weights = [_FADE ** (newest - i) * math.exp(-(((x - here) / _NEAR) ** 2)) for i, x in enumerate(xs)]
        return _line(xs, ys, weights, _SPREAD)

    def last_step(self) -> float | None:
        """The elasticity between the last two windows; ``None`` unless the second had clearly more in flight."""
        if len(self.points) < 2:
            return None
        return step(self.points[-2], self.points[-1])

    def step_to(self, after: Point) -> float | None:
        return step(self.points[-1], after) if self.points else None

    def half_load(self) -> float | None:
        """``A/B`` from all points; ``None`` where they are too few, too much alike, or show no such server."""
        if len(self.points) < _FEWEST:
            return None
        newest = len(self.points) - 1
        # a relative error of tau is what a window has, so each point weighs 1/tau^2
        weights = [
            _FADE ** (newest - i) * (point.goodput / point.in_flight) ** 2 for i, point in enumerate(self.points)
        ]
        xs = [point.in_flight for point in self.points]
        taus = [point.in_flight / point.goodput for point in self.points]
        line = _line(xs, taus, weights, _SPREAD * max(xs) ** 2)
        if line is None or line.elasticity <= 0.0:
            return None
        at_none = line.mean_y - line.elasticity * line.mean_x
        return at_none / line.elasticity if at_none > 0.0 else None


def step(before: Point, after: Point) -> float | None:
    """The elasticity between two points; ``None`` unless the second has clearly more in flight."""
    if after.in_flight < before.in_flight * 1.1:
        return None
    return math.log(after.goodput / before.goodput) / math.log(after.in_flight / before.in_flight)


def _line(xs: Sequence[float], ys: Sequence[float], weights: Sequence[float], least_spread: float) -> Slope | None:
    """Weighted least squares; ``None`` where the *xs* vary less than *least_spread*."""
    total = sum(weights)
    if total <= 0.0:
        return None
    mean_x = sum(w * x for w, x in zip(weights, xs, strict=True)) / total
    mean_y = sum(w * y for w, y in zip(weights, ys, strict=True)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, x in zip(weights, xs, strict=True)) / total
    if spread < least_spread:
        return None
    both = sum(w * (x - mean_x) * (y - mean_y) for w, x, y in zip(weights, xs, ys, strict=True)) / total
    slope = both / spread
    rest = sum(w * (y - mean_y - slope * (x - mean_x)) ** 2 for w, x, y in zip(weights, xs, ys, strict=True)) / total
    effective = total * total / sum(w * w for w in weights)
    error = math.sqrt(max(1e-8, rest) / spread / max(1.0, effective - 2.0))
    return Slope(slope, error, mean_x, mean_y)
