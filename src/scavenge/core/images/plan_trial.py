"""How an image fares with its sources: which are left, which are through, and when it is tried again. Pure.

A *round*: each source that is left is tried in order, up to so many times where it breaks; then it is *through* until
the next round. A source whose lane is shut is passed over, and comes first again once the lane is open.

Invariant: a source that is gone never comes back; when all are gone, nothing but a text is left of the trial.
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
    tries: dict[int, int] = attrs.field(factory=dict)
    """How often each broke in this round."""
    attempts: int = 3
    setbacks: int = 0
    """How often in a row the engine did not answer."""
    cooling: bool = False
    again_at: float = -math.inf
    """When it stops to cool."""
    trouble: str = ""
    """What went wrong last, in one line with the lane."""

    def left(self) -> list[int]:
        """The sources that are not through in this round, the first first."""
        sources = range(len(self.lanes))
        return [one for one in sources if one not in self.gone and self.tries.get(one, 0) < self.attempts]

    def route(self) -> tuple[str, ...]:
        """The lanes of the sources that are left."""
        return tuple(self.lanes[source] for source in self.left())

    @property
    def is_hopeless(self) -> bool:
        """Whether no source gives the image."""
        return len(self.gone) == len(self.lanes)

    @property
    def why_hopeless(self) -> str:
        """What each source said, in one line."""
        said = [f"{self.lanes[source]}: {self.gone[source]}" for source in sorted(self.gone)]
        return "; ".join(said) or "there is no source to fetch it from"

    def cool_until(self, at: float) -> None:
        """Leave the image alone until an instant."""
        self.cooling = True
        self.again_at = at

    def renew(self, lanes: Lanes, random: Random, now: float) -> bool:
        """Begin a new round, after a pause, if all that is left are shut lanes and others are through."""
        shut = [lanes[lane].shut_until for lane in self.route()]
        if max(self.tries.values(), default=0) < self.attempts or any(until <= now for until in shut):
            return False
        pause_s = equal_jitter_s(0, BROKEN_LONGEST_S, BROKEN_LONGEST_S, random)
        self.tries.clear()
        self.cool_until(min([now + pause_s, *shut]))
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
        trial.setbacks = 0
        trial.trouble = ""

    def failed(self, image: str, trial: Trial, source: int, end: Failure, now: float) -> float | None:
        """A delivery failed: see what is left. In how many seconds that source is asked again; ``None``: never."""
        lane = self.lanes[trial.lanes[source]]
        trial.trouble = f"{lane.name}: {outcome_of(end)}: {one_line(end.why)}"
        trial.setbacks = trial.setbacks + 1 if isinstance(end, EngineSilent) else 0
        retry_s: float | None = None
        match end:
            case Missing() | Denied() | Unfit():
                lane.answered(now)
                words = one_line(end.why)
                trial.gone[source] = words if isinstance(end, Missing) else f"{outcome_of(end)}: {words}"
            case Throttled():
                retry_s = lane.throttled(end.retry_after_s, now)
            case Broken():
                lane.broke(image)
                retry_s = self._broke(trial, source, now)
            case DiskFull():
                retry_s = FULL_FOR_S
            case EngineSilent():
                retry_s = full_jitter_s(trial.setbacks - 1, ENGINE_FIRST_S, ENGINE_LONGEST_S, self.random)
                trial.cool_until(now + retry_s)
            case _:
                assert_never(end)
        if self.renew(trial, now) and isinstance(end, Broken):
            retry_s = trial.again_at - now
        return retry_s

    def renew(self, trial: Trial, now: float) -> bool:
        """See whether an image has to begin a new round."""
        return trial.renew(self.lanes, self.random, now)

    def _broke(self, trial: Trial, source: int, now: float) -> float:
        """A source broke: the same again after a pause, or the next one at once."""
        tries = trial.tries[source] = trial.tries.get(source, 0) + 1
        if tries >= trial.attempts:
            return BROKEN_LONGEST_S
        pause_s = full_jitter_s(tries - 1, BROKEN_FIRST_S, BROKEN_LONGEST_S, self.random)
        trial.cool_until(now + pause_s)
        return pause_s
