"""How durations are spread, in buckets of equal ratio: any number of them in little memory. Pure."""

from __future__ import annotations

import math
from collections import Counter

import attrs

A_DECADE = 40
"""Buckets between a value and its tenfold: a quantile is right to 3 %."""
SMALLEST_S = 0.001


@attrs.define(eq=False)
class Spread:
    """Counts of durations."""

    buckets: Counter[int] = attrs.field(factory=Counter, init=False)
    count: int = attrs.field(default=0, init=False)
    total_s: float = attrs.field(default=0.0, init=False)
    longest_s: float = attrs.field(default=0.0, init=False)

    def add(self, seconds: float) -> None:
        """Count one; less than a millisecond counts as one."""
        self.buckets[round(A_DECADE * math.log10(max(seconds, SMALLEST_S)))] += 1
        self.count += 1
        self.total_s += seconds
        self.longest_s = max(self.longest_s, seconds)

    def quantile(self, share: float) -> float:
        """The duration that this share of them do not exceed; 0 where there are none."""
        seen, wanted = 0, share * self.count
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return float(min(self.longest_s, 10 ** (bucket / A_DECADE)))
        return 0.0
