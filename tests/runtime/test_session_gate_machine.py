"""The session gate under arbitrary pokes, with letting the tasks run as a rule of its own."""

from __future__ import annotations

import attrs
import trio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from scavenge.core.sessions.budget import Budget, BudgetSettings
from scavenge.core.sessions.fixed import FixedSessions, FixedSessionsSettings
from scavenge.errors import UsageError
from scavenge.runtime.session_gate import SessionGate, run_session_gate
from scavenge.testing.driver import TrioDriver
from scavenge.types import EndpointId, Url, Usage
from session_kit import place_in

A = Url("http://a/v1")


@attrs.define(eq=False)
class Caller:
    """A task that asks for one call, and ends it when it is told to."""

    session: Session
    state: str = "waiting"
    finish: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope | None = None


@attrs.define(eq=False)
class Session:
    """A task that enters, and leaves when it is told to."""

    age: int
    state: str = "waiting"
    place: object = None
    finish: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope | None = None


class GateMachine(RuleBasedStateMachine):
    @initialize(is_budget=st.booleans())
    def build(self, is_budget):
        policy = Budget(BudgetSettings(tokens=500)) if is_budget else FixedSessions(FixedSessionsSettings(2))
        self.driver = TrioDriver()
        self.gate = SessionGate(EndpointId("pool"), "policy", policy, lambda event: None)
        self.sessions, self.callers = [], []
        self.driver.start(run_session_gate, self.gate)
        self.driver.settle()
        self.gate.set_slots(2)

    # --- tasks

    async def _live(self, session):
        try:
            async with place_in(self.gate, session.age) as session.place:
                session.state = "live"
                await session.finish.wait()
        finally:
            session.state = "gone"

    async def _call(self, caller, prompt):
        place = caller.session.place
        try:
            await self.gate.turn(place, prompt)
            caller.state = "working"
            try:
                await caller.finish.wait()
            finally:
                self.gate.turn_ended(place, Usage(prompt, 10, 0), 0.1, A)
        except UsageError:
            assert caller.session.state == "gone"
        finally:
            caller.state = "over"

    def some(self, kind, *states):
        return [one for one in kind if one.state in states]

    # --- pokes

    @rule(age=st.integers(0, 9))
    def come(self, age):
        session = Session(age)
        self.sessions.append(session)
        session.scope = self.driver.start(self._live, session)

    @precondition(lambda self: self.some(self.sessions, "live"))
    @rule(data=st.data(), prompt=st.sampled_from([10, 200, 400, 900]))
    def call(self, data, prompt):
        caller = Caller(data.draw(st.sampled_from(self.some(self.sessions, "live"))))
        self.callers.append(caller)
        caller.scope = self.driver.start(self._call, caller, prompt)

    @precondition(lambda self: self.some(self.sessions, "live") or self.some(self.callers, "working"))
    @rule(data=st.data())
    def finish(self, data):
        busy = self.some(self.sessions, "live") + self.some(self.callers, "working")
        data.draw(st.sampled_from(busy)).finish.set()

    @precondition(lambda self: self.some(self.sessions + self.callers, "waiting", "live", "working"))
    @rule(data=st.data())
    def cancel(self, data):
        alive = self.some(self.sessions + self.callers, "waiting", "live", "working")
        data.draw(st.sampled_from(alive)).scope.cancel()

    @rule(slots=st.integers(0, 2))
    def set_slots(self, slots):
        self.gate.set_slots(slots)

    @rule(seconds=st.sampled_from([0.0, 0.0, 10.0, 400.0]))
    def settle(self, seconds):
        """Let the tasks run until all wait; then nothing may be lost, and nobody may wait for nothing."""
        self.driver.settle(seconds)
        self.driver.settle()
        live, waiting = self.some(self.sessions, "live"), self.some(self.sessions, "waiting")
        assert (self.gate.taken, self.gate.waiting) == (len(live), len(waiting))
        paused = {caller.session for caller in self.some(self.callers, "waiting")}
        assert self.gate.paused == len(paused)
        for session in live:
            working = [one for one in self.some(self.callers, "working") if one.session is session]
            assert session.place.working == len(working)
            assert not (working and session in paused)
        assert min(live, key=lambda one: one.place.key, default=None) not in paused
        assert not any(one.scope.cancel_called for one in live + waiting), "a cancelled task lives on"
        self.gate.settle()
        assert (self.gate.taken, self.gate.paused) == (len(live), len(paused)), "somebody waited who might go"

    def teardown(self):
        if not hasattr(self, "driver"):
            return
        try:
            self.settle(0.0)
        finally:
            self.driver.close()
        assert (self.gate.taken, self.gate.waiting, self.gate.paused) == (0, 0, 0)


TestGateMachine = GateMachine.TestCase
