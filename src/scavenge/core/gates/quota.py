"""What one account allows in flight together, on all of its endpoints and models. Pure; lends nothing.

Endpoints of one origin that are used with one key share what the account is allowed. Nothing bounds them until the
first 429; from then on there is a bound, cut and raised like a limit of :mod:`scavenge.core.limits.aimd`, and split
among the endpoints by who has work (max-min fairness, Bertsekas and Gallager, "Data Networks", 6.5.2).

Invariants: once there is a bound it stays, and it is at least 1; a cut is only made by a request that was let in after
the last one. Shares never let more in than the bound allows, but for the one request that everybody with work may
have: the bound is an estimate, and a share of none would wait for ever.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

import attrs

from scavenge.core.limits.aimd import CUT, Round, next_step
from scavenge.core.limits.congestion import Ceiling, Strain
from scavenge.signals import Ended

K = TypeVar("K", bound=Hashable)

COOLDOWN_S = 15.0
"""How long after a cut there is no other."""


@attrs.define
class Quota:
    """The quota of one account, as far as its refusals tell."""

    _level: float = attrs.field(default=math.inf, init=False)
    _strain: Strain = attrs.field(factory=lambda: Strain(COOLDOWN_S), init=False)
    _ceiling: Ceiling = attrs.field(factory=Ceiling, init=False)
    _round: Round = attrs.field(factory=Round, init=False)

    @property
    def bound(self) -> int | None:
        """How many requests may be in flight on all endpoints together; ``None``: nothing bounds them yet."""
        return None if math.isinf(self._level) else int(self._level)

    def observe(self, ended: Ended, in_flight: int, now: float) -> bool:
        """Hear how a request ended, with *in_flight* on the whole account before it did; whether the bound moved."""
        before, ended = self.bound, attrs.evolve(ended, in_flight=max(1, in_flight))
        if self._strain.hear(ended, now) == "429":
            self._cut(ended.in_flight, now)
        elif before is not None and ended.admitted_at >= self._strain.cut_at:
            self._round.hear(ended)
            if self._round.is_over(before):
                self._end_round(before, now)
        return self.bound != before

    def share(self, lent: Mapping[K, int], waiting: Mapping[K, int]) -> dict[K, int] | None:
        """How many each endpoint may have in flight, of those that have some or for which requests are waiting.

        Who holds more than its fair part takes nothing until enough of that came back, and nobody takes it before
        either. ``None``: nothing bounds them.
        """
        if (bound := self.bound) is None:
            return None
        wanted = {one: lent.get(one, 0) + waiting.get(one, 0) for one in {**lent, **waiting}}
        fair = _fair_parts(wanted, bound)
        free = max(0, bound - sum(lent.values()))
        shares = {}
        for one in sorted(wanted, key=lambda one: lent.get(one, 0)):
            held = lent.get(one, 0)
            taken = min(free, max(0, fair[one] - held))
            free -= taken
            least = 1 if waiting.get(one, 0) else 0
            shares[one] = max(least, held + taken if fair[one] >= held else fair[one])
        return shares

    def _cut(self, in_flight: int, now: float) -> None:
        refused = min(self._level, float(in_flight))
        self._ceiling.refuse(refused, now)
        self._level = max(1.0, CUT * refused)
        self._strain.cut(now)
        self._round = Round()

    def _end_round(self, bound: int, now: float) -> None:
        ended, self._round = self._round, Round()
        if ended.is_clean(bound):
            self._level = max(self._level, min(next_step(self._level), self._ceiling.highest(now)))


def _fair_parts(wanted: Mapping[K, int], bound: int) -> dict[K, int]:
    """Split *bound* so that nobody has more than is wanted, and nobody less than another who wanted more."""
    parts, left, asking = {}, bound, len(wanted)
    for one in sorted(wanted, key=wanted.__getitem__):
        parts[one] = min(wanted[one], left // asking)
        left, asking = left - parts[one], asking - 1
    return parts
