"""The rules of the ledger, one by one."""

from __future__ import annotations

import pytest

from scavenge.core.ledger import Ask, SlotLedger
from scavenge.core.pace import Line
from scavenge.errors import UsageError


def make(**limits):
    ledger = SlotLedger()
    for url, limit in limits.items():
        ledger.join(url, *(limit if isinstance(limit, tuple) else (limit,)))
    return ledger


def take(ledger, *asks):
    """Enqueue the asks, and give the urls that were granted, in the order of the queue."""
    for ask in asks:
        ledger.enqueue(ask)
    return [lease.url for _, lease in ledger.grant()]


def test_the_least_loaded_endpoint_is_chosen_by_the_part_of_its_limit_that_is_lent():
    ledger = make(small=2, large=4)
    assert take(ledger, *[Ask((n,)) for n in range(3)]) == ["small", "large", "large"]
    assert take(ledger, *[Ask((n,)) for n in range(3)]).count("large") == 2
    assert (ledger.lent("small"), ledger.lent("large")) == (2, 4)


def with_lines(ledger, **lines):
    for url, line in lines.items():
        ledger.set_line(url, line)
    return ledger


FAST, SLOW = Line(1 / 64, 1 / 1024), Line(1 / 8, 1 / 8)


def test_a_request_goes_where_it_is_expected_to_be_done_first_however_full_that_is():
    ledger = with_lines(make(slow=8, fast=32), fast=FAST, slow=SLOW)
    assert take(ledger, *[Ask((n,)) for n in range(32)]) == ["fast"] * 32
    assert take(ledger, Ask((40,))) == ["slow"], "nobody waits while a slot is free"


def test_endpoints_of_equal_speed_are_filled_evenly_until_one_is_full():
    ledger = with_lines(make(large=64, small=16), large=FAST, small=FAST)
    assert take(ledger, *[Ask((n,)) for n in range(32)]) == ["large", "small"] * 16
    assert take(ledger, *[Ask((n,)) for n in range(49)]) == ["large"] * 48


def test_endpoints_of_equal_speed_take_turns():
    ledger = with_lines(make(a=4, b=4), a=FAST, b=FAST)
    served = []
    for number in range(4):
        served += take(ledger, Ask((number,)))
        ledger.give_back(ledger.leases_on(served[-1])[0])
    assert served == ["a", "b", "a", "b"]


def test_an_endpoint_of_unknown_speed_gets_one_request_that_tells_it_and_more_only_when_the_others_are_full():
    ledger = with_lines(make(slow=2, new=4, newer=1), slow=SLOW)
    assert take(ledger, *[Ask((n,)) for n in range(6)]) == ["new", "newer", "slow", "slow", "new", "new"]
    ledger.give_back(ledger.leases_on("slow")[0])
    ledger.set_line("new", FAST)
    assert take(ledger, *[Ask((n,)) for n in range(2)]) == ["new", "slow"]


def test_without_any_speed_the_load_decides():
    ledger = with_lines(make(a=4, b=2), a=FAST, b=SLOW)
    with_lines(ledger, a=None, b=None)
    assert take(ledger, *[Ask((n,)) for n in range(4)]) == ["a", "b", "a", "b"]


def test_an_endpoint_that_joins_anew_has_no_speed_until_it_is_told_again():
    ledger = with_lines(make(a=4, b=4), a=FAST, b=SLOW)
    take(ledger, Ask((0,), prefer="a"))
    ledger.leave("a")
    ledger.join("a", 4)
    assert take(ledger, Ask((1,))) == ["b"], "its one request still runs"


def test_the_speed_changes_nothing_for_who_prefers_or_avoids_an_endpoint():
    ledger = with_lines(make(fast=4, slow=4), fast=FAST, slow=SLOW)
    assert take(ledger, Ask((0,), prefer="slow"), Ask((1,), avoid=frozenset(["fast"]))) == ["slow", "slow"]


def test_the_endpoint_that_is_kept_free_is_one_with_room_though_a_faster_one_is_full():
    ledger = with_lines(make(fast=2, slow=2), fast=FAST, slow=SLOW)
    take(ledger, *[Ask((0,), prefer="fast")] * 2, Ask((0,), prefer="slow"))
    assert take(ledger, Ask((1,), 2)) == []
    assert ledger.kept.account.url == "slow"


