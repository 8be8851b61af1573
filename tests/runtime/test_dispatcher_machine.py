"""The dispatcher under arbitrary pokes, with letting the tasks run as a rule of its own."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from dispatcher_world import DispatcherWorld, random_life
from scavenge.core.ledger import Ask, SlotLedger
from scavenge.runtime.dispatcher import Dispatcher
from slot_model import LINES, URLS

SOME_URL = st.sampled_from(URLS)


class DispatcherMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.world = DispatcherWorld(Dispatcher(SlotLedger()))
        self.came = 0

    @rule(age=st.integers(0, 2), slots=st.sampled_from([1, 1, 2, 3]), avoid=st.frozensets(SOME_URL, max_size=2))
    def come(self, age, slots, avoid):
        self.came += 1
        self.world.come(Ask((age, self.came), slots, avoid))

    @precondition(lambda self: self.world.some("waiting") or self.world.some("holding"))
    @rule(data=st.data())
    def cancel(self, data):
        alive = self.world.some("waiting") + self.world.some("holding")
        self.world.cancel(alive[data.draw(st.integers(0, len(alive) - 1))])

    @precondition(lambda self: self.world.some("holding"))
    @rule(data=st.data())
    def finish(self, data):
        holding = self.world.some("holding")
        holding[data.draw(st.integers(0, len(holding) - 1))].finish.set()

    @rule(url=SOME_URL, limit=st.integers(0, 4))
    def set_limit(self, url, limit):
        self.world.set_limit(url, limit)

    @rule(url=SOME_URL, line=st.sampled_from(LINES))
    def set_line(self, url, line):
        self.world.set_line(url, line)

    @rule(url=SOME_URL)
    def leave(self, url):
        self.world.leave(url)

    @rule(url=SOME_URL)
    def revoke(self, url):
        self.world.revoke(url)

    @rule()
    def settle(self):
        self.world.let_run()

    def teardown(self):
        with self.world:
            self.world.let_run()
            self.world.end()


TestDispatcherMachine = DispatcherMachine.TestCase


@pytest.mark.parametrize("seed", range(15))
def test_long_random_lives_of_a_dispatcher_lose_nothing(seed):
    random_life(Dispatcher(SlotLedger()), random.Random(seed), steps=150)
