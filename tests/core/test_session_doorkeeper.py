"""What is the same under every session policy: the order, what is never held, what counts."""

from __future__ import annotations

import pytest

from scavenge.core.sessions.book import Stage
from scavenge.core.sessions.doorkeeper import COLD_AFTER_S
from scavenge.core.sessions.fixed import FixedSessions, FixedSessionsSettings
from scavenge.core.sessions.off import Off, OffSettings
from scavenge.core.sessions.policy import MOST_LIVE
from scavenge.core.sessions.recency import GONE
from scavenge.errors import UsageError
from scavenge.signals import ServerLoad
from scavenge.types import Usage
from session_kit import A, B, House


def fixed(limit, **more):
    return House(FixedSessions(FixedSessionsSettings(limit)), **more)


def test_the_oldest_at_the_door_comes_in_first():
    house = fixed(1)
    first = house.enter(5)
    young, old = house.knock(9), house.knock(7)
    house.leave(first)
    assert (old.stage, young.stage) == (Stage.LIVE, Stage.DOOR)


def test_sessions_of_one_age_come_in_as_they_came():
    house = fixed(1)
    first = house.enter(5)
    one, other = house.knock(7), house.knock(7)
    house.leave(first)
    assert (one.stage, other.stage) == (Stage.LIVE, Stage.DOOR)


def test_who_goes_away_from_the_door_is_never_let_in():
    house = fixed(1)
    first = house.enter()
    gone, waits = house.knock(), house.knock()
    house.keeper.withdraw(gone)
    house.leave(first)
    assert (gone.stage, waits.stage) == (Stage.GONE, Stage.LIVE)


def test_nobody_comes_in_while_there_are_no_slots_and_who_is_in_stays():
    house = House(Off(OffSettings()), slots=0)
    session = house.knock()
    assert session.stage is Stage.DOOR
    house.set_slots(1)
    assert session.stage is Stage.LIVE
    house.set_slots(0)
    assert session.stage is Stage.LIVE
    assert house.knock().stage is Stage.DOOR


def test_one_process_has_no_more_sessions_than_it_is_built_for():
    house = House(Off(OffSettings()))
    for age in range(MOST_LIVE + 1):
        last = house.keeper.knock(age)
    house.grant()
    assert (house.book.live, last.stage) == (MOST_LIVE, Stage.DOOR)


def test_a_place_that_was_given_back_is_of_no_more_use():
    house = fixed(3)
    session = house.enter()
    house.leave(session)
    with pytest.raises(UsageError, match="open another one"):
        house.leave(session)
    with pytest.raises(UsageError, match="open another one"):
        house.ask(session, 10)


def test_a_first_call_is_never_held_and_counts_for_nothing():
    house = House(tokens=10)
    sessions = [house.enter() for _ in range(20)]
    assert all(house.ask(session, 1_000_000) for session in sessions)
    assert house.book.counted_tokens == 0


def test_a_second_call_is_held_while_the_older_leave_no_room_and_goes_when_they_end():
    house = House(tokens=1000)
    old, young = house.enter_with(900), house.enter()
    house.take(young, 500)
    assert not house.ask(young, 600)
    assert (house.book.paused, house.book.counted_tokens) == (1, 1500)
    house.leave(old)
    assert house.goes(young)
    assert house.book.paused == 0


def test_the_oldest_session_goes_on_whatever_its_context():
    house = House(tokens=10)
    old = house.enter()
    house.take(old, 5_000)
    assert house.ask(old, 10_000)


def test_a_session_with_none_older_that_counts_goes_on_whatever_its_context():
    house = House(tokens=1000)
    house.enter_with(900)
    young = house.enter_with(50)
    assert not house.ask(young, 5_000)
    house.rest(COLD_AFTER_S)
    assert house.goes(young)


def test_paused_sessions_go_on_in_the_order_of_their_age_and_none_overtakes():
    house = House(tokens=1000)
    oldest = house.enter_with(900)
    second, third, fourth = (house.enter() for _ in range(3))
    for session in (second, third, fourth):
        house.take(session, 100)
    assert not house.ask(fourth, 190)
    assert not house.ask(second, 800)
    assert not house.ask(third, 1), "it would fit beside the oldest, but an older one waits"
    house.leave(oldest)
    assert [house.goes(session) for session in (second, third, fourth)] == [True, True, True]


def test_a_call_beside_another_of_the_same_session_never_waits():
    house = House(tokens=1000)
    old, young = house.enter_with(500), house.enter_with(100)
    assert house.ask(young, 150)
    house.take(old, 990, cached=0)
    assert house.ask(young, 700), "while its call is under way"
    house.end(young, 150)
    house.end(young, 700)
    assert not house.ask(young, 700)


