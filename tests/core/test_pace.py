"""What replies tell of a server's speed: the line, its limits, and when it is forgotten."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.pace import FORGET_AFTER_S, Line, Pace
from scavenge.errors import UsageError

LAW = Line(0.01, 0.0005)


def observe(pace, loads, law=LAW, tokens=200, now=0.0):
    for streams in loads:
        pace.observe(tokens, tokens * law.at(streams), streams, now)
    return pace


def learnt(loads, **how):
    return observe(Pace(), loads, **how)


def close(value):
    return pytest.approx(value, rel=1e-9)


def test_nothing_is_known_before_the_first_reply():
    pace = Pace()
    assert (pace.line(), pace.forgotten_at) == (None, None)
    assert not pace.forget_if_stale(1e9, 0)


def test_one_reply_is_the_speed_of_a_server_that_shares_what_it_has():
    pace = Pace()
    pace.observe(100, 2.0, 4, 0.0)
    assert pace.line() == Line(0.0, 0.005)


def test_a_load_that_never_varied_promises_nothing_for_a_higher_one():
    line = learnt([8] * 100).line()
    assert line.at(8) == close(LAW.at(8))
    assert line.at(16) == close(2 * LAW.at(8))


@pytest.mark.parametrize("law", [Line(0.01, 0.0002), LAW, Line(0.05, 0.05), Line(0.008, 0.00005)])
@pytest.mark.parametrize("loads", [range(1, 51), [1, 2, 4, 8, 16] * 10, [16, 2] * 25, [30] * 10 + [3] * 40])
def test_after_fifty_replies_the_line_predicts_the_loads_that_were_seen_within_a_fifth(law, loads):
    line = learnt(loads, law=law).line()
    for streams in loads[-20:]:
        assert line.at(streams) == pytest.approx(law.at(streams), rel=0.2)


def test_loads_that_vary_tell_the_two_parts_of_the_line():
    line = learnt([1, 8, 16, 32] * 20).line()
    assert line.base_s == pytest.approx(LAW.base_s, rel=0.02)
    assert line.per_stream_s == pytest.approx(LAW.per_stream_s, rel=0.02)


def test_a_server_that_gets_faster_with_more_streams_is_not_believed():
    pace = Pace()
    for streams in [1, 20] * 20:
        pace.observe(100, 100 * (0.05 if streams == 1 else 0.01), streams, 0.0)
    line = pace.line()
    mean_streams, mean_s = 10.5, line.at(10.5)
    assert 0 < line.per_stream_s < 0.03 * mean_s / mean_streams


def test_a_server_that_breaks_down_under_load_has_no_negative_base():
    pace = Pace()
    for streams in [1, 20] * 200:
        pace.observe(100, 100 * 0.001 * streams**3, streams, 0.0)
    assert pace.line().base_s == 0
    mean_streams = (20 + 0.95 * 1) / 1.95
    assert pace.line().at(mean_streams) == pytest.approx((8 + 0.95 * 0.001) / 1.95, rel=1e-6)


def test_a_change_of_speed_is_followed_within_some_forty_replies():
    pace = learnt([2, 4, 8] * 20)
    observe(pace, [2, 4, 8] * 14, law=Line(0.03, 0.0015))
    assert pace.line().at(4) == pytest.approx(3 * LAW.at(4), rel=0.2)
    observe(pace, [2, 4, 8] * 20)
    assert pace.line().at(4) == pytest.approx(LAW.at(4), rel=0.2)


def test_tokens_and_not_replies_make_the_mean():
    pace = Pace()
    for _ in range(40):
        pace.observe(10, 10 * 0.02, 2, 0.0)
        pace.observe(490, 490 * 0.01, 2, 0.0)
    assert pace.line().at(2) == pytest.approx(0.0102, rel=0.01)


def test_one_reply_of_endless_tokens_does_not_drown_all_others():
    pace = learnt([4] * 40, tokens=100)
    pace.observe(1e7, 1e7 * 2 * LAW.at(4), 4, 0.0)
    assert LAW.at(4) * 1.1 < pace.line().at(4) < LAW.at(4) * 1.25


def test_one_reply_that_took_an_hour_does_not_make_a_server_slow():
    pace = learnt([4] * 40)
    pace.observe(200, 3600.0, 4, 0.0)
    assert LAW.at(4) * 1.1 < pace.line().at(4) < LAW.at(4) * 1.2


def test_a_cold_start_is_outweighed_by_the_replies_that_follow():
    pace = Pace()
    pace.observe(200, 60.0, 4, 0.0)
    observe(pace, [4] * 80)
    assert pace.line().at(4) == pytest.approx(LAW.at(4), rel=0.1)


@pytest.mark.parametrize("tokens", [0, -1, math.nan, math.inf, 1e-300, 1e300])
@pytest.mark.parametrize("known", [True, False])
def test_tokens_that_cannot_be_are_passed_over(tokens, known):
    unchanged(known, tokens, 2.0, 3)


@pytest.mark.parametrize("duration_s", [0, -1, math.nan, math.inf, 1e-300, 1e300])
@pytest.mark.parametrize("known", [True, False])
def test_durations_that_cannot_be_are_passed_over(duration_s, known):
    unchanged(known, 100, duration_s, 3)


@pytest.mark.parametrize("in_flight", [0, -1, math.nan, math.inf, 1e300])
@pytest.mark.parametrize("known", [True, False])
def test_numbers_of_streams_that_cannot_be_are_passed_over(in_flight, known):
    unchanged(known, 100, 2.0, in_flight)


def unchanged(known, tokens, duration_s, in_flight):
    pace = learnt([2, 3] if known else [])
    before = pace.line(), pace.forgotten_at
    pace.observe(tokens, duration_s, in_flight, 50.0)
    assert (pace.line(), pace.forgotten_at) == before


def test_two_numbers_below_nothing_are_no_speed_either():
    unchanged(True, -100, -2.0, 3)


@given(st.lists(st.tuples(st.floats(), st.floats(), st.floats() | st.integers(0, 64)), max_size=30))
def test_whatever_is_observed_the_line_is_one(observed):
    pace = Pace()
    for tokens, duration_s, in_flight in observed:
        pace.observe(tokens, duration_s, in_flight, 0.0)
        line = pace.line()  # refuses what is no line
        assert line is None or 0 < line.at(1) <= line.at(64) < math.inf
        assert line is None or line.at(1) > 0


# --- forgetting


def test_a_speed_is_forgotten_when_no_reply_has_confirmed_it_for_long_and_nothing_is_in_flight():
    pace = learnt([2, 4, 8], now=1000.0)
    assert pace.forgotten_at == 1000 + FORGET_AFTER_S
    assert not pace.forget_if_stale(pace.forgotten_at - 0.001, 0)
    assert not pace.forget_if_stale(pace.forgotten_at + 1e6, 1)
    assert pace.line() is not None
    assert pace.forget_if_stale(1000 + FORGET_AFTER_S, 0)
    assert (pace.line(), pace.forgotten_at) == (None, None)
    assert not pace.forget_if_stale(1e9, 0), "there is nothing left to forget"


def test_a_reply_confirms_the_speed_and_an_older_one_takes_nothing_back():
    pace = learnt([2], now=10.0)
    observe(pace, [2], now=60.0)
    observe(pace, [2], now=30.0)
    assert pace.forgotten_at == 60 + FORGET_AFTER_S


def test_what_is_learnt_after_forgetting_owes_nothing_to_what_was_known():
    pace = learnt([2, 4, 8, 16] * 5, law=Line(5, 1))
    assert pace.forget_if_stale(FORGET_AFTER_S, 0)
    observe(pace, [2, 3], now=500.0)
    assert pace.line() == learnt([2, 3]).line()
    assert pace.forgotten_at == 500 + FORGET_AFTER_S


# --- lines


def test_costs_that_differ_by_less_than_a_step_count_as_equal_and_more_never_as_less():
    steps = [Line(0.0, 0.001).roughly_at(streams) for streams in range(1, 2000)]
    assert steps == sorted(steps)
    assert all(abs(step / (0.001 * n) - 1) <= 1 / 16 + 1e-9 for n, step in enumerate(steps, 1))
    assert Line(0.0096, 0.0002).roughly_at(1) == Line(0.0100, 0.0002).roughly_at(1)
    assert Line(0.0100, 0.0002).roughly_at(1) < Line(0.0118, 0.0002).roughly_at(1)


@pytest.mark.parametrize(
    ("base_s", "per_stream_s"), [(-0.1, 1), (math.nan, 1), (math.inf, 1), (0, 0), (1, -1), (0, math.nan), (0, math.inf)]
)
def test_what_is_no_speed_is_refused(base_s, per_stream_s):
    with pytest.raises(UsageError, match="expected a finite base_s ≥ 0 and a finite per_stream_s > 0, got Line"):
        Line(base_s, per_stream_s)