def test_a_group_before_the_one_that_an_idle_endpoint_is_kept_for_goes_where_it_stays_within_the_limit():
    ledger = make(small=2, large=8)
    take(ledger, Ask((0,), prefer="small"), *[Ask((0,), prefer="large")] * 5)
    assert take(ledger, Ask((5,), 4)) == []
    assert ledger.kept.account.url == "small"
    ledger.give_back(ledger.leases_on("small")[0])
    assert take(ledger, Ask((1,), 3)) == ["large", "small"]


def test_equally_loaded_endpoints_take_turns_and_a_newcomer_waits_for_its_own():
    ledger = make(a=1, b=1)
    leases = []

    def turn():
        ledger.enqueue(Ask((0,)))
        ((_, lease),) = ledger.grant()
        ledger.give_back(lease)
        leases.append(lease.url)

    turn(), turn(), turn()
    ledger.join("new", 1)
    turn(), turn(), turn(), turn()
    assert leases == ["a", "b", "a", "b", "a", "new", "b"]


def test_a_preferred_endpoint_is_taken_when_it_fits_and_only_then():
    ledger = make(a=1, b=9)
    assert take(ledger, Ask((1,), prefer="a")) == ["a"]
    assert take(ledger, Ask((1,), prefer="a"), Ask((1,), prefer="unknown")) == ["b", "b"]


def test_an_avoided_endpoint_is_not_preferred():
    assert take(make(a=1, b=9), Ask((1,), avoid=frozenset("a"), prefer="a")) == ["b"]


def test_an_avoid_set_binds_while_another_open_endpoint_exists_though_it_is_full():
    ledger = make(a=2, b=1)
    assert take(ledger, Ask((0,), avoid=frozenset("a")), Ask((1,), avoid=frozenset("a"))) == ["b"]
    assert ledger.waiting == 1
    ledger.set_limit("b", 0)
    assert take(ledger) == ["a"]


def test_an_avoid_set_does_not_bind_where_nothing_else_can_hold_the_group():
    ledger = make(a=4, b=(1, 2))
    assert take(ledger, Ask((1,), 3, avoid=frozenset("a"))) == ["a"]


def test_waiting_asks_avoid_again_when_another_endpoint_opens():
    ledger = make(a=1)
    assert take(ledger, Ask((0,)), Ask((1,), avoid=frozenset("a"))) == ["a"]
    ledger.join("b", 0)
    ledger.set_limit("b", 1)
    assert take(ledger) == ["b"]


def test_a_request_that_is_sent_again_keeps_its_place():
    ledger = make(a=0)
    later, again = ledger.enqueue(Ask((2, 1))), ledger.enqueue(Ask((1, 7)))
    assert ledger.tickets() == [again, later]


def test_a_shrunk_endpoint_lends_nothing_until_it_drained():
    ledger = make(a=4)
    ledger.enqueue(Ask((1,), 4))
    ((_, lease),) = ledger.grant()
    ledger.set_limit("a", 2)
    assert (ledger.lent("a"), ledger.free("a")) == (4, 0)
    assert take(ledger, Ask((2,))) == []
    ledger.give_back(lease)
    assert take(ledger) == ["a"]


def test_an_endpoint_that_comes_back_while_old_leases_run_has_its_old_count():
    ledger = make(a=2)
    take(ledger, Ask((1,)), Ask((2,)))
    old = ledger.leases_on("a")
    ledger.leave("a")
    assert "a" not in ledger
    ledger.join("a", 3)
    assert (ledger.lent("a"), ledger.free("a")) == (2, 1)
    for lease in old:
        ledger.give_back(lease)
    assert (ledger.lent("a"), ledger.free("a")) == (0, 3)


def test_an_endpoint_that_left_is_forgotten_with_its_last_lease():
    ledger = make(a=1)
    take(ledger, Ask((1,)))
    ledger.leave("a")
    assert [account.url for account in ledger] == ["a"]
    ledger.give_back(ledger.leases_on("a")[0])
    assert list(ledger) == []
    assert (ledger.lent("a"), ledger.free("a"), ledger.leases_on("a")) == (0, 0, ())