def test_calls_of_one_session_that_are_paused_go_on_together():
    house = House(tokens=1000)
    old, young = house.enter_with(990), house.enter()
    house.take(young, 100)
    one = house.keeper.ask(young, 200, house.now)
    other = house.keeper.ask(young, 210, house.now)
    house.grant()
    assert (one.may_go, other.may_go, house.book.paused) == (False, False, 1)
    house.leave(old)
    assert (one.may_go, other.may_go, young.working) == (True, True, 2)


def test_a_call_beside_a_paused_one_of_its_session_does_not_overtake_it():
    house = House(tokens=1000)
    house.enter_with(900)
    young = house.enter_with(50)
    one = house.keeper.ask(young, 500, house.now)
    other = house.keeper.ask(young, 60, house.now)
    assert (one.may_go, other.may_go) == (False, False)
    house.grant()
    assert (one.may_go, other.may_go) == (True, True), "what it asks for now has room"


def test_a_paused_call_that_is_given_up_leaves_its_session_idle():
    house = House(tokens=1000)
    house.enter_with(990)
    young = house.enter()
    house.take(young, 100)
    one = house.keeper.ask(young, 200, house.now)
    other = house.keeper.ask(young, 300, house.now)
    house.keeper.drop(one, house.now)
    assert house.book.paused == 1
    house.keeper.drop(other, house.now)
    assert (house.book.paused, house.book.counted_tokens) == (0, 1290)


def test_leaving_withdraws_the_paused_calls():
    house = House(tokens=1000)
    house.enter_with(990)
    young = house.enter()
    house.take(young, 100)
    call = house.keeper.ask(young, 200, house.now)
    assert house.leave(young) == [call]
    assert not call.may_go
    assert (house.book.paused, house.book.counted_tokens) == (0, 990)


def test_the_end_of_a_call_whose_session_has_left_changes_nothing():
    house = House(tokens=1000)
    session = house.enter_with(100)
    house.ask(session, 200)
    house.leave(session)
    house.end(session, 200, 5)
    assert (house.book.live, house.book.counted_tokens, house.book.idle_since()) == (0, 0, float("inf"))


def test_a_context_is_what_the_server_counted_and_estimates_learn_from_it():
    house = House()
    session = house.enter()
    house.take(session, 100)
    assert house.ask(session, 100)
    house.end(session, 300, reply=50)
    assert house.book.counted_tokens == 350
    house.ask(session, 150)
    assert house.book.counted_tokens == 350, "the server counts 200 that the estimates do not see"
    house.end(session, 340)
    house.ask(session, 10)
    house.end(session, 3)
    house.ask(session, 1)
    assert house.book.counted_tokens == 1, "nobody weighs less than nothing"


def test_a_reply_that_tells_no_tokens_leaves_the_estimate():
    house = House()
    session = house.enter()
    for _ in range(2):
        house.ask(session, 100)
        house.end(session)
    assert house.book.counted_tokens == 100


def test_a_reply_without_counts_leaves_the_estimate_and_its_endpoint_is_known():
    house = House()
    session = house.enter()
    for _ in range(2):
        house.ask(session, 100)
        house.keeper.end(session, Usage(), 0.1, B, 0.0)
    assert (house.book.counted_tokens, session.home, session.answers) == (100, B, 0)


def test_a_server_that_counts_no_prompt_does_not_spoil_the_estimates():
    house = House()
    session = house.enter()
    house.take(session, 100)
    house.ask(session, 100)
    house.end(session, prompt=0, reply=0)
    house.ask(session, 120)
    assert house.book.counted_tokens == 120


def test_a_call_that_ends_beside_another_or_beside_a_paused_one_leaves_its_session_at_work():
    house = House(tokens=1000)
    house.enter_with(900)
    young = house.enter_with(50)
    assert house.ask(young, 60)
    assert house.ask(young, 70)
    house.end(young, 60)
    assert (young.working, house.keeper.book.idle_since()) == (1, 0.0)
    house.rest(COLD_AFTER_S)
    assert not young.cold


def test_a_session_at_work_or_paused_is_not_forgotten_when_its_endpoint_goes():
    house = House(tokens=1000)
    house.tell(a=ServerLoad())
    old, young = house.enter_with(900), house.enter_with(100)
    house.ask(old, 950)
    assert not house.ask(young, 200)
    house.tell(b=ServerLoad())
    assert house.book.counted_tokens == 950 + 200


def test_a_common_beginning_counts_once():
    house = House()
    for cached in (0, 80):
        session = house.enter()
        house.take(session, 100, cached=cached)
        house.take(session, 120, reply=10, cached=100)
    assert house.book.counted_tokens == 130 + (130 - 80)


def test_an_idle_session_stops_counting_after_long_and_counts_again_when_it_goes_on():
    house = House(tokens=1000)
    old, young = house.enter_with(900), house.enter()
    house.take(young, 100)
    house.now = 10.0
    assert not house.ask(young, 600)
    assert house.keeper.next_wake_at() == COLD_AFTER_S
    house.now = COLD_AFTER_S - 1
    house.grant()
    assert not house.goes(young)
    house.now = COLD_AFTER_S
    house.grant()
    assert house.goes(young)
    assert house.book.counted_tokens == 600
    assert house.keeper.next_wake_at() is None
    assert house.ask(old, 950)
    assert house.book.counted_tokens == 1550


