"""The doorkeeper under arbitrary sessions, calls and changes, beside a model that adds everything up anew."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scavenge.core.sessions.book import Stage
from scavenge.core.sessions.doorkeeper import COLD_AFTER_S, Doorkeeper
from scavenge.core.sessions.policy import Capacity
from scavenge.core.sessions.table import SESSION_POLICIES
from scavenge.signals import ServerLoad
from scavenge.types import Usage
from session_kit import A, B

SIZES = st.sampled_from([0, 1, 40, 100, 300, 2_000])
POLICIES = {
    "budget": {"tokens": 500},
    "budget, learning": {"start_tokens": 500},
    "concur": {"start": 2},
    "follow": {"ahead": 1},
    "fixed": {"limit": 3},
    "off": {},
}


class DoorkeeperMachine(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(sorted(POLICIES)), slots=st.integers(0, 3))
    def build(self, policy, slots):
        kind = SESSION_POLICIES[policy.partition(",")[0]]
        self.keeper = Doorkeeper(kind.create(kind.config(**POLICIES[policy])))
        self.book = self.keeper.book
        self.now = 0.0
        self.door, self.live, self.gone = [], [], []
        self.paused, self.working = [], []
        self.settled = True
        self.set_slots(slots)

    # --- sessions

    @rule(age=st.integers(0, 5))
    def knock(self, age):
        self.door.append(self.keeper.knock(age))
        self.settled = False

    @precondition(lambda self: self.door)
    @rule(data=st.data())
    def withdraw(self, data):
        session = data.draw(st.sampled_from(self.door))
        self.keeper.withdraw(session)
        self.door.remove(session)
        self.gone.append(session)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def leave(self, data):
        self._leave(data.draw(st.sampled_from(self.live)))

    def _leave(self, session):
        withdrawn = self.keeper.leave(session, self.now)
        assert set(withdrawn) == {call for call in self.paused if call.session is session}
        self.paused = [call for call in self.paused if call.session is not session]
        self.live.remove(session)
        self.gone.append(session)
        self.settled = False

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def restart(self, data):
        self.keeper.restart(data.draw(st.sampled_from(self.live)))
        self.settled = False

    # --- calls

    @precondition(lambda self: self.live)
    @rule(data=st.data(), prompt=SIZES)
    def ask(self, data, prompt):
        session = data.draw(st.sampled_from(self.live))
        first, beside = not session.calls, session in self.working
        call = self.keeper.ask(session, prompt, self.now)
        assert call.may_go or not (first or beside or session is self._oldest()), "held for no reason"
        (self.working if call.may_go else self.paused).append(session if call.may_go else call)
        self.settled = False

    @precondition(lambda self: self.paused)
    @rule(data=st.data())
    def drop(self, data):
        call = data.draw(st.sampled_from(self.paused))
        self.keeper.drop(call, self.now)
        self.paused.remove(call)
        self.settled = False

    @precondition(lambda self: self.working)
    @rule(
        data=st.data(),
        usage=st.none() | st.builds(Usage, SIZES | st.none(), SIZES | st.none(), SIZES | st.none()),
        first_token_s=st.sampled_from([None, 0.0, 1.0]),
        url=st.sampled_from([A, B]),
    )
    def end(self, data, usage, first_token_s, url):
        session = data.draw(st.sampled_from(self.working))
        self.keeper.end(session, usage, first_token_s, url, self.now)
        self.working.remove(session)
        self.settled = False

    # --- the world

    @rule(slots=st.integers(0, 3))
    def set_slots(self, slots):
        self.keeper.set_slots(slots, self.now)
        self.settled = False

    @rule(
        urls=st.sets(st.sampled_from([A, B])),
        load=st.builds(
            ServerLoad,
            kv_usage=st.sampled_from([None, 0.0, 1.0]),
            kv_tokens=st.sampled_from([None, 0, 400, 4_000]),
            slots=st.sampled_from([None, 0, 1, 2]),
            prefix_queries=st.sampled_from([None, 0.0, 100.0]),
            prefix_hits=st.sampled_from([None, 0.0, 100.0]),
        ),
    )
    def set_capacity(self, urls, load):
        self.keeper.set_capacity(Capacity(dict.fromkeys(urls, load)), self.now)
        self.settled = False

    @rule(seconds=st.sampled_from([1.0, 30.0, COLD_AFTER_S]))
    def wait(self, seconds):
        self.now += seconds
        self.settled = False

    @rule()
    def settle(self):
        came_in, calls = self.keeper.grant(self.now)
        order = [session.key for session in came_in]
        assert order == sorted(order)
        for session in came_in:
            self.door.remove(session)
            self.live.append(session)
        for call in calls:
            self.paused.remove(call)
            self.working.append(call.session)
        assert self.keeper.grant(self.now) == ([], []), "somebody waited who might go"
        self.settled = True

    # --- what must be true

    def _oldest(self):
        return min(self.live, key=lambda session: session.key, default=None)

    @invariant()
    def everybody_is_in_one_place(self):
        assert {session.stage for session in self.door} <= {Stage.DOOR}
        assert {session.stage for session in self.live} <= {Stage.LIVE}
        assert {session.stage for session in self.gone} <= {Stage.GONE}
        assert (self.book.waiting, self.book.live) == (len(self.door), len(self.live))
        assert self.book.paused == len({call.session for call in self.paused})
        assert all(self.working.count(session) == session.working for session in self.live)
        assert not any(call.may_go or call.session.working for call in self.paused)

    @invariant()
    def the_sums_are_those_of_the_sessions(self):
        assert self.book.counted_tokens == sum(session.counted_tokens for session in self.live)
        assert self.book.counted == sum(session.counted_tokens > 0 for session in self.live)
        assert self.book.fresh == sum(session.calls < 2 for session in self.live)
        for session in self.live:
            older = [one.counted_tokens for one in self.live if one.key < session.key]
            assert self.book.older(session) == (sum(tokens > 0 for tokens in older), sum(older))
            assert session.counted_tokens == 0 or session.calls >= 2, "it counts before its second call"
            assert session.counted_tokens > 0 or session.calls < 2 or session.cold

    @invariant()
    def nobody_waits_who_may_go(self):
        if not self.settled:
            return
        oldest, waiting = self._oldest(), {call.session for call in self.paused}
        assert oldest not in waiting
        assert not any(self.keeper.policy.may_continue(session, self.book, self.now) for session in waiting)
        if self.door and self.keeper.slots:
            assert not self.keeper.policy.may_start(self.book, self.now)

    def teardown(self):
        """Everything ends: what is under way ends, and who is no longer held leaves."""
        if not hasattr(self, "keeper"):
            return
        self.set_slots(1)
        while self.door or self.live:
            self.settle()
            for session in self.working:
                self.keeper.end(session, None, None, None, self.now)
            self.working.clear()
            waiting = {call.session for call in self.paused}
            done = [session for session in self.live if session not in waiting]
            assert done, "all are stuck"
            for session in done:
                self._leave(session)
        assert (self.book.counted_tokens, self.book.fresh) == (0, 0)


TestDoorkeeperMachine = DoorkeeperMachine.TestCase
