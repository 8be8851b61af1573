"""What an endpoint's attempts and probes say about giving it work."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scavenge.core.health import FAILING_AFTER, FAILING_PAUSE_MAX_S, EndpointHealth, HealthSettings, State
from scavenge.types import Busy, Failed, Healthy, Lost, LostCause, Misrouted, Ok, Rejected, Reply, TimedOut

OK = Ok(Reply("4", "stop"))
LOST = Lost("connection refused")


def live(**settings: object) -> EndpointHealth:
    health = EndpointHealth.listed(HealthSettings(**settings), Random(1), 0.0)  # type: ignore[arg-type]
    health.on_probe(Healthy(), 0.0)
    assert health.state is State.LIVE
    return health


def test_a_listed_endpoint_gets_no_work_before_it_answered_a_probe():
    health = EndpointHealth.listed(HealthSettings(), Random(1), 5.0)
    assert health.probe_due(5.0)
    assert health.room() == 0
    health.on_probe_sent()
    assert not health.probe_due(5.0)
    health.on_probe(Healthy(), 6.0)
    assert health.room() is None


def test_an_endpoint_without_a_list_of_models_is_let_in_on_probation():
    health = EndpointHealth.listed(HealthSettings(), Random(1), 0.0)
    health.on_probe(Healthy(listed=False), 0.0)
    assert (health.state, health.room()) == (State.PROBATION, 1)
    health.on_outcome(OK, 1.0)
    assert health.room() is None


def test_without_probes_a_listed_endpoint_gets_work_at_once_and_an_ejected_one_after_the_backoff():
    health = EndpointHealth.listed(HealthSettings(probe=False), Random(1), 0.0)
    assert (health.room(), health.probe_due(1e9)) == (None, False)
    health.on_outcome(LOST, 0.0)
    assert (health.room(), health.probe_due(1e9)) == (0, False)
    due = health.next_wake_at()
    assert due is not None
    assert due > 0
    health.wake(due - 0.01)
    assert health.room() == 0
    health.wake(due)
    assert health.room() == 1
    health.on_outcome(OK, due)
    assert (health.state, health.next_wake_at(), health.next_probe_at) == (State.LIVE, None, None)


def test_a_loss_ejects_and_asks_for_a_probe_at_once():
    health = live()
    health.on_outcome(LOST, 10.0)
    assert (health.state, health.room(), health.probe_due(10.0)) == (State.EJECTED, 0, True)


def test_only_losses_in_a_row_eject_where_more_are_asked_for():
    health = live(eject_after=3)
    for outcome in (LOST, LOST, OK, LOST, LOST, Rejected("too long"), LOST, LOST):
        health.on_outcome(outcome, 1.0)
        assert health.state is State.LIVE
    health.on_outcome(LOST, 1.0)
    assert health.state is State.EJECTED


@pytest.mark.parametrize("cause", [LostCause.LOCAL, LostCause.REVOKED])
def test_a_loss_that_is_not_the_endpoints_doing_blames_nobody(cause: LostCause):
    health = live()
    for _ in range(100):
        health.on_outcome(Lost("too many open files", cause), 1.0)
    assert health.state is State.LIVE


def test_a_request_that_is_refused_for_its_own_fault_blames_nobody():
    health = live()
    for _ in range(100):
        health.on_outcome(Rejected("context length", 400), 1.0)
    assert health.state is State.LIVE


def test_the_leases_are_lost_when_the_probe_after_an_ejection_gets_no_answer():
    health = live()
    health.on_outcome(LOST, 10.0)
    assert health.on_probe(TimedOut("silent"), 20.0)
    assert health.on_probe(LOST, 30.0)
    assert health.next_probe_at is not None
    assert health.next_probe_at > 30.0


def test_an_endpoint_that_answers_or_still_serves_loses_no_lease():
    answering = live()
    answering.on_outcome(LOST, 10.0)
    assert not answering.on_probe(Healthy(), 10.0)
    assert answering.state is State.EJECTED
    assert answering.next_probe_at == answering.let_in_at <= 11.0
    assert not answering.on_probe(Healthy(), 11.0)
    assert answering.state is State.PROBATION
    serving = live()
    serving.on_outcome(LOST, 10.0)
    serving.on_outcome(OK, 12.0)
    assert not serving.on_probe(TimedOut("slow"), 20.0)
    unready = live()
    unready.on_outcome(LOST, 10.0)
    assert not unready.on_probe(Busy("loading", 503), 11.0)
    assert (unready.state, unready.why) == (State.EJECTED, "loading")


def test_one_unanswered_probe_of_a_live_endpoint_ejects_it_and_revokes_nothing_yet():
    health = live()
    assert not health.on_probe(TimedOut("silent"), 40.0)
    assert (health.state, health.probe_due(40.0)) == (State.EJECTED, True)
    assert health.on_probe(TimedOut("silent"), 50.0)


def test_an_endpoint_that_was_removed_is_probed_at_once_and_lost_when_it_does_not_answer():
    health = live()
    health.on_removed(10.0)
    assert health.probe_due(10.0)
    assert not health.on_probe(Healthy(), 10.0)
    assert not health.on_probe(Busy("loading", 503), 40.0)
    assert health.on_probe(TimedOut("silent"), 70.0)
    assert health.on_probe(LOST, 80.0)
    assert (health.why, health.next_probe_at > 80.0) == ("connection refused", True)
    unprobed = live(probe=False)
    unprobed.on_removed(10.0)
    assert not unprobed.probe_due(1e9)


def test_a_live_endpoint_is_probed_every_interval_and_an_unready_answer_changes_nothing():
    health = live(interval=7.0)
    assert health.next_probe_at == 7.0
    health.on_probe(Failed("odd", 500), 7.0)
    assert (health.state, health.next_probe_at) == (State.LIVE, 14.0)


def test_the_backoff_of_an_endpoint_that_keeps_dying_grows_to_its_bound_and_is_forgotten_when_it_serves():
    health = live(backoff_max=8.0)
    health.on_outcome(LOST, 0.0)
    waits = []
    for _ in range(8):
        health.on_probe(LOST, 0.0)
        waits.append(health.next_probe_at)
    assert all(0 < wait <= 8.0 for wait in waits)
    assert waits[0] <= 2.0
    assert waits[-1] >= 4.0
    health.on_probe(Healthy(), 9.0)
    health.on_outcome(OK, 9.0)
    health.on_outcome(LOST, 9.0)
    assert health.let_in_at <= 10.0


def test_an_endpoint_that_answers_probes_and_fails_its_work_is_let_in_less_and_less_often():
    health = live()
    health.on_outcome(LOST, 0.0)
    gaps = []
    for _ in range(7):
        gaps.append(health.let_in_at - health.ejected_at)
        health.on_probe(Healthy(), health.let_in_at)
        assert health.state is State.PROBATION
        health.on_outcome(LOST, health.let_in_at)
    assert gaps[0] <= 1.0
    assert gaps[-1] >= 30.0


def test_a_loss_on_probation_ejects_whatever_eject_after_says():
    health = live(eject_after=5)
    for _ in range(5):
        health.on_outcome(LOST, 0.0)
    health.on_probe(Healthy(), 1.0)
    assert health.state is State.PROBATION
    health.on_outcome(LOST, 2.0)
    assert health.state is State.EJECTED


def test_a_busy_endpoint_pauses_for_as_long_as_it_asks():
    health = live()
    health.on_outcome(Busy("slow down", 429, retry_after_s=30.0), 100.0)
    health.on_outcome(Busy("slow down", 429, retry_after_s=10.0), 101.0)
    health.on_outcome(Busy("slow down", 429), 102.0)
    assert (health.state, health.room(), health.next_wake_at()) == (State.PAUSED, 0, 130.0)
    health.wake(129.9)
    assert health.room() == 0
    health.wake(130.0)
    assert health.room() is None


def test_a_burst_of_refusals_is_one_pause_and_the_next_is_longer_until_it_serves_again():
    health = live()
    for _ in range(256):
        health.on_outcome(Busy("busy", 503), 0.0)
    assert health.next_wake_at() <= 1.0
    for _ in range(6):
        health.wake(health.next_wake_at())
        health.on_outcome(Busy("busy", 503), 100.0)
    assert health.next_wake_at() - 100.0 >= 16.0
    health.wake(health.next_wake_at())
    health.on_outcome(OK, 200.0)
    health.on_outcome(Busy("busy", 503), 200.0)
    assert health.next_wake_at() <= 201.0


def test_an_endpoint_that_keeps_failing_is_ejected_when_others_succeeded_since_it_last_did():
    health = live()
    health.on_outcome(OK, 9.0)
    for _ in range(FAILING_AFTER - 1):
        health.on_outcome(Failed("boom", 500), 10.0, others_served_at=9.5)
    assert health.state is State.LIVE
    health.on_outcome(TimedOut("slow"), 12.0, others_served_at=9.5)
    assert health.state is State.EJECTED


def test_a_success_in_between_ends_a_row_of_failures():
    health = live()
    for _ in range(20):
        for _ in range(FAILING_AFTER - 1):
            health.on_outcome(Failed("boom", 500), 10.0, others_served_at=11.0)
        health.on_outcome(OK, 10.0)
    assert health.state is State.LIVE


def test_an_endpoint_that_keeps_failing_while_nobody_succeeds_pauses_briefly_and_goes_on_on_probation():
    health = live()
    health.on_outcome(OK, 9.5)
    now = 10.0
    for failures in (FAILING_AFTER, 1, 1, 1, 1, 1):
        for _ in range(failures + 100):
            health.on_outcome(Failed("boom", 500), now, others_served_at=9.0)
        assert health.state is State.PAUSED
        assert now < health.paused_until <= now + FAILING_PAUSE_MAX_S
        now = health.paused_until
        health.wake(now)
        assert (health.state, health.room()) == (State.PROBATION, 1)
    health.on_outcome(OK, now)
    assert health.room() is None


def test_a_refused_key_ends_only_with_new_settings():
    health = live()
    health.on_outcome(Misrouted("401 bad key", 401), 1.0)
    assert (health.state, health.room(), health.next_probe_at) == (State.MISCONFIGURED, 0, None)
    health.on_outcome(Misrouted("404 no such model", 404, curable=True), 1.0)
    assert (health.why, health.probe_due(1e9)) == ("401 bad key", False)


def test_a_wrong_model_ends_with_an_answered_probe_that_is_backed_off():
    health = EndpointHealth.listed(HealthSettings(), Random(1), 0.0)
    wrong = Misrouted("serves other models", curable=True)
    health.on_probe(wrong, 0.0)
    assert health.state is State.MISCONFIGURED
    first = health.next_probe_at
    assert first is not None
    health.on_probe_sent()
    health.on_probe(wrong, first)
    assert health.next_probe_at > first
    health.on_probe(Healthy(), 9.0)
    assert health.state is State.PROBATION


def test_a_server_that_is_still_loading_is_probed_again_and_gets_no_work():
    health = EndpointHealth.listed(HealthSettings(), Random(1), 0.0)
    health.on_probe(Busy("loading model", 503), 0.0)
    assert (health.state, health.why, health.room()) == (State.PROBING, "loading model", 0)
    assert 0 < health.next_probe_at <= 1.0


OUTCOMES = st.sampled_from([
    OK, LOST, Lost("fd", LostCause.LOCAL), Lost("r", LostCause.REVOKED), Busy("b"), Busy("b", 429, 5.0),
    Failed("f", 500), TimedOut("t"), Rejected("r", 400), Misrouted("m", 404, curable=True),
])  # fmt: skip
PROBES = st.sampled_from([Healthy(), Healthy(listed=False), LOST, TimedOut("t"), Busy("b"), Failed("f"), OK,
                          Misrouted("m", curable=True)])  # fmt: skip


class HealthMachine(RuleBasedStateMachine):
    """Whatever happens, an endpoint that begins to answer and to serve gets work again by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.health = EndpointHealth.listed(HealthSettings(backoff_max=20.0), Random(3), 0.0)

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.health.wake(self.now)

    @rule(outcome=OUTCOMES, others_served_s=st.floats(0, 50))
    def attempt(self, outcome: object, others_served_s: float) -> None:
        self.health.on_outcome(outcome, self.now, self.now - others_served_s)  # type: ignore[arg-type]

    @precondition(lambda self: self.health.probe_due(self.now))
    @rule(result=PROBES)
    def probe(self, result: object) -> None:
        self.health.on_probe_sent()
        lost = self.health.on_probe(result, self.now)  # type: ignore[arg-type]
        assert not lost or self.health.state is State.EJECTED

    @invariant()
    def something_happens_next(self) -> None:
        instants = (self.health.next_wake_at(), self.health.next_probe_at)
        assert any(at is not None and at <= self.now + 31.0 for at in instants)

    @invariant()
    def recovers_by_itself(self) -> None:
        saved = {name: getattr(self.health, name) for name in EndpointHealth.__slots__ if name != "__weakref__"}
        now = self.now
        for _ in range(3):
            now += 31.0
            self.health.wake(now)
            if self.health.probe_due(now):
                self.health.on_probe_sent()
                self.health.on_probe(Healthy(), now)
            if self.health.room() != 0:
                self.health.on_outcome(OK, now)
        assert self.health.state is State.LIVE
        for name, value in saved.items():
            setattr(self.health, name, value)


TestHealthMachine = HealthMachine.TestCase
