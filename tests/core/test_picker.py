"""The tree over the accounts: always the one where a request is done first, and few steps to find it."""

from __future__ import annotations

import random

import pytest

from scavenge.core.pace import Line
from scavenge.core.picker import Account, Picker
from slot_model import LINES


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
    assert list(Picker().able_by_cost(1, frozenset())) == []


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_the_best_that_fits_whatever_happened_before(seed):
    rnd = random.Random(seed)
    picker = Picker()
    for step in range(300):
        accounts = list(picker.accounts.values())
        match rnd.choice("aarlllsshc"):
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
            case "s" if accounts:
                account = rnd.choice(accounts)
                account.line = rnd.choice(LINES)
                picker.refresh(account)
            case "h" if accounts:
                picker.hide(rnd.choice(accounts), rnd.random() < 0.5)
            case "c":
                barred = frozenset(account.url for account in accounts if rnd.random() < 0.4)
                slots = rnd.choice([1, 1, 2, 5])
                assert picker.choose(slots, barred) is best(accounts, slots, barred)
                assert picker.able(slots) == sum(account.reach >= slots for account in accounts)


def best(accounts, slots, barred):
    usable = [each for each in accounts if each.url not in barred and not each.hidden and each.fits(slots)]
    within = [account for account in usable if account.room >= slots]
    return min(within or usable, key=rank, default=None)


def rank(account):
    if account.line is None:
        return (2 if account.lent else 0, account.lent / account.limit, account.turn, account.leaf)
    return (1, account.line.roughly_at(account.lent + 1), account.turn, account.leaf)


def lend(picker, **lent):
    for url, slots in lent.items():
        picker.accounts[url].lent = slots
        picker.refresh(picker.accounts[url])


def set_line(picker, url, line):
    picker.accounts[url].line = line
    picker.refresh(picker.accounts[url])


def test_those_that_can_hold_a_group_come_the_least_loaded_first():
    picker = make(4, 4, 0, 4)
    lend(picker, u0=3, u1=4, u3=1)
    assert [account.url for account in picker.able_by_cost(9, frozenset(["u0"]))] == ["u3", "u1"]


def test_those_that_can_hold_a_group_come_the_fastest_first_and_the_full_ones_last():
    picker = make(4, 4, 4, 4)
    lend(picker, u0=4, u1=3, u2=2, u3=1)
    for url, base_s in {"u0": 0.1, "u1": 0.2, "u2": 0.3}.items():
        set_line(picker, url, Line(base_s, 0.001))
    assert [account.url for account in picker.able_by_cost(9, frozenset())] == ["u1", "u2", "u3", "u0"]


def test_an_idle_endpoint_takes_a_group_above_its_limit_though_a_faster_one_is_busy():
    picker = make(2, 2, 0)
    set_line(picker, "u0", Line(0.01, 0.001))
    set_line(picker, "u1", Line(5, 0.001))
    lend(picker, u0=1)
    assert picker.choose(8, frozenset()).url == "u1"
    lend(picker, u1=1)
    assert picker.choose(8, frozenset()) is None
    lend(picker, u0=0)
    assert picker.choose(8, frozenset()).url == "u0"


def test_the_one_slot_that_is_free_is_found_behind_a_thousand_faster_ones_that_are_full():
    picker = make(*[1] * 1001)
    for number in range(1001):
        set_line(picker, f"u{number}", Line(2 if number == 700 else 1, 0.001))
    lend(picker, **{f"u{number}": 1 for number in range(1001) if number != 700})
    seen = CountingSet()
    assert picker.choose(1, seen).url == "u700"
    assert seen.looked == 1


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
        self.looked += 1
        return super().__contains__(item)


def test_an_avoid_set_binds_unless_it_covers_all_that_can_hold_the_slots():
    picker = make(2, 2, 0)
    assert not picker.binds(frozenset(), 1)
    assert picker.binds(frozenset(["u0"]), 1)
    assert picker.binds(frozenset(["u0", "u2", "unknown"]), 1)
    assert not picker.binds(frozenset(["u0", "u1"]), 1)
