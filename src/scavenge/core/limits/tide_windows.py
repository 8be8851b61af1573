"""One window of time at an endpoint: what it settles for, what it measures, when it is over.

A window belongs to one limit. Its first part is left out, so that what the last change of the limit started is over;
then the means are taken. It tells requests in flight, work per second, completions per second, and how many requests
wait or stand still. It knows neither what the limit is to be nor what it was before.

Replies that come in one piece give no tokens while they are made. Where most are such, the work is known from those
that have ended: by Little's law ``N`` times the sum of their tokens over the sum of their durations. Only those that
were admitted after the last change of the limit count.

Invariants: sums cover whole flows after the settling part only; what is not a number, or negative, is in no sum.
"""

from __future__ import annotations

import math

import attrs

from scavenge.signals import Ended, Flow

PROMPT_WEIGHT = 0.15
"""What a prompt's token costs against one of the reply: it is computed along with thousands of others."""
_STREAMED_PART = 0.5
"""With a smaller part of streams, the work is taken from what has ended."""
_WAITING = 0.2
"""While more than this part of the requests waits for its first token, they are settling."""
_TICK_S = 0.01
"""The next look is never closer than this: a window that is over but for rounding is not looked at twice at once."""
_LONGEST_LOOK_S = 5.0
"""How long a window need be may change while it lasts."""
_GAP_S = 5.0
"""A flow that comes so much later than it was asked for has a pause in it."""
_ENORMOUS = 1e12
_ROUNDING_S = 1e-6


@attrs.frozen
class Reading:
    """What a window saw; means over its measured part."""

    in_flight: float
    goodput: float
    """Tokens of work per second: those of replies, and those of prompts by their weight."""
    awaiting: float
    """Requests that had no token yet."""
    stalled: float
    done_per_s: float
    """Completions per second."""


@attrs.frozen
class Span:
    """How long a window settles and measures."""

    settle_s: float
    measure_s: float
    """It measures for at least so long."""
    done_needed: float
    """So many requests are to be done in that time, or it goes on ..."""
    longest_s: float
    """... until it has measured for so long."""
    whole_needed: float
    """So many whole replies are needed where there are no streams, however long that takes."""
    patience_s: float = 0.0
    """It settles for up to so long while many requests wait for their first token."""
    blind_s: float = math.inf
    """From so long on it may be over, if what it saw is clear, without requests that are done."""
    check_s: float = 1.0
    """How often it is looked at while it settles, and while it goes on."""


@attrs.define
class Window:
    """A window that began at ``began_at``, under a limit that stands since ``limit_since``."""

    began_at: float
    span: Span
    """May be another one from flow to flow, as more is learnt about how long requests take."""
    limit_since: float
    wake_at: float = attrs.field(init=False)
    """When it wants to hear of the flow."""
    done: int = attrs.field(default=0, init=False)
    """Requests that were done while it measured."""
    _measuring: bool = attrs.field(default=False, init=False)
    _measured_s: float = attrs.field(default=0.0, init=False)
    _in_flight_s: float = attrs.field(default=0.0, init=False)
    _awaiting_s: float = attrs.field(default=0.0, init=False)
    _stalled_s: float = attrs.field(default=0.0, init=False)
    _streamed_s: float = attrs.field(default=0.0, init=False)
    _work: float = attrs.field(default=0.0, init=False)
    _whole: int = attrs.field(default=0, init=False)
    _whole_s: float = attrs.field(default=0.0, init=False)
    _whole_work: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.wake_at = _later(self.began_at, min(self.span.settle_s, _LONGEST_LOOK_S))

    def on_flow(self, flow: Flow, now: float) -> bool:
        """Take in what went on; false: there was a pause in it, or it makes no sense, and the window is void."""
        if flow.in_flight_now <= 0 or not self.began_at <= now <= self.wake_at + _GAP_S or not _makes_sense(flow):
            return False
        if self._measuring:
            self._add(flow)
        elif self._is_settled(flow, now):
            self._measuring, self.done = True, 0
        self.wake_at = _later(now, self._next_look(now))
        return True

    def on_done(self, ended: Ended) -> None:
        """A request was served."""
        self.done += 1
        duration_s = ended.duration_s
        if ended.streamed or ended.admitted_at < self.limit_since or not 0.0 < duration_s < _ENORMOUS:
            return
        work = (ended.output_tokens or 0.0) + PROMPT_WEIGHT * (ended.prompt_tokens or 0.0)
        if 0.0 <= work < _ENORMOUS:
            self._whole += 1
            self._whole_s += duration_s
            self._whole_work += work

    @property
    def is_over(self) -> bool:
        """Whether it has seen enough."""
        if not self._has_measured:
            return False
        if not self._has_streams:
            return self._whole >= self.span.whole_needed
        return self.done >= self.span.done_needed or self._measured_s >= self.span.longest_s

    @property
    def may_be_over(self) -> bool:
        """Whether it has seen enough if what it saw is clear."""
        return self._has_measured and self._has_streams and self._measured_s >= self.span.blind_s - _ROUNDING_S

    def reading(self) -> Reading | None:
        """What it saw, once it is or may be over; ``None``: no work at all."""
        span_s = self._measured_s
        in_flight = self._in_flight_s / span_s
        work = self._work / span_s if self._has_streams else in_flight * self._whole_work / self._whole_s
        if not 0.0 < work < _ENORMOUS or in_flight <= 0.0:
            return None
        return Reading(in_flight, work, self._awaiting_s / span_s, self._stalled_s / span_s, self.done / span_s)

    @property
    def _has_measured(self) -> bool:
        return self._measuring and self._measured_s >= self.span.measure_s - _ROUNDING_S

    @property
    def _has_streams(self) -> bool:
        return self._streamed_s >= _STREAMED_PART * self._in_flight_s

    def _is_settled(self, flow: Flow, now: float) -> bool:
        if now < self.began_at + self.span.settle_s:
            return False
        return flow.awaiting <= _WAITING * flow.in_flight or now >= self.began_at + self.span.patience_s

    def _add(self, flow: Flow) -> None:
        span_s = flow.span_s
        self._measured_s += span_s
        self._in_flight_s += flow.in_flight * span_s
        self._awaiting_s += flow.awaiting * span_s
        self._stalled_s += flow.stalled * span_s
        self._streamed_s += flow.streamed * flow.in_flight * span_s
        self._work += flow.output_tokens + PROMPT_WEIGHT * flow.prompt_tokens

    def _next_look(self, now: float) -> float:
        span, gone_s = self.span, now - self.began_at
        left_s = span.measure_s - self._measured_s if self._measuring else span.settle_s - gone_s
        return min(left_s, _LONGEST_LOOK_S) if left_s > 0.0 else span.check_s


def _later(now: float, after_s: float) -> float:
    """An instant that lies in the future, even where a float cannot tell them apart."""
    return max(now + max(_TICK_S, after_s), math.nextafter(now, math.inf))


def _makes_sense(flow: Flow) -> bool:
    """Whether all its figures are numbers that can be."""
    figures = (flow.span_s, flow.in_flight, flow.awaiting, flow.stalled, flow.output_tokens, flow.prompt_tokens)
    return all(0.0 <= figure < _ENORMOUS for figure in figures) and 0.0 <= flow.streamed <= 1.0
