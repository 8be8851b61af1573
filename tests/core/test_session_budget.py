"""The budget of the sessions' contexts: who it holds, where it comes from, what it learns."""

from __future__ import annotations

import pytest

from scavenge.core.sessions.book import Stage
from scavenge.core.sessions.budget import Budget, BudgetSettings
from scavenge.core.sessions.hits import SEEN
from scavenge.core.sessions.policy import SessionsView, TurnEnded
from scavenge.signals import ServerLoad
from session_kit import House


def budget_of(house):
    return house.policy.view().budget_tokens


def test_newcomers_are_held_while_the_contexts_are_over_the_budget():
    house = House(tokens=1000)
    house.enter_with(600)
    second = house.enter_with(399)
    third = house.enter()
    house.take(third, 1)
    house.take(third, 1, reply=5)
    late = house.knock()
    assert late.stage is Stage.DOOR
    house.leave(third)
    house.leave(second)
    assert late.stage is Stage.LIVE


def test_sessions_that_call_once_are_held_by_the_slots_alone():
    house = House(tokens=1, slots=20)
    for _ in range(100):
        sessions = [house.knock() for _ in range(30)]
        assert sum(session.stage is Stage.LIVE for session in sessions) == 25
        while live := [session for session in sessions if session.stage is Stage.LIVE]:
            for session in live:
                house.take(session, 100_000, reply=9, cached=0)
                house.leave(session)
            sessions = [session for session in sessions if session.stage is not Stage.GONE]


def test_sessions_that_have_made_a_second_call_are_not_bounded_by_the_slots():
    house = House(slots=1)
    for _ in range(20):
        house.enter_with(10)
    for _ in range(6):
        house.enter()
    assert house.knock().stage is Stage.DOOR


def test_room_is_kept_for_what_newcomers_are_going_to_need_once_that_is_known():
    house = House(tokens=1000)
    for _ in range(10):
        house.leave(house.enter_with(400))
    house.enter_with(500)
    house.enter()
    assert house.book.fresh == 1
    house.enter()
    assert house.knock().stage is Stage.DOOR, "500 in use, and 200 for each of two newcomers"


def test_somebody_comes_in_when_nobody_is_there_however_small_the_budget():
    house = House(tokens=1)
    house.leave(house.enter_with(1_000_000))
    assert house.knock().stage is Stage.LIVE
    assert house.knock().stage is Stage.DOOR


def test_it_hears_of_nothing_that_it_does_not_know():
    house = House(start_tokens=1000)
    house.policy.observe("news", 0.0)
    assert budget_of(house) == 1000


# --- where it comes from


def test_it_starts_with_so_much_for_each_endpoint_that_tells_nothing():
    house = House(start_tokens=1000)
    assert budget_of(house) == 1000
    house.tell(a=ServerLoad(), b=ServerLoad())
    assert budget_of(house) == 2000
    house.tell()
    assert budget_of(house) == 2000, "an outage says nothing about caches"


def test_it_is_a_part_of_the_caches_that_servers_tell_and_guesses_those_that_do_not():
    house = House(fill=0.5)
    house.tell(a=ServerLoad(kv_tokens=1000))
    assert (budget_of(house), house.policy.view().reason) == (500, "capacity")
    house.tell(a=ServerLoad(kv_tokens=1000), b=ServerLoad())
    assert budget_of(house) == 1000
    house.tell(a=ServerLoad(kv_tokens=1000), b=ServerLoad(kv_tokens=3000))
    assert budget_of(house) == 2000
    house.tell(b=ServerLoad())
    assert budget_of(house) == 2000, "what was told once is better than nothing"


def test_a_budget_that_was_set_stays():
    house = House(tokens=777)
    house.tell_kv(10_000)
    assert budget_of(house) == 777


def test_where_slots_are_all_that_servers_tell_a_session_needs_a_slot_of_its_own():
    house = House(start_tokens=10**9)
    house.tell(a=ServerLoad(slots=1), b=ServerLoad(slots=1))
    house.leave(house.enter_with(10))
    first, _ = house.enter_with(10), house.enter_with(10)
    assert house.knock().stage is Stage.DOOR
    house.tell(a=ServerLoad(slots=1))
    assert house.book.counted == 2
    house.tell(a=ServerLoad(slots=1), b=ServerLoad())
    assert house.book.waiting == 0, "not all of them tell"
    third = house.enter_with(10)
    house.tell(a=ServerLoad(slots=2))
    assert not house.ask(third, 20)
    house.leave(first)
    assert house.goes(third)


# --- what it learns


def feed(policy, now, look_at, found=(), lost=(), count=6):
    """Turns that found their prefix at some distances, and lost it at others; the last one comes at *look_at*."""
    turns = [
        TurnEnded(False, 1100, 10, cached, 1000, distance_tokens=distance)
        for distances, cached in ((found, 1000), (lost, 0))
        for distance in distances
        for _ in range(count)
    ]
    for turn in turns[:-1]:
        policy.observe(turn, now)
    policy.observe(turns[-1], look_at)
    return policy.view().budget_tokens


class Learner(House):
    """Sessions whose contexts are just over the budget of 9 500, and one that waits at the door for it."""

    def __init__(self, **settings):
        super().__init__(start_tokens=9_500, **settings)
        self.tell(a=ServerLoad())
        self.workers = [self.enter_with(1000) for _ in range(9)]
        self.take(self.workers[-1], 1000, reply=600, cached=1000)
        assert self.knock().stage is Stage.DOOR

    def turns(self, *found, lost=(), seconds=11.0, count=6):
        """More turns; the budget after them."""
        feed(self.policy, self.now, self.now + seconds, found, lost, count)
        self.now += seconds
        self.grant()
        return budget_of(self)

    def grow_into(self, tokens):
        """Let the oldest worker grow until all together have so many tokens, and somebody wait."""
        oldest = self.workers[0]
        others = self.book.counted_tokens - oldest.counted_tokens
        self.take(oldest, tokens - others, cached=oldest.prompt_tokens)
        self.knock()