def test_a_session_whose_endpoint_is_gone_counts_again_only_when_it_goes_on():
    house = House()
    house.tell(a=ServerLoad(), b=ServerLoad())
    session = house.enter_with(100)
    fresh = house.enter()
    assert session.home == A
    house.tell(b=ServerLoad())
    assert (house.book.counted_tokens, session.cold, fresh.home) == (0, True, None)
    house.take(session, 120, url=B)
    assert (house.book.counted_tokens, session.home, session.cold) == (120, B, False)


def test_nothing_wakes_anybody_while_nobody_waits():
    house = House()
    house.enter_with(100)
    assert house.keeper.next_wake_at() is None


# --- another conversation in the same place


def test_a_session_that_starts_afresh_keeps_its_place_and_counts_for_nothing_until_its_second_call():
    house = House(tokens=1000)
    old, young = house.enter_with(900), house.enter_with(50)
    assert not house.ask(young, 200)
    house.keeper.restart(old)
    house.grant()
    assert house.goes(young)
    assert (old.is_fresh, old.counted_tokens, house.book.fresh, house.book.live) == (True, 0, 1, 2)
    house.take(old, 100)
    assert house.book.counted_tokens == 200
    house.take(old, 150)
    assert (house.book.counted_tokens, house.book.fresh) == (350, 0)


def test_a_session_that_starts_afresh_is_not_expected_to_find_its_old_prefix():
    house = fixed(3)
    session = house.enter_with(900)
    house.keeper.restart(session)
    house.ask(session, 1000)
    assert (session.expected_tokens, session.distance_tokens) == (0, 0)


def test_a_session_that_starts_afresh_before_its_second_call_is_fresh_once():
    house = fixed(3)
    session = house.enter()
    house.take(session, 100)
    house.keeper.restart(session)
    assert house.book.fresh == 1
    house.leave(session)
    assert house.book.fresh == 0


def test_who_has_left_does_not_start_afresh():
    house = fixed(3)
    session = house.enter()
    house.leave(session)
    with pytest.raises(UsageError, match="open another one"):
        house.keeper.restart(session)


# --- what the caches were asked to hold


def test_a_turn_tells_what_all_used_since_the_last_one_of_its_session():
    house = fixed(9)
    first, second, third = (house.enter_with(tokens) for tokens in (100, 200, 300))
    house.take(first, 110, cached=100)
    assert (first.distance_tokens, first.expected_tokens) == (600, 100)
    house.take(second, 200)
    assert second.distance_tokens == 110 + 200 + 300
    house.take(second, 200)
    assert second.distance_tokens == 200
    house.ask(third, 300)
    house.take(first, 110)
    assert first.distance_tokens == 110 + 200 + 300, "one that is at work uses the caches too"


def test_what_a_session_that_left_used_is_used_all_the_same():
    house = fixed(9)
    first, second = house.enter_with(100), house.enter_with(200)
    house.leave(second)
    house.take(first, 100)
    assert first.distance_tokens == 300


def test_a_session_that_leaves_with_a_call_under_way_has_used_the_caches_until_that_ends():
    house = fixed(9)
    first, second = house.enter_with(100), house.enter_with(200)
    house.ask(second, 250)
    house.leave(second)
    house.take(first, 100)
    house.end(second)
    house.take(first, 100)
    assert first.distance_tokens == 350


@pytest.mark.parametrize("with_a_call_under_way", [False, True])
def test_of_the_sessions_that_left_not_all_are_remembered(with_a_call_under_way):
    house = fixed(9)
    for _ in range(GONE + 10):
        session = house.enter()
        house.ask(session, 1)
        if with_a_call_under_way:
            house.leave(session)
        house.end(session)
        if not with_a_call_under_way:
            house.leave(session)
    last = house.enter()
    house.ask(last, 1)
    assert last.distance_tokens == GONE


def test_only_the_prompt_is_expected_since_a_client_may_leave_out_parts_of_the_reply():
    house = fixed(9)
    session = house.enter()
    house.take(session, 100, reply=5_000)
    house.ask(session, 300)
    assert session.expected_tokens == 100


def test_a_call_under_way_when_its_endpoint_goes_is_not_expected_to_find_anything():
    house = fixed(9)
    house.tell(a=ServerLoad(), b=ServerLoad())
    session = house.enter_with(100)
    house.ask(session, 120)
    assert session.expected_tokens == 100
    house.tell(b=ServerLoad())
    assert session.expected_tokens == 0
    house.end(session, 120, cached=0, url=B)
    house.take(session, 130, url=B)
    assert session.expected_tokens == 120
