"""The lanes of sources: which are left alone, and which are tried with care. Pure.

A lane that throttles us is shut until an instant. One on which images break in a row is tried by one image at a time,
until it delivers.
"""

from __future__ import annotations

import math

import attrs

from scavenge.core.images.plan_settings import (
    BROKEN_IN_A_ROW,
    SHUT_FIRST_S,
    SHUT_LEAST_S,
    SHUT_LONGEST_S,
    SHUT_MOST_S,
)


@attrs.define(eq=False)
class Lane:
    """A registry's host, a store, the shipments."""

    name: str
    under_way: int = 0
    """Deliveries."""
    shut_until: float = -math.inf
    _throttled: int = 0
    """How often in a row it was shut without a word for how long."""
    _broken: set[str] = attrs.field(factory=set)
    """The images that broke since anything else was heard."""
    _careful: bool = False

    def is_shut(self, now: float) -> bool:
        """Whether it wants to be left alone."""
        return now < self.shut_until

    def is_open(self, now: float) -> bool:
        """Whether a delivery may begin."""
        return not self.is_shut(now) and not (self._careful and self.under_way)

    def answered(self, now: float) -> None:
        """It gave an answer, if only that it does not have an image; while it is shut, to an earlier question."""
        self._broken.clear()
        if not self.is_shut(now):
            self._throttled = 0

    def delivered(self, now: float) -> None:
        """It has delivered."""
        self.answered(now)
        self._careful = False

    def broke(self, image: str) -> None:
        """A delivery broke."""
        self._broken.add(image)
        self._careful = self._careful or len(self._broken) >= BROKEN_IN_A_ROW

    def throttled(self, retry_after_s: float | None, now: float) -> float:
        """It wants to be left alone; for how long from now on."""
        self._broken.clear()
        if retry_after_s is not None and math.isfinite(retry_after_s):
            until = now + min(SHUT_MOST_S, max(SHUT_LEAST_S, retry_after_s))
        elif self.is_shut(now):
            until = now  # of several under way each says it: that is once
        else:
            until = now + min(SHUT_LONGEST_S, SHUT_FIRST_S * 2.0 ** min(self._throttled, 16))
            self._throttled += 1
        self.shut_until = max(self.shut_until, until)
        return self.shut_until - now


class Lanes(dict[str, Lane]):
    """All lanes, by name; one that is asked for is there."""

    def __missing__(self, name: str) -> Lane:
        lane = self[name] = Lane(name)
        return lane
