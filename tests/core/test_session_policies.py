"""The session policies that know no contexts: fixed, follow, off and concur; and the table of all."""

from __future__ import annotations

import pytest

from scavenge.core.sessions.book import Stage
from scavenge.core.sessions.concur import Concur, ConcurSettings
from scavenge.core.sessions.fixed import FixedSessions, FixedSessionsSettings
from scavenge.core.sessions.follow import Follow, FollowSettings
from scavenge.core.sessions.off import Off, OffSettings
from scavenge.core.sessions.policy import MOST_LIVE
from scavenge.core.sessions.table import SESSION_POLICIES
from scavenge.signals import ServerLoad
from session_kit import House


def live_of(house, sessions):
    return sum(session.stage is Stage.LIVE for session in sessions)


@pytest.mark.parametrize("name", SESSION_POLICIES)
def test_each_policy_of_the_table_is_made_from_its_settings_and_pauses_nobody_who_is_alone(name):
    kind = SESSION_POLICIES[name]
    settings = kind.config(limit=3) if name == "fixed" else kind.config()
    house = House(kind.create(settings))
    session = house.enter()
    for _ in range(3):
        house.take(session, 1_000_000, reply=5, cached=3, first_token_s=0.1)
    house.tell_kv(100)
    house.leave(session)
    assert house.policy.view().reason


def test_fixed_has_so_many_sessions_and_never_pauses_one():
    house = House(FixedSessions(FixedSessionsSettings(2)))
    sessions = [house.knock() for _ in range(3)]
    assert live_of(house, sessions) == 2
    for session in sessions[:2] * 3:
        house.take(session, 1_000_000)
    assert house.policy.view().limit == 2


def test_follow_has_a_few_sessions_more_than_slots_and_takes_no_place_away():
    house = House(Follow(FollowSettings()), slots=2)
    sessions = [house.knock() for _ in range(9)]
    assert (live_of(house, sessions), house.policy.view().limit) == (7, 7)
    house.set_slots(1)
    assert (live_of(house, sessions), house.policy.view().limit) == (7, 6)
    for _ in range(2):
        house.take(sessions[6], 1_000_000)
    house.leave(sessions[0])
    assert sessions[7].stage is Stage.DOOR
    house.set_slots(0)
    assert house.policy.view().limit == 0


def test_follow_admits_up_to_its_limit_and_so_many_ahead_as_it_is_told():
    house = House(Follow(FollowSettings(ahead=0)), slots=2)
    sessions = [house.knock() for _ in range(3)]
    assert live_of(house, sessions) == 2
    for session in sessions[:2] * 2:
        house.take(session, 10)
    assert house.ask(sessions[1], 10)


def test_off_holds_nobody():
    house = House(Off(OffSettings()), slots=1)
    sessions = [house.enter() for _ in range(50)]
    for session in sessions * 2:
        house.take(session, 1_000_000)
    assert house.policy.view().limit == MOST_LIVE


# --- concur


def concur(**settings):
    house = House(Concur(ConcurSettings(**settings)))
    house.sessions = [house.knock() for _ in range(20)]
    return house


def load(usage, queries=None, hits=None):
    return ServerLoad(kv_usage=usage, prefix_queries=queries, prefix_hits=hits)


def after(house, seconds, *loads):
    house.now += seconds
    house.tell(**dict(zip("ab", loads, strict=False)))
    return house.policy.view().limit


def test_concur_widens_its_window_while_the_cache_is_underused_and_the_window_binds():
    house = concur()
    assert live_of(house, house.sessions) == 4
    assert after(house, 0, load(0.1)) == 6
    assert live_of(house, house.sessions) == 6
    assert after(house, 5, load(0.1)) == 6, "not before its interval has passed"
    assert after(house, 5, load(0.1)) == 8
    assert house.policy.view().reason == "underused"


def test_concur_does_not_widen_a_window_that_nobody_waits_for():
    house = House(Concur(ConcurSettings()))
    house.enter()
    assert [after(house, 10, load(0.0)) for _ in range(3)] == [4, 4, 4]


def test_concur_cuts_its_window_when_usage_is_high_and_hits_are_few_and_pauses_the_youngest():
    house = concur(start=4)
    for session in house.sessions[:4]:
        house.take(session, 10)
        house.take(session, 10)
    after(house, 10, load(0.3, 0, 0))
    assert after(house, 10, load(0.6, 100, 60)) == 2
    assert [house.ask(session, 10) for session in house.sessions[:4]] == [True, True, False, False]
    assert house.policy.view().reason == "few hits"


@pytest.mark.parametrize(("usage", "hits"), [(0.6, 80), (0.3, 10), (0.5, 10), (0.2, 90)])
def test_concur_holds_in_between(usage, hits):
    house = concur()
    after(house, 10, load(0.3, 0, 0))
    assert after(house, 10, load(usage, 100, hits)) == 4


def test_concur_never_closes_its_window():
    house = concur()
    for _ in range(5):
        after(house, 10, load(0.9))
    assert house.policy.view().limit == 1


def test_concur_takes_the_mean_usage_of_the_servers_and_the_sum_of_their_counters():
    house = concur()
    after(house, 10, load(0.4, 0, 0), load(0.4, 50, 50))
    assert after(house, 10, load(0.9, 100, 10), load(0.3, 150, 150)) == 2
    assert after(house, 10, load(0.9, 200, 10), load(0.0, 1150, 1150)) == 2


def test_concur_does_not_count_a_counter_that_began_anew():
    house = concur()
    after(house, 10, load(0.4, 1000, 900))
    assert after(house, 10, load(0.6, 10, 9)) == 2, "the usage alone decides"
    assert after(house, 10, load(0.6, 110, 99)) == 2, "nine of ten were hits"


def test_concur_goes_by_the_replies_where_servers_count_no_hits():
    house = concur()
    for session in house.sessions[:4]:
        house.take(session, 100, cached=0)
        house.take(session, 110, cached=100)
    assert after(house, 10, load(0.9)) == 4
    for session in house.sessions[:4]:
        house.take(session, 120, cached=20)
    assert after(house, 10, load(0.9)) == 2


def test_concur_stays_where_it_starts_when_servers_tell_no_usage():
    house = concur()
    assert [after(house, 10, ServerLoad()) for _ in range(3)] == [4, 4, 4]
    assert house.policy.view().reason == "start"


# --- settings


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FixedSessionsSettings(0), "limit: expected an integer from 1 to 10000, got 0"),
        (lambda: FixedSessionsSettings(True), "limit: expected an integer"),
        (lambda: FixedSessionsSettings(2.0), "limit: expected an integer"),
        (lambda: FollowSettings(-1), "ahead: expected an integer"),
        (lambda: ConcurSettings(low_usage=1.5), "low_usage: expected a number from 0 to 1, got 1.5"),
        (lambda: ConcurSettings(high_usage="0.5"), "high_usage: expected a number"),
        (lambda: ConcurSettings(low_usage=0.6), r"low_usage: must not be above high_usage \(0.5\), got 0.6"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(make, said):
    with pytest.raises(ValueError, match=said):
        make()