def test_a_limit_above_the_hard_cap_counts_as_the_cap():
    assert make(a=(9, 2)).free("a") == 2


@pytest.mark.parametrize("hard_cap", [None, 8])
def test_a_group_above_the_limit_but_within_the_cap_starts_on_an_idle_endpoint(hard_cap):
    ledger = make(a=(2, hard_cap))
    take(ledger, Ask((0,)))
    assert take(ledger, Ask((1,), 8)) == []
    assert take(ledger, Ask((2,))) == [], "the endpoint is kept free for the group"
    ledger.give_back(ledger.leases_on("a")[0])
    assert take(ledger) == ["a"]
    assert ledger.lent("a") == 8


def test_a_group_goes_where_it_stays_within_the_limit_though_an_idle_endpoint_is_less_loaded():
    ledger = make(small=2, large=8)
    take(ledger, Ask((0,), prefer="large"))
    assert take(ledger, Ask((1,), 4)) == ["large"]


def test_a_group_above_every_cap_waits_and_keeps_nothing_free():
    ledger = make(a=(1, 2), b=(1, 2))
    assert take(ledger, Ask((0,), 3), Ask((1,)), Ask((2,))) == ["a", "b"]
    assert ledger.kept is None
    assert (ledger.fits_ever(2), ledger.fits_ever(3)) == (True, False)


def test_fits_ever_counts_a_shut_endpoint_but_not_one_that_left():
    ledger = make(a=(0, 4))
    assert ledger.fits_ever(4)
    ledger.leave("a")
    assert not ledger.fits_ever(1)


def test_singles_behind_a_group_use_every_endpoint_but_the_one_that_is_kept_free():
    ledger = make(a=2, b=2)
    take(ledger, Ask((0,)), Ask((0,)))
    assert take(ledger, Ask((1,), 2)) == []
    kept = ledger.kept.account.url
    other = "b" if kept == "a" else "a"
    assert take(ledger, Ask((2,)), Ask((3,))) == [other]
    assert take(ledger, Ask((0,))) == [kept], "whoever came before the group is not kept out"


def test_the_endpoint_that_is_kept_free_stays_the_same_until_it_no_longer_qualifies():
    ledger = make(a=2, b=2)
    take(ledger, Ask((0,)), Ask((0,)))
    take(ledger, Ask((1,), 2))
    kept = ledger.kept.account.url
    ledger.join("c", 1, 1)
    take(ledger)
    assert ledger.kept.account.url == kept
    ledger.set_limit(kept, 0)
    take(ledger)
    assert ledger.kept.account.url != kept


def test_a_group_withdrawn_no_longer_keeps_an_endpoint_free():
    ledger = make(a=2)
    take(ledger, Ask((0,)))
    group = ledger.enqueue(Ask((1,), 2))
    assert take(ledger, Ask((2,))) == []
    ledger.withdraw(group)
    assert take(ledger) == ["a"]


def test_an_older_group_takes_over_from_the_one_that_an_endpoint_is_kept_free_for():
    ledger = make(a=3)
    take(ledger, Ask((0,)))
    take(ledger, Ask((5,), 3))
    older = ledger.enqueue(Ask((1,), 3))
    ledger.grant()
    assert ledger.kept.ticket is older


def test_an_endpoint_that_left_and_came_back_between_two_grants_serves_whom_it_was_kept_free_for():
    ledger = make(a=2, b=2)
    take(ledger, Ask((0,), prefer="a"), Ask((0,), prefer="b"), Ask((1,), 2))
    kept = ledger.kept.account.url
    ledger.give_back(ledger.leases_on(kept)[0])
    ledger.leave(kept)
    ledger.join(kept, 2)
    assert take(ledger) == [kept]


def test_an_older_group_that_needs_another_endpoint_opens_the_one_that_was_kept_free():
    ledger = make(a=(2, 2), b=(4, 4))
    take(ledger, Ask((0,), prefer="a"), *[Ask((0,), prefer="b")] * 3)
    assert take(ledger, Ask((5,), 2), Ask((6,)), Ask((7,))) == ["b"]
    assert ledger.kept.account.url == "a"
    assert take(ledger, Ask((1,), 3)) == ["a"]
    assert ledger.kept.account.url == "b"


