"""How long to wait before the next try: exponential, with jitter. Pure.

Both kinds are of the AWS Architecture Blog, "Exponential Backoff And Jitter" (2015): *full* jitter spreads what many
start at one moment, *equal* jitter never asks again at once.
"""

from __future__ import annotations

from random import Random


def equal_jitter_s(steps: int, first_s: float, longest_s: float, random: Random) -> float:
    """From a half to the whole of ``first_s`` doubled ``steps`` times, and no longer than ``longest_s``."""
    return _whole_s(steps, first_s, longest_s) * (0.5 + random.random() / 2)


def full_jitter_s(steps: int, first_s: float, longest_s: float, random: Random) -> float:
    """From nothing to the whole of ``first_s`` doubled ``steps`` times, and no longer than ``longest_s``."""
    return _whole_s(steps, first_s, longest_s) * random.random()


def _whole_s(steps: int, first_s: float, longest_s: float) -> float:
    return min(longest_s, first_s * 2.0 ** min(steps, 64))
