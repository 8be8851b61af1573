"""How a simulated run of multi-turn sessions went: counters at regular moments, and means between two of them. Pure.

Sessions finished per hour is the figure to compare by. Tokens per second lies here: young sessions are cheap, so who
begins many and ends none looks busy.

Invariant: each counter of a :class:`Moment` counts from the start of the run.

versionadded: 0.1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs


@attrs.frozen
class Moment:
    """The state and the counters at one instant."""

    at: float
    started: int
    finished: int
    turns: int
    """Calls that were answered."""
    output_tokens: int
    prompt_tokens: int
    """Of the calls that were answered; those of them that the server had in its cache are ``cached_tokens``."""
    cached_tokens: int
    live: int
    paused: int
    """Live sessions that could go on, and may not."""
    in_flight: int
    running: int
    context_tokens: int
    """Of all live sessions."""
    budget_tokens: float | None = None
    """What the session policy allows them, where it is tokens that it bounds."""


@attrs.frozen
class Stretch:
    """What went on between two moments; states are means over time."""

    span_s: float
    sessions_per_h: float
    tokens_per_s: float
    turns_per_s: float
    hit_ratio: float
    """The part of the prompts that was in the server's cache."""
    live: float
    paused: float
    in_flight: float
    running: float
    context_tokens: float


@attrs.frozen
class AgentReport:
    """A whole run."""

    moments: tuple[Moment, ...] = attrs.field(repr=False)
    """In the order of time, at equal distances, the first at the start."""

    @property
    def started(self) -> int:
        """Sessions that were let in."""
        return self.moments[-1].started

    @property
    def finished(self) -> int:
        """Sessions that came to their end."""
        return self.moments[-1].finished

    @property
    def live(self) -> int:
        """Sessions that were under way when the run was broken off."""
        return self.moments[-1].live

    def stretch(self, start: float = 0.0, end: float | None = None) -> Stretch:
        """What went on from *start* to *end*, in seconds of the run.

        Raises :class:`ValueError` where fewer than two moments lie there.
        """
        chosen = [moment for moment in self.moments if start <= moment.at and (end is None or moment.at <= end)]
        if len(chosen) < 2:
            raise ValueError(f"from {start} s to {end} s: expected at least two moments, got {len(chosen)}")
        return _between(chosen)


def _between(moments: Sequence[Moment]) -> Stretch:
    first, last = moments[0], moments[-1]
    span_s = last.at - first.at

    def mean(state: Callable[[Moment], float]) -> float:
        return sum(map(state, moments[1:])) / (len(moments) - 1)

    return Stretch(
        span_s=span_s,
        sessions_per_h=3600 * (last.finished - first.finished) / span_s,
        tokens_per_s=(last.output_tokens - first.output_tokens) / span_s,
        turns_per_s=(last.turns - first.turns) / span_s,
        hit_ratio=(last.cached_tokens - first.cached_tokens) / max(1, last.prompt_tokens - first.prompt_tokens),
        live=mean(lambda moment: moment.live),
        paused=mean(lambda moment: moment.paused),
        in_flight=mean(lambda moment: moment.in_flight),
        running=mean(lambda moment: moment.running),
        context_tokens=mean(lambda moment: moment.context_tokens),
    )
