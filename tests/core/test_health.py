"""What an endpoint's attempts and probes say about giving it work."""

from __future__ import annotations

from random import Random

import attrs
import pytest

from scavenge.core.health import EndpointHealth
from scavenge.core.health_settings import UNDECIDED_S, HealthSettings
from scavenge.core.health_state import State
from scavenge.core.ramp import FIRST_ROOM
from scavenge.core.trust import (
    FAILING_DOUBT,
    FAILING_PAUSE_MAX_S,
    FAILING_ROW,
    MOST_DOUBT,
    SHARE_KNOWN_AFTER,
    SHARE_WINDOW,
    SHORTAGE_PAUSE_MAX_S,
    Others,
    Trust,
)
from scavenge.types import Busy, Failed, Healthy, Lost, LostCause, Misrouted, Ok, Rejected, Reply, TimedOut

OK = Ok(Reply("4", "stop"))
LOST = Lost("connection refused")
FAILING_AFTER = FAILING_DOUBT // 2
"""Failures in a row that are too many."""


def live(**settings: object) -> EndpointHealth:
    health = EndpointHealth.listed(HealthSettings(**settings), Random(1), 0.0)  # type: ignore[arg-type]
    health.on_probe(Healthy(), 0.0)
    assert health.state is State.LIVE
    return health


def test_a_listed_endpoint_gets_no_work_before_it_answered_a_probe():
    health = EndpointHealth.listed(HealthSettings(), Random(1), 5.0)
    assert health.probe_due(5.0)
    assert health.room(5.0) == 0
    health.on_probe_sent()
    assert not health.probe_due(5.0)
    health.on_probe(Healthy(), 6.0)
    assert health.room(6.0) == FIRST_ROOM


def test_an_endpoint_without_a_list_of_models_is_let_in_on_probation():
    health = EndpointHealth.listed(HealthSettings(), Random(1), 0.0)
    health.on_probe(Healthy(listed=False), 0.0)
    assert (health.state, health.room(0.0)) == (State.PROBATION, 1)
    health.on_outcome(OK, 1.0)
    assert health.room(1.0) == FIRST_ROOM


def test_without_probes_a_listed_endpoint_gets_work_at_once_and_an_ejected_one_after_the_backoff():
    health = EndpointHealth.listed(HealthSettings(probe=False), Random(1), 0.0)
    assert (health.room(0.0), health.probe_due(1e9)) == (FIRST_ROOM, False)
    health.on_outcome(LOST, 0.0)
    assert (health.room(0.0), health.probe_due(1e9)) == (0, False)
    due = health.next_wake_at()
    assert due is not None
    assert due > 0
    health.wake(due - 0.01)
    assert health.room(due - 0.01) == 0
    health.wake(due)
    assert health.room(due) == 1
    health.on_outcome(OK, due)
    assert (health.state, health.next_probe_at) == (State.LIVE, None)


def test_a_loss_ejects_and_asks_for_a_probe_at_once():
    health = live()
    health.on_outcome(LOST, 10.0)
    assert (health.state, health.room(10.0), health.probe_due(10.0)) == (State.EJECTED, 0, True)


def test_only_losses_in_a_row_eject_where_more_are_asked_for():
    health = live(eject_after=3)
    for outcome in (LOST, LOST, OK, OK, OK, LOST, LOST, Rejected("too long"), LOST, LOST):
        health.on_outcome(outcome, 1.0)
        assert health.state is State.LIVE
    health.on_outcome(LOST, 1.0)
    assert health.state is State.EJECTED


@pytest.mark.parametrize("cause", [LostCause.LATE, LostCause.REVOKED])
def test_what_was_noticed_late_or_revoked_blames_nobody(cause: LostCause):
    health = live()
    for _ in range(100):
        health.on_outcome(Lost("late", cause), 1.0)
    assert health.state is State.LIVE


