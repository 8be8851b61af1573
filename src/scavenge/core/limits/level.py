"""The number that a policy moves: a level between 1 and what the settings and the endpoint's cap allow. Pure.

It knows why it moved last, and nothing of why it should move.

Invariant: 1 ≤ ``limit`` ≤ ``top``. A cap does not wipe out the level above it: where the cap is lifted again, the level
that was found before it stands. Only a move made under the cap does, so nothing grows unseen above a cap that binds.
"""

from __future__ import annotations

from typing import Any

import attrs
from attrs import validators

from scavenge.signals import WarmStart
from scavenge.types import CapChanged

DEFAULT_MOST = 1024
"""More requests in flight than any one server that is known turns into more tokens per second."""
BINDING = 0.8
"""With less than this part of the limit in flight, it is not the limit that keeps them down (Inspect AI's figure)."""

above_0: Any = validators.and_(validators.gt(0.0), validators.lt(float("inf")))
"""A validator: a number above 0 that has an end."""


@attrs.frozen
class LevelSettings:
    """What each of these policies may be told: where to begin, and the most it may allow, in requests in flight."""

    start: int = attrs.field(default=8, validator=validators.ge(1))
    max: int = attrs.field(default=DEFAULT_MOST, validator=validators.ge(1))

    def __attrs_post_init__(self) -> None:
        if self.start > self.max:
            raise ValueError(f"start: {self.start} is above max, which is {self.max}")


@attrs.define
class Level:
    """One endpoint's level, in requests in flight."""

    value: float
    most: int = DEFAULT_MOST
    """What the settings allow."""
    cap: int | None = attrs.field(default=None, init=False)
    """What the endpoint's ``max_concurrent`` allows; ``None``: anything."""
    reason: str = attrs.field(default="start", init=False)
    """Why it moved last."""

    @property
    def top(self) -> int:
        """The largest limit that is allowed."""
        return self.most if self.cap is None else max(1, min(self.most, self.cap))

    @property
    def at(self) -> float:
        """The level to move from: the present one, no higher than allowed."""
        return max(1.0, min(self.value, float(self.top)))

    @property
    def limit(self) -> int:
        """The number of requests that may be in flight."""
        return int(self.at)

    def hear(self, event: CapChanged | WarmStart) -> None:
        """Take a new cap, or a level to begin with."""
        if isinstance(event, CapChanged):
            self.cap = event.max_concurrent
            return
        self.value, self.reason = float(event.limit), "warm"

    def move(self, value: float, reason: str) -> None:
        """Go to *value*, or as near to it as is allowed; a move to where it is already changes nothing."""
        value = max(1.0, min(value, float(self.top)))
        if value != self.at:
            self.value, self.reason = value, reason

    def is_bound_by(self, in_flight: float) -> bool:
        """Whether so many in flight are as good as the whole limit."""
        return in_flight >= BINDING * self.limit
