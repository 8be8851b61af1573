"""Whatever happens to an endpoint: its room fits its state, something is always due, and it comes back by itself."""

from __future__ import annotations

import copy
from random import Random

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scavenge.core.health import EndpointHealth
from scavenge.core.health_settings import HealthSettings
from scavenge.core.health_state import State
from scavenge.core.trust import Others
from scavenge.types import Busy, Failed, Healthy, Lost, LostCause, Misrouted, Ok, Rejected, Reply, TimedOut

OK = Ok(Reply("4", "stop"))
BLAMELESS = [OK, Rejected("r", 400), Lost("l", LostCause.LATE), Lost("r", LostCause.REVOKED)]
SHORTAGES = [Lost("fd", LostCause.LOCAL), Lost("dns", LostCause.NAMES)]
SILENT = [TimedOut("t"), Lost("l"), Lost("s", LostCause.SILENT), Lost("n", LostCause.NETWORK)]
MISROUTED = [Misrouted("m", 404, curable=True), Misrouted("k", 401)]
BLAMED = [*SILENT, Busy("b"), Busy("b", 429, 5.0), Failed("f", 500), *MISROUTED]
ANSWERS = [Healthy(), Healthy(listed=False), OK, Busy("b"), Failed("f"), Lost("late", LostCause.LOCAL), *MISROUTED]
INTERVAL_S, BACKOFF_MAX_S, ASKED_S, STEP_S = 7.0, 20.0, 5.0, 0.5
SHARES = st.none() | st.floats(0, 1)
OPEN = (State.LIVE, State.PROBATION)


def bound(room: int | None) -> float:
    return float("inf") if room is None else room


class LifeMachine(RuleBasedStateMachine):
    """One endpoint, under a clock that only goes on; the pool's part is played by the rules."""

    @initialize(probe=st.booleans(), eject_after=st.integers(1, 3), seed=st.integers(0, 3))
    def list_it(self, probe: bool, eject_after: int, seed: int) -> None:
        self.now = 0.0
        self.settings = HealthSettings(probe, "/models", INTERVAL_S, eject_after, BACKOFF_MAX_S)
        self.random = Random(seed)
        self.renew()

    @rule()
    def renew(self) -> None:
        """Its settings change: what was known of it is worth nothing."""
        self.health = EndpointHealth.listed(self.settings, self.random, self.now)
        self.under_way = False
        self.served_since_ejected = False

    @rule(seconds=st.floats(0, 40), wakes=st.booleans())
    def wait(self, seconds: float, wakes: bool) -> None:
        before = bound(self.health.room(self.now))
        self.now += seconds
        if wakes:
            self.health.wake(self.now)
            assert bound(self.health.room(self.now)) >= before
            assert (due := self.health.next_wake_at()) is None or due > self.now

    @rule(outcome=st.sampled_from(SHORTAGES))
    def shortage(self, outcome: Lost) -> None:
        before, works = attrs.evolve(self.health), self.health.state in (State.LIVE, State.PROBATION)
        setbacks, doubt = self.health.trust.setbacks, self.health.trust.doubt
        self.health.on_outcome(outcome, self.now)
        assert (self.health.trust.setbacks, self.health.trust.doubt) == (setbacks, doubt)
        assert self.health.state is (State.PAUSED if works else before.state)
        if works:
            assert self.health.after_pause is before.state

    @rule(outcome=st.sampled_from(BLAMELESS))
    def blameless(self, outcome: Ok | Rejected | Lost) -> None:
        before, state = bound(self.health.room(self.now)), self.health.state
        self.health.on_outcome(outcome, self.now)
        assert bound(self.health.room(self.now)) >= before
        assert self.health.state is state or (state, self.health.state) == (State.PROBATION, State.LIVE)
        self.served_since_ejected |= isinstance(outcome, Ok | Rejected)

    @rule(outcome=st.sampled_from(BLAMED), others_served_s=st.floats(0, 50), best_share=SHARES)
    def blamed(self, outcome: Failed, others_served_s: float, best_share: float | None) -> None:
        was_ejected, setbacks = self.health.state is State.EJECTED, self.health.trust.setbacks
        self.health.on_outcome(outcome, self.now, Others(self.now - others_served_s, best_share))
        if isinstance(outcome, Failed) and self.health.state is not State.EJECTED:
            assert self.health.trust.setbacks == setbacks, "only an ejection is a setback"
        self.notice_ejection(was_ejected)

    def notice_ejection(self, was_ejected: bool) -> None:
        if self.health.state is State.EJECTED and not was_ejected:
            self.served_since_ejected = False
            self.now += 0.001  # so that what is served from now on is later

    @precondition(lambda self: self.health.probe_due(self.now))
    @rule()
    def send_probe(self) -> None:
        self.health.on_probe_sent()
        self.under_way = True

    @precondition(lambda self: self.under_way)
    @rule(result=st.sampled_from(ANSWERS))
    def answered(self, result: Healthy) -> None:
        self.under_way = False
        assert not self.health.on_probe(result, self.now)

    @precondition(lambda self: self.under_way)
    @rule(result=st.sampled_from(SILENT))
    def silent(self, result: Lost) -> None:
        self.under_way = False
        was_ejected = self.health.state is State.EJECTED
        lost = self.health.on_probe(result, self.now)
        assert lost == (self.health.removed or (was_ejected and not self.served_since_ejected))
        self.notice_ejection(was_ejected)

    @precondition(lambda self: self.under_way)
    @rule()
    def undecided(self) -> None:
        self.under_way = False
        state = self.health.state
        self.health.undecided(self.now)
        assert self.health.state is state

    @rule()
    def network_is_back(self) -> None:
        self.health.absolve(self.now)
        assert self.health.let_in_at <= self.now

    @rule()
    def ask_soon(self) -> None:
        self.health.ask_soon(self.now)

    @rule()
    def removed(self) -> None:
        self.health.on_removed(self.now)

    @invariant()
    def room_fits_the_state(self) -> None:
        room = self.health.room(self.now)
        match self.health.state:
            case State.LIVE:
                assert room is None or room >= 1
            case State.PROBATION:
                assert room == 1
            case _:
                assert room == 0
        assert self.health.entered_at <= self.now

    @invariant()
    def something_is_due(self) -> None:
        health = self.health
        due = [at for at in (health.next_wake_at(), health.next_probe_at) if at is not None]
        incurable = health.state is State.MISCONFIGURED and not health.curable
        if not self.settings.probe:
            assert health.next_probe_at is None
            assert due or incurable or health.state in OPEN
        elif not self.under_way and (health.removed or not incurable):
            assert health.next_probe_at is not None
            assert health.next_probe_at <= self.now + BACKOFF_MAX_S
        assert health.let_in_at <= self.now + BACKOFF_MAX_S
        if health.state is State.PAUSED:
            assert health.paused_until <= self.now + max(BACKOFF_MAX_S, ASKED_S)

    @invariant()
    def comes_back_by_itself(self) -> None:
        """Answering and serving from now on, it is live within the longest back-off, an interval and one success."""
        health = copy.deepcopy(self.health)
        if health.removed or (health.state is State.MISCONFIGURED and not health.curable):
            return
        if self.under_way:
            health.on_probe(Healthy(), self.now)
        now = self.now
        while health.state is not State.LIVE:
            assert now <= self.now + BACKOFF_MAX_S + INTERVAL_S
            health.wake(now)
            if health.probe_due(now):
                health.on_probe_sent()
                health.on_probe(Healthy(), now)
            if health.room(now) != 0:
                health.on_outcome(OK, now)
            now += STEP_S


TestLifeMachine = LifeMachine.TestCase