@pytest.mark.parametrize("cause", [LostCause.LOCAL, LostCause.NAMES])
def test_what_this_machine_lacks_pauses_for_a_moment_and_blames_nobody(cause: LostCause):
    health = live()
    health.on_outcome(OK, 1.0)
    now, trust = 1.0, attrs.evolve(health.trust)
    for _ in range(20):
        for _ in range(100):  # all that were sent at one moment count once
            health.on_outcome(Lost("too many open files", cause), now)
        assert health.state is State.PAUSED
        assert health.room(now) == 0
        assert now < health.next_wake_at() <= now + SHORTAGE_PAUSE_MAX_S
        now = health.next_wake_at()
        health.wake(now)
        assert health.state is State.LIVE
    assert health.trust == trust
    health.on_probe_sent()
    assert not health.on_probe(Lost("no name", cause), now)
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
    for _ in range(10):
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
    assert (health.state, health.room(102.0), health.next_wake_at()) == (State.PAUSED, 0, 130.0)
    health.wake(129.9)
    assert health.room(129.9) == 0
    health.wake(130.0)
    assert health.state is State.LIVE


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
        health.on_outcome(Failed("boom", 500), 10.0, Others(9.5, 0.0))
    assert health.state is State.LIVE
    health.on_outcome(TimedOut("slow"), 12.0, Others(9.5, 0.0))
    assert health.state is State.EJECTED


def test_an_endpoint_that_serves_more_than_two_in_three_is_left_alone():
    health = live()
    for _ in range(50):
        health.on_outcome(Failed("boom", 500), 10.0, Others(11.0, 0.0))
        health.on_outcome(OK, 10.0)
        health.on_outcome(OK, 10.0)
    assert (health.state, health.trust.doubt) == (State.LIVE, 0)


def test_an_endpoint_that_keeps_failing_while_nobody_succeeds_pauses_briefly_and_goes_on_on_probation():
    health = live()
    health.on_outcome(OK, 9.5)
    now = 10.0
    for failures in (FAILING_AFTER, 1, 1, 1, 1, 1):
        for _ in range(failures + 100):
            health.on_outcome(Failed("boom", 500), now, Others(9.0))
        assert health.state is State.PAUSED
        assert now < health.paused_until <= now + FAILING_PAUSE_MAX_S
        now = health.paused_until
        health.wake(now)
        assert (health.state, health.room(now)) == (State.PROBATION, 1)
    health.on_outcome(OK, now)
    assert health.state is State.LIVE


def test_a_refused_key_ends_only_with_new_settings():
    health = live()
    health.on_outcome(Misrouted("401 bad key", 401), 1.0)
    assert (health.state, health.room(1.0), health.next_probe_at) == (State.MISCONFIGURED, 0, None)
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
    assert (health.state, health.why, health.room(0.0)) == (State.PROBING, "loading model", 0)
    assert 0 < health.next_probe_at <= 1.0


def test_its_state_says_since_when_it_is_in_it():
    health = EndpointHealth.listed(HealthSettings(), Random(1), 3.0)
    assert health.entered_at == 3.0
    health.on_probe(Healthy(), 4.0)
    health.on_outcome(OK, 5.0)
    assert health.entered_at == 4.0
    health.on_outcome(LOST, 6.0)
    assert health.entered_at == 6.0
    assert EndpointHealth.listed(HealthSettings(probe=False), Random(1), 7.0).entered_at == 7.0


def test_a_live_endpoint_opens_up_by_serving_and_by_time_and_what_fails_takes_one_away():
    health = live()
    health.on_outcome(OK, 1.0)
    assert health.room(1.0) == FIRST_ROOM + 1
    health.on_outcome(Rejected("too long", 400), 1.0)
    health.on_outcome(Failed("boom", 500), 2.0, Others(1.0, 0.0))
    assert (health.room(6.9), health.next_wake_at()) == (FIRST_ROOM, 7.0)
    health.wake(7.0)
    assert (health.room(7.0), health.next_wake_at()) == (2 * FIRST_ROOM, 12.0)
    health.wake(1000.0)
    assert (health.room(1000.0), health.next_wake_at()) == (None, None)


def test_a_pause_that_was_asked_for_does_not_close_what_had_opened_up():
    health = live()
    health.wake(10.0)
    opened = health.room(10.0)
    health.on_outcome(Busy("slow down", 429, retry_after_s=60.0), 10.0)
    health.wake(70.0)
    assert (health.room(70.0), health.next_wake_at()) == (opened, 75.0)


def test_a_busy_answer_on_probation_ends_in_probation_again():
    health = EndpointHealth.listed(HealthSettings(), Random(1), 0.0)
    health.on_probe(Healthy(listed=False), 0.0)
    health.on_outcome(Busy("busy", 503, retry_after_s=1.0), 0.0)
    health.wake(1.0)
    assert health.state is State.PROBATION


