"""The ledger against an independent count that walks the whole queue."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scavenge.core.ledger import Ask, SlotLedger
from slot_model import LINES, URLS, SlotModel, run_random_steps

LIMITS = st.integers(0, 5)
CAPS = st.none() | st.integers(1, 6)
ASKS = st.builds(
    Ask,
    order=st.tuples(st.integers(0, 3)),
    slots=st.sampled_from([1, 1, 1, 2, 3, 6]),
    avoid=st.frozensets(st.sampled_from(URLS), max_size=3),
    prefer=st.none() | st.sampled_from(URLS),
)


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.model = SlotModel(SlotLedger())

    @property
    def listed(self):
        return [url for url in URLS if url in self.model.ledger]

    @precondition(lambda self: len(self.listed) < len(URLS))
    @rule(data=st.data(), limit=LIMITS, cap=CAPS)
    def join(self, data, limit, cap):
        self.model.join(data.draw(st.sampled_from([url for url in URLS if url not in self.listed])), limit, cap)

    @precondition(lambda self: self.listed)
    @rule(data=st.data())
    def leave(self, data):
        self.model.leave(data.draw(st.sampled_from(self.listed)))

    @precondition(lambda self: self.listed)
    @rule(data=st.data(), limit=LIMITS, cap=CAPS)
    def set_limit(self, data, limit, cap):
        self.model.set_limit(data.draw(st.sampled_from(self.listed)), limit, cap)

    @precondition(lambda self: self.listed)
    @rule(data=st.data(), line=st.sampled_from(LINES))
    def set_line(self, data, line):
        self.model.set_line(data.draw(st.sampled_from(self.listed)), line)

    @rule(ask=ASKS)
    def enqueue(self, ask):
        self.model.enqueue(ask)

    @precondition(lambda self: self.model.queue)
    @rule(data=st.data())
    def withdraw(self, data):
        self.model.withdraw(data.draw(st.sampled_from(self.model.queue)))

    @precondition(lambda self: self.model.leases)
    @rule(data=st.data())
    def give_back(self, data):
        self.model.give_back(data.draw(st.sampled_from(self.model.leases)))

    @rule()
    def grant(self):
        self.model.grant()

    @invariant()
    def counts_agree(self):
        self.model.check()


TestLedgerMachine = LedgerMachine.TestCase


@pytest.mark.parametrize("seed", range(40))
def test_long_random_lives_of_a_ledger_agree_with_the_model(seed):
    run_random_steps(SlotLedger(), random.Random(seed), steps=250)
