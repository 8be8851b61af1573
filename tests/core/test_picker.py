"""The tree over the accounts: always the least loaded, and few steps to find it."""

from __future__ import annotations

import random

import pytest

from scavenge.core.picker import Account, Picker


def make(*limits):
    picker = Picker()
    for number, limit in enumerate(limits):
        account = Account(f"u{number}")
        picker.add(account)
        picker.resize(account, limit, None)
    return picker


def test_an_empty_picker_has_nothing_to_choose():
    assert Picker().choose(1, frozenset()) is None
    assert Picker().choose(2, frozenset()) is None
    assert list(Picker().able_by_load(1, frozenset())) == []


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_the_least_loaded_that_fits_whatever_happened_before(seed):
    rnd = random.Random(seed)
    picker = Picker()
    for step in range(300):
        accounts = list(picker.accounts.values())
        match rnd.choice("aarlllc"):
            case "a":
                picker.add(Account(f"u{step}", turn=step))
                picker.resize(picker.accounts[f"u{step}"], rnd.choice([0, 1, 3, 8]), None)
            case "r" if accounts:
                account = rnd.choice(accounts)
                account.lent = 0
                picker.resize(account, 0, None)
                picker.drop(account)
            case "l" if accounts:
                account = rnd.choice(accounts)
                account.lent = rnd.randint(0, account.limit)
                account.turn = step
                picker.refresh(account)
            case "c":
                barred = frozenset(account.url for account in accounts if rnd.random() < 0.4)
                slots = rnd.choice([1, 1, 2, 5])
                assert picker.choose(slots, barred) is best(accounts, slots, barred)
                assert picker.able(slots) == sum(account.reach >= slots for account in accounts)


def best(accounts, slots, barred):
    usable = [account for account in accounts if account.url not in barred and account.fits(slots)]
    within = [account for account in usable if account.room >= slots]
    return min(within or usable, key=lambda account: (account.load, account.turn, account.leaf), default=None)


def test_those_that_can_hold_a_group_come_the_least_loaded_first():
    picker = make(4, 4, 0, 4)
    for url, lent in {"u0": 3, "u1": 4, "u3": 1}.items():
        picker.accounts[url].lent = lent
        picker.refresh(picker.accounts[url])
    assert [account.url for account in picker.able_by_load(9, frozenset(["u0"]))] == ["u3", "u1"]


def test_finding_the_best_of_a_thousand_looks_at_few_of_them():
    picker = make(*[8] * 1000)
    barred = frozenset(f"u{number}" for number in range(3))
    seen = CountingSet(barred)
    assert picker.choose(1, seen).url == "u3"
    assert picker.choose(9, seen).url == "u3"
    assert seen.looked <= 2 * len(barred) + 4


class CountingSet(frozenset):
    looked = 0

    def __contains__(self, item):
        type(self).looked += 1
        return super().__contains__(item)


def test_an_avoid_set_binds_unless_it_covers_all_that_can_hold_the_slots():
    picker = make(2, 2, 0)
    assert not picker.binds(frozenset(), 1)
    assert picker.binds(frozenset(["u0"]), 1)
    assert picker.binds(frozenset(["u0", "u2", "unknown"]), 1)
    assert not picker.binds(frozenset(["u0", "u1"]), 1)
