"""The policy that is driven by refusals."""

from __future__ import annotations

import attrs
import pytest

from scavenge.core.limits.aimd import LOOK_EVERY_S, Aimd, AimdSettings, Round
from scavenge.signals import Ended, Ending, Flow
from scavenge.types import CapChanged


@attrs.define
class Fed:
    """A policy that begins at 20 and is fed with rounds."""

    policy: Aimd = attrs.field(factory=lambda: Aimd(AimdSettings()))
    now: float = 1000.0

    @property
    def limit(self) -> int:
        return self.policy.limit(self.now)

    def end(self, ending: Ending = Ending.OK, *, age_s: float = 0.0, in_flight: int | None = None) -> int:
        in_flight = self.limit if in_flight is None else in_flight
        ended = Ended(ending, self.now - age_s, in_flight, 1.0, retry_after_s=89.0)
        self.policy.observe(ended, self.now)
        return self.limit

    def round(self, ending: Ending = Ending.OK, *, age_s: float = 0.0, in_flight: int | None = None) -> int:
        self.now += 1.0
        for _ in range(max(4, self.limit)):
            limit = self.end(ending, age_s=age_s, in_flight=in_flight)
        return limit


def test_it_doubles_a_round_until_the_first_refusal_and_grows_by_a_twentieth_then():
    fed = Fed()
    assert [fed.round() for _ in range(3)] == [40, 80, 160]
    assert fed.policy.view(0.0).reason == "ramp"
    assert not fed.policy.view(0.0).settled
    assert fed.end(Ending.RATE_LIMITED) == 128
    assert fed.policy.view(0.0).reason == "429"
    assert fed.policy.view(0.0).settled
    assert [fed.round() for _ in range(2)] == [134, 141]
    assert fed.policy.view(0.0).reason == "gain"


def test_a_small_limit_grows_by_one_request_a_round_of_four():
    fed = Fed(Aimd(AimdSettings(start=1)))
    fed.end(Ending.RATE_LIMITED)
    fed.now += 500.0
    assert [fed.end() for _ in range(8)] == [1, 1, 1, 2, 2, 2, 2, 3]


def test_a_refusal_takes_a_fifth_of_what_was_in_flight():
    fed = Fed()
    assert fed.end(Ending.RATE_LIMITED, in_flight=10) == 8
    again = Fed()
    assert again.end(Ending.RATE_LIMITED, in_flight=1000) == 16


def test_it_grows_only_to_just_below_what_was_refused_until_that_relaxes():
    fed = Fed()
    fed.end(Ending.RATE_LIMITED, in_flight=20)
    assert [fed.round() for _ in range(5)][-1] == 19
    fed.now += 120.0
    assert [fed.round() for _ in range(5)][-1] == 21


def test_refusals_that_come_faster_than_their_retry_after_keep_on_cutting_inspect_ai_5137():
    fed = Fed()
    limits = []
    for _ in range(100):
        fed.now += 2.0
        limits.append(fed.end(Ending.RATE_LIMITED))
    assert sorted(set(limits), reverse=True) == [16, 12, 9, 7, 5, 4, 3, 2, 1]


def test_a_retry_after_longer_than_the_time_between_refusals_does_not_stop_growth_inspect_ai_5138():
    fed = Fed()
    for _ in range(4):
        fed.round()
    for _ in range(10):
        fed.now += 60.0
        cut = fed.end(Ending.RATE_LIMITED)
        assert [fed.round() for _ in range(3)][-1] > cut


def test_rounds_go_on_within_the_cooldown_of_a_cut():
    fed = Fed()
    fed.end(Ending.RATE_LIMITED)
    fed.now += 1.0
    assert fed.round() == 17
    assert fed.end(Ending.RATE_LIMITED) == 17
    fed.now += 13.0
    assert fed.end(Ending.RATE_LIMITED) == 13


def test_replies_to_what_was_let_in_before_a_cut_make_no_round():
    fed = Fed()
    fed.end(Ending.RATE_LIMITED)
    for _ in range(5):
        assert fed.round(age_s=30.0) == 16


@pytest.mark.parametrize("ending", [Ending.CACHED, Ending.CANCELLED, Ending.CLIENT_ERROR, Ending.SERVER_ERROR])
def test_what_is_no_reply_of_the_model_is_neither_for_nor_against_growth_prime_rl_3285(ending):
    fed = Fed()
    assert [fed.round(ending) for _ in range(5)] == [20] * 5
    for _ in range(19):
        fed.end()
        fed.end(ending)
    assert fed.end() == 40


def test_many_timeouts_halve_it_once_and_set_no_ceiling():
    fed = Fed()
    fed.round()
    assert [fed.end(Ending.TIMEOUT, age_s=600.0) for _ in range(30)] == [40, 40, *[20] * 28]
    assert fed.policy.view(0.0).reason == "timeout"
    fed.now += 600.0
    assert fed.end(Ending.TIMEOUT, age_s=600.1) == 20
    assert [fed.round() for _ in range(30)][-1] > 40


def test_a_round_without_the_limit_in_use_does_not_count():
    fed = Fed()
    assert [fed.round(in_flight=15) for _ in range(5)] == [20] * 5
    assert fed.round(in_flight=16) == 40


def test_each_round_has_the_limit_in_use_or_does_not_count():
    fed = Fed(Aimd(AimdSettings(start=125)))
    fed.end(Ending.RATE_LIMITED)
    fed.now += 500.0
    assert fed.round() == 105
    assert fed.round(in_flight=10) == 105


def test_a_round_begins_anew_with_a_cut():
    fed = Fed()
    assert [fed.end() for _ in range(19)] == [20] * 19
    assert fed.end(Ending.RATE_LIMITED) == 16
    assert [fed.end() for _ in range(16)] == [*[16] * 15, 17]


def test_a_limit_that_was_in_use_between_two_requests_of_old_is_in_use():
    fed = Fed()
    fed.policy.observe(Flow(1.0, 12.0, in_flight_now=18), fed.now)
    assert fed.round(in_flight=2) == 40
    assert fed.round(in_flight=2) == 40


def test_it_looks_at_what_is_in_flight_every_few_seconds():
    policy = Aimd(AimdSettings())
    assert policy.next_wake_at(5.0) == 5.0
    policy.observe(CapChanged(None), 5.0)
    assert policy.next_wake_at(100.0) == 5.0 + LOOK_EVERY_S
    policy.observe(Flow(1.0, 0.0), 8.0)
    assert policy.next_wake_at(8.0) == 8.0 + LOOK_EVERY_S


def test_the_cap_is_the_end_of_growth_and_comes_back_where_it_was():
    fed = Fed()
    fed.policy.observe(CapChanged(30), fed.now)
    assert [fed.round() for _ in range(3)] == [30, 30, 30]
    fed.policy.observe(CapChanged(None), fed.now)
    assert fed.round() == 60


def test_a_round_in_which_somebody_was_refused_is_no_reason_to_grow():
    """A burst right after a cut is refused within the cooldown: the limit waits, it does not climb meanwhile."""
    rounds = Round()
    for ending in [Ending.OK] * 20 + [Ending.RATE_LIMITED]:
        rounds.hear(Ended(ending, admitted_at=1.0, in_flight=20, duration_s=1.0))
    assert rounds.is_over(20)
    assert not rounds.is_clean(20)
