"""When the engine is asked for its images: what was heard of it, and for how long it has been silent. Pure.

Invariants: one listing is under way at most; while the engine is silent, it is asked by that listing only.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from random import Random

import attrs

from scavenge.core.backoff import full_jitter_s
from scavenge.core.images.plan_settings import ASSUME_AFTER_S, ENGINE_FIRST_S, ENGINE_LONGEST_S, LEAST_TTL_S
from scavenge.core.images.plan_words import one_line


@attrs.define(eq=False)
class EngineWatch:
    """What is known of the engine."""

    random: Random
    _ttl_s: float
    listing: bool = attrs.field(default=False, init=False)
    """Whether a listing is under way."""
    asked: int = attrs.field(default=0, init=False)
    """How many listings were asked for."""
    why: str = attrs.field(default="", init=False)
    """Why it was silent last."""
    _names: Collection[str] = attrs.field(default=frozenset(), init=False)
    _listed_at: float = attrs.field(default=-math.inf, init=False)
    _silent_since: float = attrs.field(default=math.inf, init=False)
    _silences: int = attrs.field(default=0, init=False)
    _try_at: float = attrs.field(default=-math.inf, init=False)

    @property
    def is_silent(self) -> bool:
        """Whether it did not answer last."""
        return self._silent_since < math.inf

    @property
    def list_again_at(self) -> float:
        """When the listing is too old for somebody who waits."""
        return self._listed_at + max(LEAST_TTL_S, self._ttl_s)

    @property
    def try_at(self) -> float:
        """When it is asked again, while it is silent."""
        return self._try_at

    @property
    def assume_at(self) -> float:
        """When images of which nothing is known count as there."""
        return self._silent_since + ASSUME_AFTER_S

    def was_listed(self, name: str, now: float) -> bool | None:
        """What the last listing says of a name; ``None``: it is too old to say that it is not there."""
        if name in self._names:
            return True
        return False if now < self.list_again_at else None

    def list(self) -> None:
        """A listing is asked for."""
        self.listing = True
        self.asked += 1

    def listed(self, names: Collection[str], now: float) -> None:
        """It has answered. Raises :class:`ValueError` when it was not asked."""
        self._end()
        self._names, self._listed_at = names, now
        self._silent_since, self._silences = math.inf, 0

    def unlisted(self, why: str, now: float) -> None:
        """It has not answered. Raises :class:`ValueError` when it was not asked."""
        self._end()
        self._fall_silent(why, now)

    def fell_silent(self, why: str, now: float) -> None:
        """It did not answer somebody who delivers: whether it is silent to all is found out by a listing."""
        if not self.is_silent:
            self._fall_silent(why, now)

    def _end(self) -> None:
        if not self.listing:
            raise ValueError("no listing is under way")
        self.listing = False

    def _fall_silent(self, why: str, now: float) -> None:
        self.why = one_line(why)
        self._silent_since = min(self._silent_since, now)
        self._try_at = now + full_jitter_s(self._silences, ENGINE_FIRST_S, ENGINE_LONGEST_S, self.random)
        self._silences += 1