def test_an_endpoint_that_came_back_and_failed_again_begins_with_one_request_and_opens_up_by_serving_only():
    health = live()
    now = 0.0
    for _ in range(2):
        health.on_outcome(LOST, now)
        now = health.let_in_at
        health.on_probe(Healthy(), now)
    health.on_outcome(OK, now)
    assert (health.room(now), health.room(now + 3600.0), health.next_wake_at()) == (1, 1, None)
    for _ in range(20):
        health.on_outcome(OK, now)
    assert health.room(now) == 21
    assert health.room(now + 5.0) == 42


def test_a_server_that_kept_failing_is_ejected_by_the_next_failure_after_it_came_back():
    health = live()
    for _ in range(FAILING_AFTER):
        health.on_outcome(Failed("boom", 500), 1.0, Others(1.0, 0.0))
    assert health.why == "keeps failing: boom"
    health.on_probe(Healthy(), health.let_in_at)
    now = health.let_in_at
    health.on_outcome(OK, now)
    assert health.state is State.LIVE
    health.on_outcome(Failed("boom", 500), now, Others(now - 1.0, 0.0))
    assert health.state is State.EJECTED


def test_a_failure_on_probation_of_an_endpoint_that_never_failed_before_pauses_it():
    health = EndpointHealth.listed(HealthSettings(), Random(1), 0.0)
    health.on_probe(Healthy(listed=False), 0.0)
    health.on_outcome(Failed("boom", 500), 1.0, Others(0.5, 0.0))
    assert (health.state, health.why) == (State.PAUSED, "failed on probation: boom")
    assert health.trust.setbacks == 0


def test_setbacks_are_forgiven_one_by_one_and_a_refused_request_forgives_nothing():
    health = live()
    health.trust.setbacks = 2
    health.trust.doubt = MOST_DOUBT
    for _ in range(30):
        health.on_outcome(Rejected("too long", 400), 1.0)
    assert (health.trust.setbacks, health.trust.doubt) == (2, MOST_DOUBT)
    for _ in range(10):
        health.on_outcome(OK, 1.0)
    assert health.trust.setbacks == 1
    for _ in range(10):
        health.on_outcome(OK, 1.0)
    assert health.trust.setbacks == 0


@pytest.mark.parametrize("cause", [LostCause.SERVER, LostCause.SILENT, LostCause.NETWORK])
def test_every_loss_that_was_found_to_be_the_endpoints_fault_ejects(cause: LostCause):
    health = live()
    health.on_outcome(Lost("gone", cause), 1.0)
    assert health.state is State.EJECTED
    assert health.on_probe(Lost("gone", cause), 2.0)


def test_a_paused_endpoint_that_loses_its_requests_is_ejected_and_one_that_fails_them_stays_paused():
    health = live()
    health.on_outcome(Busy("busy", 503, retry_after_s=60.0), 0.0)
    health.on_outcome(Failed("boom", 500), 1.0)
    assert health.state is State.PAUSED
    health.on_outcome(LOST, 1.0)
    assert (health.state, health.probe_due(1.0)) == (State.EJECTED, True)
    health.on_outcome(LOST, 2.0)
    assert health.entered_at == 1.0


def test_a_silence_of_which_nobody_knows_the_cause_changes_nothing_and_is_asked_about_soon():
    health = live()
    health.on_probe_sent()
    health.undecided(40.0)
    assert (health.state, health.next_probe_at) == (State.LIVE, 40.0 + UNDECIDED_S)
    unprobed = live(probe=False)
    unprobed.undecided(40.0)
    assert unprobed.next_probe_at is None


def test_a_network_that_is_back_lets_endpoints_in_with_the_next_probe():
    health = live()
    for _ in range(3):
        health.on_outcome(LOST, 10.0)
        health.on_probe(Healthy(), health.let_in_at)
    health.on_outcome(LOST, 20.0)
    health.on_probe(LOST, 20.0)
    health.absolve(21.0)
    assert (health.trust.setbacks, health.probe_due(21.0)) == (0, True)
    health.on_probe(Healthy(), 21.0)
    assert health.state is State.PROBATION
    unprobed = live(probe=False)
    unprobed.on_outcome(LOST, 10.0)
    unprobed.absolve(10.1)
    unprobed.wake(10.1)
    assert unprobed.state is State.PROBATION


