"""How fast one endpoint is at which load, learnt from the replies that it finished. Pure: *now* is an argument.

The law of continuous batching is a line: with n streams, a token of each takes ``base + per_stream * n`` seconds (see
:mod:`scavenge.testing.engine`). A reply tells one point of it: how many streams there were, and its seconds per token,
all of the attempt counted. Knows no slots, no limits and no request.

The line is a regularised least-squares fit. Until the load has varied, the slope is that of a server whose throughput
is fixed and shared, so that what has not been seen is never promised: more streams are taken to cost what they could
cost at worst.
"""

from __future__ import annotations

import math

import attrs

from scavenge.errors import UsageError

FORGET_AFTER_S = 120.0
"""A speed that no reply has confirmed for so long counts for nothing once nothing is in flight there."""

_KEEP = 0.95
"""What is left of the weight of everything seen before when one more reply comes: some twenty replies count."""
_SURE_AT = 0.25
"""The variance of the number of streams at which what was seen weighs as much as what is assumed of the slope."""
_FLATTEST = 0.02
"""No slope is taken to be a smaller part of the assumed one: nothing is free."""
_MOST_TOKENS = 500.0
"""A longer reply weighs no more than one with so many tokens."""
_OUTLIER = 4.0
"""A reply that was slower than so many times the mean counts as if it had been so slow."""
_FASTEST_S, _SLOWEST_S = 1e-7, 1e5
"""Seconds per token; what lies beyond is no speed but a broken count or a broken clock."""
_MOST_STREAMS = 1e6


@attrs.frozen
class Line:
    """Seconds that one token takes, as a line over the number of streams."""

    base_s: float
    per_stream_s: float

    def __attrs_post_init__(self) -> None:
        if not (0 <= self.base_s < math.inf and 0 < self.per_stream_s < math.inf):
            raise UsageError(f"expected a finite base_s ≥ 0 and a finite per_stream_s > 0, got {self}")

    def at(self, streams: float) -> float:
        """The seconds per token of each of so many streams."""
        return self.base_s + self.per_stream_s * streams

    def roughly_at(self, streams: float) -> float:
        """The same in steps of about a tenth, so that noise does not choose between servers that are as good as equal.

        A step is a sixteenth of the next higher power of two.
        """
        mantissa, exponent = math.frexp(self.at(streams))
        return math.ldexp(round(16 * mantissa), exponent - 4)


@attrs.define(eq=False)
class Pace:
    """The speed of one endpoint.

    Invariant: the moments are means over the replies seen, weighted by their tokens and by :data:`_KEEP` to the power
    of the replies since; they are all zero while nothing is known.
    """

    _weight: float = attrs.field(default=0.0, init=False)
    _mean_streams: float = attrs.field(default=0.0, init=False)
    _mean_s: float = attrs.field(default=0.0, init=False)
    """Of the seconds per token."""
    _variance: float = attrs.field(default=0.0, init=False)
    """Of the number of streams."""
    _covariance: float = attrs.field(default=0.0, init=False)
    """Of the number of streams and the seconds per token."""
    _confirmed_at: float = attrs.field(default=-math.inf, init=False)

    def observe(self, tokens: float, duration_s: float, in_flight: float, now: float) -> None:
        """Learn from a reply of so many tokens that took ``duration_s`` while ``in_flight`` streams ran, it included.

        Numbers that cannot be a speed are passed over: no tokens, no time, nothing in flight, not a number.
        """
        if not (tokens > 0 and 1 <= in_flight <= _MOST_STREAMS):
            return
        token_s = duration_s / tokens
        if not _FASTEST_S <= token_s <= _SLOWEST_S:
            return
        if self._weight:
            token_s = min(token_s, _OUTLIER * self._mean_s)
        self._take_in(min(tokens, _MOST_TOKENS), in_flight, token_s)
        self._confirmed_at = max(self._confirmed_at, now)

    def _take_in(self, tokens: float, streams: float, token_s: float) -> None:
        """Move the moments: West's update for weighted ones, Communications of the ACM 22(9), 1979."""
        self._weight = _KEEP * self._weight + tokens
        share = tokens / self._weight
        more_streams, more_s = streams - self._mean_streams, token_s - self._mean_s
        self._mean_streams += share * more_streams
        self._mean_s += share * more_s
        self._variance = (1 - share) * (self._variance + share * more_streams * more_streams)
        self._covariance = (1 - share) * (self._covariance + share * more_streams * more_s)

    def line(self) -> Line | None:
        """The line that fits best; ``None`` while nothing is known."""
        if not self._weight:
            return None
        assumed_s = self._mean_s / self._mean_streams
        slope_s = (self._covariance + _SURE_AT * assumed_s) / (self._variance + _SURE_AT)
        slope_s = min(max(slope_s, _FLATTEST * assumed_s), assumed_s)
        return Line(max(0.0, self._mean_s - slope_s * self._mean_streams), slope_s)

    @property
    def forgotten_at(self) -> float | None:
        """From when on the speed counts for nothing once nothing is in flight; ``None`` while nothing is known."""
        return self._confirmed_at + FORGET_AFTER_S if self._weight else None

    def forget_if_stale(self, now: float, in_flight: int) -> bool:
        """Forget the speed if it is too old and nothing is under way that could confirm it; tell whether it was."""
        if in_flight or (forgotten_at := self.forgotten_at) is None or now < forgotten_at:
            return False
        self._weight = self._mean_streams = self._mean_s = self._variance = self._covariance = 0.0
        self._confirmed_at = -math.inf
        return True