def test_a_group_that_may_avoid_again_moves_to_the_endpoint_that_makes_it_possible():
    ledger = make(a=(2, 2), b=(2, 2))
    take(ledger, Ask((0,), prefer="a"), Ask((0,), prefer="b"))
    ledger.set_limit("b", 0, 2)
    assert take(ledger, Ask((1,), 2, avoid=frozenset("a")), Ask((2,))) == []
    assert ledger.kept.account.url == "a"
    ledger.set_limit("b", 2, 2)
    assert take(ledger) == ["a"]
    assert ledger.kept.account.url == "b"


def test_whoever_need_not_avoid_any_longer_starts_though_those_before_it_still_must():
    ledger = make(a=1, b=1, c=1)
    take(ledger, Ask((0,), prefer="b"), Ask((0,), prefer="c"))
    ledger.enqueue(Ask((1,), avoid=frozenset("a")))
    second = ledger.enqueue(Ask((2,), avoid=frozenset("ab")))
    assert ledger.grant() == []
    ledger.set_limit("c", 0)
    assert [(ticket, lease.url) for ticket, lease in ledger.grant()] == [(second, "a")]


def test_nobody_is_passed_over_when_everyone_avoids_the_endpoint_that_has_room():
    ledger = make(a=1, b=1)
    take(ledger, Ask((0,), prefer="b"))
    for number in range(50):
        ledger.enqueue(Ask((1, number), avoid=frozenset(["a", f"x{number}"])))
    free_to_go = ledger.enqueue(Ask((2,)))
    assert [ticket for ticket, _ in ledger.grant()] == [free_to_go]


@pytest.mark.parametrize("slots", [0, -1])
def test_an_ask_for_no_slots_is_refused(slots):
    with pytest.raises(UsageError, match=f"slots: expected an integer ≥ 1, got {slots}"):
        Ask((1,), slots)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ledger: ledger.join("a", 1), "a has joined already"),
        (lambda ledger: ledger.join("new", -1), "new: limit: expected an integer ≥ 0, got -1"),
        (lambda ledger: ledger.join("new", 1, 0), "new: hard_cap: expected an integer ≥ 1 or None, got 0"),
        (lambda ledger: ledger.set_limit("a", -1), "a: limit: expected"),
        (lambda ledger: ledger.set_limit("new", 1), "new is not an endpoint of this pool"),
        (lambda ledger: ledger.set_line("new", None), "new is not an endpoint of this pool"),
        (lambda ledger: ledger.leave("new"), "new is not an endpoint of this pool"),
        (lambda ledger: ledger.give_back(make_lease(make(a=1))), "a lease on a is given back that is not held"),
        (lambda ledger: ledger.give_back(make_lease(make(z=1))), "a lease on z is given back that is not held"),
        (lambda ledger: ledger.withdraw(make(a=0).enqueue(Ask((1,)))), "does not wait"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(change, message):
    ledger = make(a=1)
    waiting = ledger.enqueue(Ask((1,))), ledger.enqueue(Ask((2,)))
    ledger.grant()
    with pytest.raises(UsageError, match=message):
        change(ledger)
    assert [(account.url, account.limit, account.lent, account.gone) for account in ledger] == [("a", 1, 1, False)]
    assert ledger.tickets() == [waiting[1]]


def make_lease(ledger):
    ledger.enqueue(Ask((1,)))
    ((_, lease),) = ledger.grant()
    return lease


def test_a_lease_is_given_back_once_and_a_ticket_withdrawn_once():
    ledger = make(a=1)
    lease = make_lease(ledger)
    ledger.give_back(lease)
    with pytest.raises(UsageError, match="give each back once"):
        ledger.give_back(lease)
    ticket = ledger.enqueue(Ask((1,)))
    ledger.withdraw(ticket)
    with pytest.raises(UsageError, match="granted or withdrawn before"):
        ledger.withdraw(ticket)
