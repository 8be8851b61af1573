"""The policy that compares the speed of a window of replies with that of the last one."""

from __future__ import annotations

import attrs
import pytest

from scavenge.core.limits.gradient2 import Gradient2, Gradient2Settings
from scavenge.signals import Ended, Ending, Flow
from scavenge.types import CapChanged


@attrs.define
class Fed:
    """A policy that begins at 100 and is fed with windows."""

    policy: Gradient2 = attrs.field(factory=lambda: Gradient2(Gradient2Settings(start=100)))
    now: float = 1000.0

    def end(self, ending: Ending = Ending.OK, *, speed: float = 30.0, age_s: float = 0.0, in_flight: int = 100) -> int:
        tokens = speed * 10.0 if ending is Ending.OK else None
        ended = Ended(ending, self.now - age_s, in_flight, 10.0, output_tokens=tokens)
        self.policy.observe(ended, self.now)
        return self.policy.limit(self.now)

    def window(self, speed: float, in_flight: int = 100) -> int:
        """Feed one whole window of requests that were let in after the last one; the limit then."""
        self.now += 60.0
        for _ in range(max(8, self.policy.limit(self.now))):
            limit = self.end(speed=speed, in_flight=in_flight)
        return limit


def test_it_grows_by_the_root_while_the_speed_holds():
    fed = Fed()
    assert [fed.window(30.0), fed.window(30.0), fed.window(90.0, in_flight=110)] == [100, 110, 120]
    assert fed.policy.view(0.0).reason == "gain"
    assert fed.policy.view(0.0).goodput == pytest.approx(90.0 * 120)


def test_it_shrinks_with_the_speed_and_by_no_more_than_a_half_at_once():
    fed = Fed()
    fed.window(30.0)
    assert fed.window(24.0) == 90
    assert fed.policy.view(0.0).reason == "flat"
    assert fed.window(0.001) == 54


def test_a_window_has_eight_replies_at_least():
    fed = Fed(Gradient2(Gradient2Settings(start=2)))
    assert [fed.end(in_flight=2) for _ in range(16)] == [*[2] * 15, 3]


def test_a_window_counts_requests_that_were_let_in_since_the_last_one_closed():
    fed = Fed()
    fed.window(30.0)
    fed.now += 60.0
    for _ in range(500):
        assert fed.end(speed=1.0, age_s=60.1) == 100
    assert fed.window(30.0) == 110


def test_replies_of_unknown_speed_fill_no_window():
    fed = Fed()
    for tokens, duration_s in ((None, 10.0), (0.0, 10.0), (5.0, 0.0), (5e-324, 1e9), (1e9, 5e-324)):
        for _ in range(300):
            fed.policy.observe(Ended(Ending.OK, fed.now, 100, duration_s, output_tokens=tokens), fed.now)
    assert fed.policy.view(0.0).goodput is None


def test_without_the_limit_in_use_a_window_neither_moves_it_nor_sets_the_speed():
    fed = Fed()
    fed.window(30.0)
    assert fed.window(90.0, in_flight=79) == 100
    assert fed.window(30.0) == 110


def test_a_refusal_takes_three_tenths_and_windows_wait_while_the_rest_drains():
    fed = Fed()
    fed.window(30.0)
    fed.now += 1.0
    assert fed.end(Ending.RATE_LIMITED) == 70
    assert fed.policy.view(0.0).reason == "429"
    assert fed.end(Ending.RATE_LIMITED) == 70
    fed.now += 29.0
    for _ in range(300):
        assert fed.end(in_flight=70) == 70
    assert fed.window(30.0, in_flight=70) == 78


def test_a_pause_of_another_length_is_kept():
    fed = Fed(Gradient2(Gradient2Settings(start=100, pause=5.0)))
    assert fed.end(Ending.RATE_LIMITED) == 70
    fed.now += 5.0
    assert fed.end(Ending.RATE_LIMITED) == 49


def test_two_errors_in_a_hundred_cost_nothing():
    fed = Fed()
    fed.window(30.0)
    for _ in range(20):
        fed.end(Ending.SERVER_ERROR)
        fed.end(Ending.DOWN)
    assert fed.window(30.0) == 110


def test_many_timeouts_cut_once_for_all_that_was_in_flight():
    fed = Fed()
    limits = {fed.end(Ending.TIMEOUT, age_s=600.0) for _ in range(100)}
    assert limits == {100, 70}
    fed.now += 45.0
    assert {fed.end(Ending.TIMEOUT, age_s=600.0) for _ in range(100)} == {70}


def test_it_asks_for_no_flow_and_hears_none():
    fed = Fed()
    fed.policy.observe(Flow(5.0, 100.0, awaiting=100.0), fed.now)
    fed.policy.observe(CapChanged(64), fed.now)
    assert (fed.policy.next_wake_at(fed.now), fed.policy.limit(fed.now)) == (None, 64)
