"""Statistics of rewards that need no list of them: mean, standard error, pass@k. Pure."""

from __future__ import annotations

import math
from collections import Counter

import attrs

from scavenge.core.digests import DigestPairs

PASS_REWARD = 1.0
"""The reward from which on a rollout counts as passed."""


@attrs.define
class Moments:
    """Count, mean and spread of a stream of numbers, after B. P. Welford, Technometrics 4(3), 1962."""

    count: int = 0
    mean: float = 0.0
    _squares: float = 0.0
    """The sum of squared distances from the mean."""

    def add(self, number: float) -> None:
        """Take in a number."""
        self.count += 1
        distance = number - self.mean
        self.mean += distance / self.count
        self._squares += distance * (number - self.mean)

    @property
    def stderr(self) -> float | None:
        """The standard error of the mean, s/√n, rollouts taken as independent; ``None`` for fewer than two."""
        if self.count < 2:
            return None
        return math.sqrt(max(self._squares, 0.0) / (self.count - 1) / self.count)


def pass_at_k(rollouts: int, passed: int, k: int) -> float:
    """The unbiased estimate of the chance that one of *k* rollouts passes: 1 − C(n−c, k) / C(n, k), for k ≤ n.

    Source: M. Chen et al., "Evaluating Large Language Models Trained on Code", arXiv:2107.03374, equation 1.
    """
    return 1.0 - math.comb(rollouts - passed, k) / math.comb(rollouts, k)


@attrs.define(eq=False)
class Passes:
    """How many of each example's rollouts passed. 26 bytes an example."""

    _examples: DigestPairs = attrs.field(factory=DigestPairs, init=False)
    _shapes: Counter[tuple[int, int]] = attrs.field(factory=Counter, init=False)
    """How many examples have n rollouts of which c passed, by (n, c)."""

    def add(self, example: bytes, passed: bool) -> None:
        """Take in a rollout of the example that a digest stands for."""
        rollouts, passes = old = self._examples.get(example)
        new = (rollouts + 1, passes + passed)
        self._examples.put(example, *new)
        self._shapes[new] += 1
        if old[0]:
            self._shapes[old] -= 1
            if not self._shapes[old]:
                del self._shapes[old]

    def estimates(self, rollouts_per_example: int) -> dict[int, float]:
        """pass@k for k = 1, 2, 4 … and ``rollouts_per_example``: the mean over examples with k rollouts or more."""
        ks = sorted({2**power for power in range(rollouts_per_example.bit_length())} | {rollouts_per_example})
        found = {}
        for k in ks:
            counted = {shape: count for shape, count in self._shapes.items() if shape[0] >= k}
            if examples := sum(counted.values()):
                found[k] = sum(pass_at_k(*shape, k) * count for shape, count in counted.items()) / examples
        return found