def test_it_grows_fast_until_the_first_loss_while_all_is_found_and_somebody_waits():
    house = Learner()
    first = house.turns(9_000, 8_000)
    assert first == pytest.approx(9_500 * 1.15)
    assert house.turns(10_900, 9_000) == first, "the budget holds nobody any more"
    house.grow_into(11_000)
    assert house.turns(10_900, 9_000) == pytest.approx(first * 1.15)
    assert house.policy.view().reason == "hits"


def test_it_does_not_grow_far_beyond_what_was_seen_to_be_found():
    assert Learner().turns(5_000, 7_000) == 9_500


def test_it_is_a_part_of_where_the_caches_are_seen_to_end_whatever_it_was_before():
    house = Learner()
    end = (40_000 * 62_500) ** 0.5
    assert house.turns(10_000, 40_000, lost=[62_500]) == pytest.approx(0.9 * end)
    assert house.policy.view().reason == "misses"
    house = Learner()
    assert house.turns(2_000, lost=[4_000, 9_000]) == pytest.approx(0.9 * (2_000 * 4_000) ** 0.5)


def test_a_start_with_far_too_many_sessions_is_no_reason_for_a_smaller_budget():
    policy = Budget(BudgetSettings(start_tokens=9_500))
    assert feed(policy, 0.0, 0.0, lost=[700_000, 800_000]) == 9_500
    known = feed(policy, 1.0, 11.0, found=[9_000, 9_500], lost=[750_000])
    assert known == pytest.approx(0.9 * (9_500 * 700_000) ** 0.5)


def test_a_bound_from_above_alone_is_kept():
    policy = Budget(BudgetSettings(start_tokens=9_500))
    assert feed(policy, 0.0, 0.0, lost=[5_000, 6_000]) == pytest.approx(0.9 * 5_000)


def test_once_a_loss_was_seen_it_creeps():
    house = Learner()
    settled = house.turns(9_000, lost=[12_000])
    house.turns(9_000, count=SEEN)
    house.grow_into(round(settled) + 1)
    before = budget_of(house)
    assert house.turns(9_500, 9_800) == pytest.approx(before * 1.02)


def test_a_few_turns_or_an_early_look_say_nothing():
    house = Learner()
    first = house.turns(9_000, lost=[12_000])
    assert house.turns(2_000, lost=[2_500], count=4) == first, "not before so many turns"
    assert house.turns(2_000, lost=[2_500], seconds=1) == first, "nor so soon"
    assert house.turns(2_000, lost=[2_500], seconds=10, count=40) < first


def test_capacity_that_was_told_is_not_exceeded_but_corrected():
    house = Learner()
    house.tell_kv(10_000)
    assert budget_of(house) == 9_000
    assert house.turns(9_000, 20_000) == 9_000
    assert house.turns(8_000, lost=[8_001], count=40) == 9_000, "near enough"
    assert house.turns(4_000, lost=[4_001], count=200) == pytest.approx(0.9 * 4_000, rel=0.01)
    house.tell_kv(5_000)
    assert budget_of(house) == pytest.approx(0.9 * 2_000, rel=0.01), "the correction stays"
    assert house.turns(4_500, count=SEEN) == 4_500


def test_what_was_seen_of_one_endpoint_is_true_of_two():
    house = Learner()
    first = house.turns(20_000, lost=[30_000])
    house.tell(a=ServerLoad(), b=ServerLoad())
    assert budget_of(house) == pytest.approx(2 * first)
    assert house.turns(40_000, lost=[60_000]) == pytest.approx(2 * first)


def test_where_nothing_is_ever_kept_the_slots_bound_the_sessions_until_something_is():
    house = Learner(slots=10)
    assert house.turns(lost=[1_100], count=SEEN) is None
    assert house.policy.view() == SessionsView(limit=15, reason="nothing is kept")
    assert house.book.live == 10
    assert [house.knock().stage for _ in range(9)].count(Stage.LIVE) == 5
    assert all(house.ask(worker, 50_000) for worker in house.workers), "nobody is paused for a cache that is not there"
    assert house.turns(lost=[200_000], count=SEEN) is None, "what is lost far away proves nothing"
    assert house.turns(100_000, lost=[200_000], count=SEEN // 2) == pytest.approx(0.9 * 20_000**0.5 * 10**3)


def test_a_budget_that_was_set_learns_nothing():
    house = Learner(tokens=9_500)
    assert house.turns(2_000, lost=[3_000]) == 9_500
    assert house.turns(lost=[1_100], count=SEEN) == 9_500


def test_turns_that_moved_or_ran_beside_others_tell_nothing():
    house = House(start_tokens=1000)
    house.tell(a=ServerLoad())
    session = house.enter_with(100)
    house.now = 100.0
    for number in range(20):
        house.take(session, 100, cached=0, url=f"http://{number}/v1")
    assert house.policy.view().reason == "start"


@pytest.mark.parametrize("settings", [{"tokens": 0}, {"tokens": 1.5}, {"fill": 0}, {"start_tokens": None}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))}: expected"):
        BudgetSettings(**settings)