def test_asking_soon_brings_the_next_probe_forward_unless_one_is_under_way():
    health = live()
    health.ask_soon(3.0)
    assert health.probe_due(3.0)
    health.on_probe_sent()
    health.ask_soon(3.0)
    assert not health.probe_due(3.0)


def test_an_answered_probe_does_not_bring_back_an_endpoint_that_refuses_our_key():
    health = live()
    health.on_probe_sent()
    health.on_outcome(Misrouted("401 bad key", 401), 1.0)
    health.on_probe(Healthy(), 2.0)
    health.absolve(3.0)
    assert (health.state, health.next_probe_at) == (State.MISCONFIGURED, None)
    health.on_removed(4.0)
    assert health.probe_due(4.0)
    assert health.on_probe(TimedOut("no answer"), 4.0)


def test_a_server_that_lists_its_model_and_knows_it_not_is_let_in_less_and_less_often():
    health = live()
    gaps = []
    now = 0.0
    for _ in range(4):
        health.on_outcome(Misrouted("404", 404, curable=True), now)
        health.on_probe(Healthy(), now)
        assert (health.state, health.next_probe_at) == (State.MISCONFIGURED, health.let_in_at)
        gaps.append(health.let_in_at - now)
        now = health.let_in_at
        health.on_probe(Healthy(), now)
        assert health.state is State.PROBATION
    assert gaps[0] <= 1.0
    assert gaps[-1] >= 30.0


def test_without_probes_a_wrong_model_is_tried_again_after_the_backoff():
    health = live(probe=False)
    health.on_outcome(Misrouted("404", 404, curable=True), 0.0)
    health.wake(health.let_in_at)
    assert health.state is State.PROBATION
    health.on_outcome(Misrouted("401", 401), 2.0)
    assert health.next_wake_at() is None


def test_a_probe_that_this_machine_spoilt_ejects_nobody():
    health = live()
    assert not health.on_probe(Lost("late", LostCause.LOCAL), 30.0)
    assert (health.state, health.next_probe_at) == (State.LIVE, 60.0)


def test_a_success_at_the_instant_of_an_ejection_does_not_save_the_leases_of_a_server_that_is_silent_since():
    health = live()
    health.on_outcome(OK, 10.0)
    health.on_outcome(LOST, 10.0)
    assert health.on_probe(TimedOut("silent"), 20.0)


@pytest.mark.parametrize("by", ["an answer", "a network that is back"])
def test_the_backoff_of_probes_begins_anew_after(by: str):
    health = EndpointHealth.listed(HealthSettings(), Random(1), 0.0)
    for _ in range(10):
        health.on_probe(LOST, 0.0)
    assert health.next_probe_at >= 30.0
    if by == "an answer":
        health.on_probe(Healthy(), 100.0)
        health.on_outcome(LOST, 100.0)
    else:
        health.absolve(100.0)
    health.on_probe(LOST, 100.0)
    assert health.next_probe_at <= 101.0


def test_a_server_that_failed_for_a_long_time_has_to_serve_only_a_few_before_a_failure_is_forgivable():
    health = live()
    for _ in range(100):
        health.trust.on_failed(0.0)
    for _ in range(MOST_DOUBT - FAILING_DOUBT + 3):
        health.on_outcome(OK, 1.0)
    health.on_outcome(Failed("boom", 500), 2.0)
    assert health.state is State.LIVE


def test_an_endpoint_that_fails_no_more_than_the_best_of_the_others_is_never_ejected_and_closes_nothing():
    health = live()
    for now in range(60):
        health.on_outcome(OK, now)
        health.on_outcome(Failed("boom", 500), now, Others(now + 0.5, 0.5))
    assert (health.state, health.trust.doubt, health.trust.setbacks) == (State.LIVE, pytest.approx(0.5), 0)
    assert health.room(0.0) >= FIRST_ROOM + 60


def test_one_that_fails_clearly_more_is_ejected_however_much_the_best_of_the_others_fails():
    health = live()
    for now in range(60):
        for outcome in (OK, *(Failed("boom", 500),) * 4):
            health.on_outcome(outcome, now, Others(now + 0.5, 0.3))
    assert health.state is State.EJECTED


def failed_in_a_row(health: EndpointHealth, now: float, others: Others) -> None:
    for _ in range(FAILING_ROW):
        health.on_outcome(Failed("boom", 500), now, others)


