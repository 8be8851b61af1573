"""Sums over an ordered set: how many members come before a key, and how much they weigh together. Pure.

Invariants: the keys of all buckets, one bucket after the other, are in ascending order; no bucket is empty; a bucket's
totals are those of its keys. Weights are whole numbers, so that sums never drift.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TypeAlias

import attrs

BUCKET = 128
"""A bucket that has twice as many keys is split: near the square root of the 10 000 members that this is built for."""

Key: TypeAlias = "tuple[int, int]"


@attrs.define
class _Bucket:
    keys: list[Key]
    count: int = 0
    weight: int = 0


@attrs.define(eq=False)
class PrefixSums:
    """Keys with weights. A key that weighs nothing has its rank but is not counted. Every operation is O(√n)."""

    weight: int = 0
    """Of all keys together."""
    count: int = 0
    """How many keys weigh something."""
    _weights: dict[Key, int] = attrs.field(factory=dict, init=False)
    _buckets: list[_Bucket] = attrs.field(factory=list, init=False)

    def __len__(self) -> int:
        return len(self._weights)

    def add(self, key: Key) -> None:
        """Take in a key that is not there; it weighs nothing yet."""
        self._weights[key] = 0
        if not self._buckets:
            self._buckets.append(_Bucket([key]))
            return
        at = self._find(key)
        insort(self._buckets[at].keys, key)
        if len(self._buckets[at].keys) == 2 * BUCKET:
            keys = self._buckets[at].keys
            self._buckets[at : at + 1] = [self._bucket_of(keys[:BUCKET]), self._bucket_of(keys[BUCKET:])]

    def remove(self, key: Key) -> None:
        """Take out a key."""
        self.set_weight(key, 0)
        del self._weights[key]
        at = self._find(key)
        keys = self._buckets[at].keys
        del keys[bisect_left(keys, key)]
        if not keys:
            del self._buckets[at]

    def set_weight(self, key: Key, weight: int) -> None:
        """Let a key that is there weigh so much."""
        old, self._weights[key] = self._weights[key], weight
        change, counts = weight - old, (weight > 0) - (old > 0)
        bucket = self._buckets[self._find(key)]
        bucket.weight += change
        bucket.count += counts
        self.weight += change
        self.count += counts

    def before(self, key: Key) -> tuple[int, int]:
        """How many of the keys below *key* weigh something, and how much all of them weigh."""
        at = self._find(key)
        count = sum(bucket.count for bucket in self._buckets[:at])
        weight = sum(bucket.weight for bucket in self._buckets[:at])
        keys = self._buckets[at].keys
        weights = [self._weights[one] for one in keys[: bisect_left(keys, key)]]
        return count + sum(one > 0 for one in weights), weight + sum(weights)

    def _find(self, key: Key) -> int:
        """The bucket that has the key, or should have it."""
        at = bisect_left(self._buckets, key, key=lambda bucket: bucket.keys[-1])
        return min(at, len(self._buckets) - 1)

    def _bucket_of(self, keys: list[Key]) -> _Bucket:
        weights = [self._weights[key] for key in keys]
        return _Bucket(keys, sum(weight > 0 for weight in weights), sum(weights))
