"""How large the caches are, from the turns that found their prefix and those that did not."""

from __future__ import annotations

import math
from random import Random

import pytest

from scavenge.core.sessions.hits import FIRST_CALLS_LEAST, IN_VAIN, LOST_LEAST, SEEN, HitMeter
from scavenge.core.sessions.policy import TurnEnded


def turn(distance, cached=None, *, expected=1000, prompt=1200, shared=0, first_token_s=None):
    return TurnEnded(
        False, prompt, 10, cached, expected, shared_tokens=shared, distance_tokens=distance, first_token_s=first_token_s
    )


def seen(*turns):
    meter = HitMeter()
    for one in turns:
        meter.count(one)
    return meter


def test_where_all_is_found_the_caches_have_no_end():
    edge = seen(*(turn(distance, 1000) for distance in (5_000, 70_000, 30_000))).edge()
    assert (edge.found, edge.lost, edge.keeps) == (70_000, math.inf, True)
    assert HitMeter().edge().lost == math.inf


def test_the_caches_end_between_what_was_found_and_what_was_lost():
    found = [turn(distance, 1000) for distance in range(10_000, 41_000, 1000)]
    lost = [turn(distance, 0) for distance in range(90_000, 99_000, 1000)]
    edge = seen(*lost, *found).edge()
    assert (edge.found, edge.lost) == (40_000, 90_000)
    assert edge.tokens == pytest.approx(60_000)


def test_a_few_that_tell_the_contrary_do_not_move_the_end():
    random = Random(1)
    turns = []
    for _ in range(SEEN):
        distance = random.randint(1_000, 100_000)
        found = (distance < 60_000) != (random.random() < 0.1)
        turns.append(turn(distance, 1000 if found else 0))
    assert seen(*turns).edge().tokens == pytest.approx(60_000, rel=0.1)


def test_a_part_that_was_found_tells_by_that_part():
    turns = [turn(10_000, 900)] * 5 + [turn(20_000, 100)] * 5
    assert (seen(*turns).edge().found, seen(*turns).edge().lost) == (10_000, 20_000)


def test_fewer_losses_than_make_an_end_make_none():
    some = [turn(10_000, 1000)] * 5 + [turn(20_000, 0)] * (int(LOST_LEAST) - 1)
    assert seen(*some).edge().lost == math.inf
    assert seen(*some, turn(20_000, 0)).edge().lost == 20_000


def test_where_nothing_was_found_only_the_upper_bound_is_known():
    edge = seen(*[turn(700_000, 0)] * 20).edge()
    assert (edge.found, edge.tokens, edge.keeps) == (0, 700_000, True)


def test_what_is_lost_with_nobody_in_between_was_never_kept():
    assert seen(*[turn(1_300, 0)] * (IN_VAIN - 1)).edge().keeps
    assert not seen(*[turn(1_300, 0)] * IN_VAIN).edge().keeps
    assert seen(*[turn(1_300, 0)] * IN_VAIN, *[turn(1_300, 1000)] * (IN_VAIN + 1)).edge().keeps


def test_what_all_sessions_begin_with_is_no_hit():
    edge = seen(*[turn(50_000, 900, shared=900)] * 5, *[turn(9_000, 1000, shared=900)] * 5).edge()
    assert (edge.found, edge.lost) == (9_000, 50_000)
    meter = seen(turn(50_000, 900, expected=900, shared=900))
    assert meter.turns == 0, "it has nothing else to find"


def test_turns_of_which_nothing_could_be_expected_tell_nothing():
    assert seen(turn(10_000, 0, expected=0)).turns == 0


def test_the_latest_turns_tell():
    assert seen(*[turn(10_000, 0)] * 9, *[turn(90_000, 1000)] * SEEN).edge().lost == math.inf


def test_what_was_seen_of_some_caches_is_true_of_twice_as_many_at_twice_the_distance():
    meter = seen(*[turn(10_000, 1000)] * 5, *[turn(20_000, 0)] * 5)
    meter.rescale(2.0)
    assert (meter.edge().found, meter.edge().lost) == (20_000, 40_000)


# --- by times


def timed(*turns, first_s=1.0, firsts=FIRST_CALLS_LEAST):
    return seen(*[TurnEnded(True, 1000, 10, first_token_s=first_s)] * firsts, *turns)


def test_a_first_token_as_slow_as_those_of_first_calls_is_a_loss_and_a_fast_one_is_none():
    fast, slow = turn(10_000, first_token_s=0.24), turn(20_000, first_token_s=1.2)
    edge = timed(*[fast] * 5, *[slow] * 5).edge()
    assert (edge.found, edge.lost) == (10_000, 20_000)


def test_what_is_neither_slow_nor_fast_tells_nothing():
    assert timed(turn(10_000, first_token_s=0.30)).turns == 0


@pytest.mark.parametrize(
    ("more", "one"),
    [
        ({}, turn(10_000)),
        ({}, turn(10_000, prompt=9000, first_token_s=9.0)),
        ({"firsts": FIRST_CALLS_LEAST - 1}, turn(10_000, first_token_s=0.25)),
        ({"first_s": 0.0}, turn(10_000, first_token_s=0.25)),
    ],
)
def test_without_a_time_or_first_calls_or_a_known_prompt_times_tell_nothing(more, one):
    assert timed(one, **more).turns == 0
