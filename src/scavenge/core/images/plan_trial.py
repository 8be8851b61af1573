"""How an image fares with its sources: which are left, which are through, and when it is tried again. Pure.

A *round*: each source that is left is tried up to so many times where it breaks; then it is *through* until the next
round. One that broke *rests* for a while, and the next one is tried at once: those that broke least come first, then
those that stand first in order. A source whose lane is shut is passed over.

Invariants: a source that is gone never comes back; when all are gone, nothing but a text is left of the trial. What may
be tried changes only where a delivery ends, where the image comes by other means, and in :meth:`Trial.wake`.
"""

from __future__ import annotations

import math
from random import Random
from typing import TypeAlias, assert_never

import attrs

from scavenge.core.backoff import equal_jitter_s, full_jitter_s
from scavenge.core.images.plan_lanes import Lanes
from scavenge.core.images.plan_settings import (
    BROKEN_FIRST_S,
    BROKEN_LONGEST_S,
    ENGINE_FIRST_S,
    ENGINE_LONGEST_S,
    FULL_FOR_S,
)
from scavenge.core.images.plan_words import one_line, outcome_of
from scavenge.images import Broken, Denied, DiskFull, EngineSilent, Missing, Throttled, Unfit

Failure: TypeAlias = "Missing | Denied | Throttled | Unfit | Broken | DiskFull | EngineSilent"


@attrs.define(eq=False)
class Trial:
    """The sources of one image, by number, each with its lane."""

    lanes: tuple[str, ...] = ()
    gone: dict[int, str] = attrs.field(factory=dict)
    """What the sources said that do not give the image."""
    doubted: set[int] = attrs.field(factory=set)
    """The sources that were the last, and of which it is heard once more whether their image is unfit."""
    tries: dict[int, int] = attrs.field(factory=dict)
    """How often each broke in this round."""
    resting: dict[int, float] = attrs.field(factory=dict)
    """The sources that broke, and until when each is left alone."""
    paused_until: float | None = None
    """Until when the image is left alone altogether."""
    attempts: int = 3
    setbacks: int = 0
    """How often in a row the engine did not answer."""
    trouble: str = ""
    """What went wrong last, in one line with the lane."""

    def left(self) -> list[int]:
        """The sources that are not through in this round, the first first."""
        sources = range(len(self.lanes))
        return [one for one in sources if one not in self.gone and self.tries.get(one, 0) < self.attempts]

    def next(self) -> list[int]:
        """The sources that do not rest either, in the order in which they are tried."""
        awake = (source for source in self.left() if source not in self.resting)
        return sorted(awake, key=lambda source: self.tries.get(source, 0))

    def route(self) -> tuple[str, ...]:
        """The lanes of those."""
        return tuple(self.lanes[source] for source in self.next())

    @property
    def is_cooling(self) -> bool:
        """Whether no source may be tried now, were its lane open."""
        return self.paused_until is not None or not self.next()

    @property
    def is_hopeless(self) -> bool:
        """Whether no source gives the image."""
        return len(self.gone) == len(self.lanes)

    @property
    def why_hopeless(self) -> str:
        """What each source said, in one line."""
        said = [f"{self.lanes[source]}: {self.gone[source]}" for source in sorted(self.gone)]
        return "; ".join(said) or "there is no source to fetch it from"

    @property
    def wakes_at(self) -> float:
        """When something that was left alone may be tried again."""
        return min([math.inf if self.paused_until is None else self.paused_until, *self.resting.values()])

    def wake(self, now: float) -> None:
        """Try again what has been left alone for long enough."""
        if self.paused_until is not None and self.paused_until <= now:
            self.paused_until = None
        self.resting = {source: until for source, until in self.resting.items() if until > now}

    def doubt(self, source: int) -> bool:
        """Whether to hear once more that a source's image is unfit: it is the last one, and was not doubted before."""
        if source in self.doubted or len(self.gone) + 1 < len(self.lanes):
            return False
        self.doubted.add(source)
        return True

    def wake_all(self) -> None:
        """Leave nothing alone: the image has come."""
        self.wake(math.inf)

    def renew(self, lanes: Lanes, random: Random, now: float) -> bool:
        """Begin a new round, after a pause, if all that is left are shut lanes and others are through."""
        shut = [lanes[self.lanes[source]].shut_until for source in self.left()]
        if max(self.tries.values(), default=0) < self.attempts or any(until <= now for until in shut):
            return False
        pause_s = equal_jitter_s(0, BROKEN_LONGEST_S, BROKEN_LONGEST_S, random)
        self.tries.clear()
        self.paused_until = min([now + pause_s, *shut])
        return True


@attrs.define(eq=False)
class Trials:
    """Takes in how deliveries failed."""

    lanes: Lanes
    random: Random

    def delivered(self, trial: Trial, source: int, now: float) -> None:
        """A source has delivered: whatever went wrong before is over."""
        self.lanes[trial.lanes[source]].delivered(now)
        trial.tries.clear()
        trial.doubted.clear()
        trial.setbacks = 0
        trial.trouble = ""

    def failed(self, image: str, trial: Trial, source: int, end: Failure, now: float) -> float | None:
        """A delivery failed: see what is left. In how many seconds that source is asked again; ``None``: never."""
        lane = self.lanes[trial.lanes[source]]
        trial.trouble = f"{lane.name}: {outcome_of(end)}: {one_line(end.why)}"
        trial.setbacks = trial.setbacks + 1 if isinstance(end, EngineSilent) else 0
        retry_s = self._heard(image, trial, source, end, now)
        if self.renew(trial, now) and isinstance(end, Broken | Unfit) and source not in trial.gone:
            retry_s = trial.wakes_at - now
        return retry_s

    def _heard(self, image: str, trial: Trial, source: int, end: Failure, now: float) -> float | None:
        lane = self.lanes[trial.lanes[source]]
        match end:
            case Throttled():
                return lane.throttled(end.retry_after_s, now)
            case Broken():
                lane.broke(image)
                return self._rest(trial, source, now)
            case DiskFull():
                return FULL_FOR_S
            case EngineSilent():
                pause_s = full_jitter_s(trial.setbacks - 1, ENGINE_FIRST_S, ENGINE_LONGEST_S, self.random)
                trial.paused_until = now + pause_s
                return pause_s
            case Missing() | Denied() | Unfit():
                lane.answered(now)
                if isinstance(end, Unfit) and trial.doubt(source):
                    return self._rest(trial, source, now)
                words = one_line(end.why)
                trial.gone[source] = words if isinstance(end, Missing) else f"{outcome_of(end)}: {words}"
                return None
            case _:
                assert_never(end)

    def renew(self, trial: Trial, now: float) -> bool:
        """See whether an image has to begin a new round."""
        return trial.renew(self.lanes, self.random, now)

    def _rest(self, trial: Trial, source: int, now: float) -> float:
        """A source broke: it rests, or is through. In how many seconds it is asked again."""
        tries = trial.tries[source] = trial.tries.get(source, 0) + 1
        if tries >= trial.attempts:
            return BROKEN_LONGEST_S
        pause_s = full_jitter_s(tries - 1, BROKEN_FIRST_S, BROKEN_LONGEST_S, self.random)
        trial.resting[source] = now + pause_s
        return pause_s
