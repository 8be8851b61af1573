"""How long to wait before the next try."""

from __future__ import annotations

from random import Random

import pytest

from scavenge.core.backoff import equal_jitter_s, full_jitter_s


@pytest.mark.parametrize(("steps", "whole_s"), [(0, 2.0), (1, 4.0), (4, 32.0), (5, 60.0), (10**6, 60.0)])
def test_a_wait_doubles_each_time_up_to_the_longest_and_is_jittered(steps, whole_s):
    random = Random(1)
    equal = [equal_jitter_s(steps, 2.0, 60.0, random) for _ in range(500)]
    full = [full_jitter_s(steps, 2.0, 60.0, random) for _ in range(500)]
    assert whole_s / 2 <= min(equal) < 0.52 * whole_s
    assert 0.98 * whole_s < max(equal) <= whole_s
    assert 0 <= min(full) < 0.02 * whole_s
    assert 0.98 * whole_s < max(full) <= whole_s
