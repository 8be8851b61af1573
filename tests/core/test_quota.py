"""What one account allows on all of its endpoints together, and who gets what of it."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.gates.quota import Quota
from scavenge.signals import Ended, Ending


@attrs.define
class Account:
    """A quota, told of requests that end."""

    quota: Quota = attrs.field(factory=Quota)
    now: float = 1000.0

    def end(self, in_flight: int, ending: Ending = Ending.OK, age_s: float = 0.0) -> bool:
        ended = Ended(ending, self.now - age_s, 1, 1.0, retry_after_s=600.0)
        return self.quota.observe(ended, in_flight, self.now)

    def refused(self, in_flight: int, age_s: float = 0.0) -> bool:
        return self.end(in_flight, Ending.RATE_LIMITED, age_s)


def bounded(bound: int) -> Quota:
    account = Account()
    account.refused(-(-bound * 5 // 4))
    assert account.quota.bound == bound
    return account.quota


def test_nothing_bounds_an_account_before_its_first_refusal():
    account = Account()
    assert not any(account.end(500, ending) for ending in Ending if ending is not Ending.RATE_LIMITED)
    assert account.quota.bound is None
    assert account.quota.share({"a": 400}, {"b": 1}) is None


def test_a_refusal_bounds_all_endpoints_together_below_what_was_in_flight():
    account = Account()
    assert account.refused(100)
    assert account.quota.bound == 80


def test_a_burst_is_one_cut_and_what_was_let_in_before_it_cuts_no_more():
    account = Account()
    account.refused(100)
    assert not any(account.refused(99) for _ in range(99))
    account.now += 600.0
    assert not account.refused(80, age_s=601.0)
    assert account.refused(500)
    assert account.quota.bound == 64


def test_the_bound_grows_by_clean_rounds_to_just_below_what_was_refused():
    account = Account()
    account.refused(100)
    account.now += 1.0
    moves = [account.end(80) for _ in range(80)]
    assert moves == [False] * 79 + [True]
    assert account.quota.bound == 84
    for _ in range(2000):
        account.end(97)
    assert account.quota.bound == 97


def test_replies_without_the_bound_in_use_or_from_before_the_cut_do_not_raise_it():
    account = Account()
    account.refused(100)
    account.now += 30.0
    assert not any(account.end(60) for _ in range(500))
    assert not any(account.end(80, age_s=30.5) for _ in range(500))


def test_a_round_begins_anew_with_a_cut():
    account = Account()
    account.refused(100)
    account.now += 15.0
    assert not any(account.end(80) for _ in range(79))
    account.refused(80)
    assert [account.end(64) for _ in range(64)] == [*[False] * 63, True]


def test_a_bound_of_one_grows():
    account = Account()
    account.refused(0)
    assert account.quota.bound == 1
    account.now += 500.0
    assert [account.end(1) for _ in range(4)] == [False, False, False, True]


def test_who_has_no_work_leaves_its_part_to_the_others():
    assert bounded(40).share({}, {"a": 100, "b": 100}) == {"a": 20, "b": 20}
    assert bounded(40).share({"c": 0}, {"a": 100, "b": 5}) == {"a": 35, "b": 5, "c": 0}
    assert bounded(40).share({"c": 10}, {"a": 100}) == {"a": 30, "c": 10}


def test_who_holds_too_much_gives_it_back_before_others_take_it():
    quota = bounded(40)
    assert quota.share({"a": 40}, {"a": 9, "b": 100}) == {"a": 20, "b": 1}
    assert quota.share({"a": 30}, {"a": 9, "b": 100}) == {"a": 20, "b": 10}
    assert quota.share({"a": 20, "b": 15}, {"a": 9, "b": 100}) == {"a": 20, "b": 20}


def test_who_holds_least_takes_first_what_is_free():
    shares = bounded(40).share({"a": 10, "c": 25}, {"a": 20, "b": 20, "c": 1})
    assert shares == {"a": 10, "b": 5, "c": 13}


def test_everybody_with_work_has_one():
    assert bounded(2).share({}, dict.fromkeys("abcde", 3)) == dict.fromkeys("abcde", 1)


NUMBERS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 60))


@given(st.integers(1, 100), NUMBERS, NUMBERS)
def test_shares_let_in_no_more_than_the_bound_and_leave_nothing_of_it(bound, lent, waiting):
    shares = bounded(bound).share(lent, waiting)
    assert shares is not None
    assert shares.keys() == lent.keys() | waiting.keys()
    held, used = sum(lent.values()), sum(max(lent.get(one, 0), share) for one, share in shares.items())
    with_work = sum(waiting[one] > 0 and not lent.get(one) for one in waiting)
    assert used <= max(bound, held) + with_work
    wanted = held + sum(waiting.values())
    assert used >= min(bound, wanted)
    for one, number in waiting.items():
        assert number == 0 or shares[one] >= 1
        assert shares[one] <= lent.get(one, 0) + number