def test_a_pause_for_failures_that_others_have_as_well_is_no_setback_and_closes_nothing():
    health = live()
    health.wake(1000.0)
    for now in (1000.0, 2000.0, 3000.0):
        for _ in range(30):
            health.on_outcome(OK, now)
        failed_in_a_row(health, now, Others())
        assert (health.state, health.trust.setbacks, health.paused_until <= now + 1.0) == (State.PAUSED, 0, True)
        health.wake(health.paused_until)
        health.on_outcome(OK, now)
        assert (health.state, health.room(now)) == (State.LIVE, None)


def test_an_endpoint_that_fails_nearly_all_opens_up_anew_once_it_serves_whatever_others_do():
    health = live()
    health.wake(1000.0)
    for now in range(1000, 1100):
        failed_in_a_row(health, now, Others())
        health.wake(health.next_wake_at())
    health.on_outcome(OK, 2000.0)
    assert (health.state, health.room(2000.0)) == (State.LIVE, 1)


def test_doubt_is_noted_while_nobody_else_is_known_and_counts_only_when_somebody_is():
    health = live()
    for now in range(20):
        health.on_outcome(OK, now)
        health.on_outcome(Failed("boom", 500), now, Others(now + 0.5))
    assert (health.state, health.trust.doubt) == (State.LIVE, MOST_DOUBT)
    health.on_outcome(Failed("boom", 500), 30.0, Others(29.0, 0.0))
    assert health.state is State.EJECTED


def test_losses_take_work_away_whatever_the_others_do():
    health = live(eject_after=3)
    for _ in range(2):
        health.on_outcome(LOST, 1.0, Others(2.0, 0.9))
    assert health.state is State.LIVE
    health.on_outcome(LOST, 1.0, Others(2.0, 0.9))
    assert health.state is State.EJECTED


def test_a_share_of_failures_is_known_after_a_few_outcomes_and_forgets_what_is_long_ago():
    trust = Trust()
    shares = []
    for _ in range(SHARE_KNOWN_AFTER - 1):
        trust.on_failed(None)
        shares.append(trust.share)
    trust.on_served()
    assert set(shares) == {None}
    assert trust.share == pytest.approx(1 - 1 / SHARE_KNOWN_AFTER)
    for _ in range(10 * SHARE_WINDOW):
        trust.on_served()
    assert trust.share < 0.001


def test_one_that_fails_everything_is_ejected_in_the_end_even_where_the_best_of_the_others_serves_little():
    health = live()
    now = 0.0
    while health.state is not State.EJECTED:
        health.on_outcome(Failed("boom", 500), now, Others(now + 0.5, 0.8))
        now += 10.0
        health.wake(now)
        assert now < 1000.0
    assert health.trust.doubt >= FAILING_DOUBT


def test_a_reply_that_is_coming_ends_a_probation_before_it_is_whole():
    health = live()
    health.on_outcome(LOST, 1.0)
    health.on_probe(Healthy(), 10.0)
    assert health.state is State.PROBATION
    health.on_reply_coming(15.0)
    assert health.state is State.LIVE
    assert health.room(15.0) == FIRST_ROOM


def test_a_reply_that_is_coming_proves_nothing_in_any_other_state():
    health = live()
    health.on_outcome(Busy("wait", 429, 50.0), 1.0)
    health.on_reply_coming(2.0)
    assert health.state is State.PAUSED


@pytest.mark.parametrize("answer", [OK, Rejected("context length", 400)])
def test_what_was_asked_before_a_probation_began_does_not_end_it(answer: Ok | Rejected):
    health = live()
    health.on_outcome(LOST, 1.0)
    health.on_probe(Healthy(), 10.0)
    health.on_outcome(answer, 11.0, since=0.5)
    assert health.state is State.PROBATION
    health.on_outcome(answer, 12.0, since=10.0)
    assert health.state is State.LIVE


def test_a_second_refusal_with_nothing_served_in_between_is_followed_by_a_probation():
    health = live()
    health.on_outcome(Busy("wait", 503, 5.0), 1.0)
    health.wake(6.0)
    assert health.state is State.LIVE
    health.on_outcome(Busy("wait", 503, 5.0), 7.0)
    health.wake(12.0)
    assert health.state is State.PROBATION
    health.on_outcome(OK, 13.0)
    health.on_outcome(Busy("wait", 503, 5.0), 14.0)
    health.wake(19.0)
    assert health.state is State.LIVE
