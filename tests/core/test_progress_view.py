from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.figures import duration
from scavenge.core.progress_view import ProgressView, RecentRate
from scavenge.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptStarted,
    EndpointChanged,
    EndpointDraining,
    EndpointJoined,
    EndpointLeft,
    EvalGaveUp,
    EvalSized,
    Event,
    HealthChanged,
    LimitMoved,
    NetworkBack,
    NetworkLost,
    PoolWaiting,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    RunStopping,
    SessionsMoved,
    SourceChanged,
    Warned,
)
from scavenge.rollouts import ErrorInfo, RolloutKey, RolloutRecord
from scavenge.types import Attempt, EndpointId, Url

POOL, URL = EndpointId("glm"), Url("http://a/v1")
T0 = 1_000_000.0


def finished(error: ErrorInfo | None = None) -> RolloutFinished:
    return RolloutFinished(RolloutRecord(RolloutKey("math", "1", 0), "chat", error=error))


def ended(tokens: int) -> AttemptEnded:
    return AttemptEnded(POOL, Attempt(URL, "ok", T0, 1.0), tokens)


def view_after(*events: Event, now_time: float = T0) -> ProgressView:
    view = ProgressView(T0)
    for event in events:
        view.on_event(event, now_time)
    return view


def test_a_total_is_known_once_every_dataset_is():
    view = view_after(RunStarted("runs/x", ("a", "b"), kept=3), EvalSized("a", 10))
    assert view.total is None
    assert view.summary_line(T0).startswith("3/? done")
    view.on_event(EvalSized("b", 20), T0)
    assert view.total == 30
    assert view.summary_line(T0).startswith("3/30 done")


def test_a_size_that_is_told_before_the_start_is_kept():
    assert view_after(EvalSized("a", 10), RunStarted("runs/x", ("a",))).total == 10


def test_good_and_bad_results_are_done_and_only_bad_ones_failed():
    view = view_after(finished(), finished(), finished(ErrorInfo("ValueError", "no")))
    assert (view.done, view.ok, view.failed) == (3, 2, 1)
    assert "3/? done, 1 failed, 0 in flight" in view.summary_line(T0)


def test_in_flight_counts_attempts_and_never_falls_below_nothing():
    view = view_after(AttemptStarted(POOL, URL), AttemptStarted(POOL, URL), ended(5))
    assert view.in_flight == 1
    view.on_event(ended(5), T0)
    view.on_event(ended(5), T0)
    assert view.in_flight == 0


def test_tokens_a_second_are_those_of_the_last_half_minute():
    view = ProgressView(T0)
    view.on_event(ended(3000), T0 + 10)
    assert view.tokens.per_s(T0 + 10) == 300
    view.on_event(ended(600), T0 + 60)
    assert view.tokens.per_s(T0 + 60) == 20
    assert "20 tokens/s" in view.summary_line(T0 + 60)
    assert view.tokens.per_s(T0 + 3600) == 0


@given(st.lists(st.tuples(st.floats(0, 40), st.integers(0, 100)), max_size=60))
def test_a_rate_agrees_with_a_plain_sum_and_holds_few_numbers(steps: list[tuple[float, int]]):
    rate, now_time, told = RecentRate(30.0, T0), T0, []
    for pause_s, amount in steps:
        now_time += pause_s
        rate.add(amount, now_time)
        told.append((now_time, amount))
    passed_s = max(1.0, min(30.0, now_time - T0))
    surely = sum(amount for at, amount in told if at > now_time - 29)
    at_most = sum(amount for at, amount in told if at > now_time - 31)
    assert surely - 1e-6 <= rate.per_s(now_time) * passed_s <= at_most + 1e-6
    assert len(rate._sums) <= 31


def test_a_clock_that_is_set_back_loses_nothing():
    rate = RecentRate(30.0, T0)
    rate.add(10, T0 + 20)
    rate.add(20, T0 + 5)
    assert rate.per_s(T0 + 20) == 30 / 20


def test_the_end_is_estimated_from_the_recent_speed():
    view = view_after(RunStarted("runs/x", ("a",)), EvalSized("a", 100))
    assert view.left_s(T0) is None
    for _ in range(25):
        view.on_event(finished(), T0 + 50)
    assert view.left_s(T0 + 50) == 150
    assert view.summary_line(T0 + 50).endswith("0:50, about 2:30 left")


def test_no_end_is_estimated_while_something_is_waited_for():
    view = view_after(RunStarted("runs/x", ("a",)), EvalSized("a", 2), finished(), now_time=T0 + 1)
    view.on_event(PoolWaiting(POOL, T0, "no endpoint is listed"), T0 + 1)
    assert view.summary_line(T0 + 5).endswith("| 0:05")


def test_more_results_than_were_expected_leave_nothing_to_do():
    view = view_after(RunStarted("runs/x", ("a",)), EvalSized("a", 1), finished(), finished(), now_time=T0 + 10)
    assert view.left_s(T0 + 10) == 0


@pytest.mark.parametrize(
    ("events", "live", "listed"),
    [
        ([EndpointJoined(POOL, URL)], 0, 1),
        ([EndpointJoined(POOL, URL), HealthChanged(POOL, URL, "probing", "live", "")], 1, 1),
        ([EndpointJoined(POOL, URL), AttemptStarted(POOL, URL)], 1, 1),
        (
            [
                HealthChanged(POOL, URL, "probing", "live", ""),
                EndpointJoined(EndpointId("b"), URL),
                EndpointJoined(POOL, URL),
            ],
            1,
            2,
        ),
        (
            [
                EndpointJoined(POOL, URL),
                EndpointJoined(EndpointId("b"), URL),
                HealthChanged(POOL, URL, "probing", "live", ""),
                HealthChanged(EndpointId("b"), URL, "probing", "misconfigured", ""),
            ],
            1,
            2,
        ),
        (
            [
                EndpointJoined(POOL, URL),
                HealthChanged(POOL, URL, "probing", "live", ""),
                EndpointJoined(EndpointId("b"), URL),
                EndpointLeft(POOL, URL),
                EndpointJoined(POOL, URL),
            ],
            0,
            2,
        ),
        (
            [EndpointJoined(POOL, URL), HealthChanged(POOL, URL, "live", "ejected", "x"), AttemptStarted(POOL, URL)],
            0,
            1,
        ),
        ([EndpointJoined(POOL, URL), AttemptStarted(POOL, URL), EndpointDraining(POOL, URL, "x")], 0, 1),
        (
            [
                EndpointJoined(POOL, URL),
                AttemptStarted(POOL, URL),
                EndpointDraining(POOL, URL, "x"),
                EndpointChanged(POOL, URL, "headers"),
            ],
            0,
            1,
        ),
        (
            [
                EndpointJoined(POOL, URL),
                AttemptStarted(POOL, URL),
                EndpointDraining(POOL, URL, "x"),
                EndpointChanged(POOL, URL, "headers, draining"),
            ],
            1,
            1,
        ),
        ([EndpointJoined(POOL, URL), AttemptStarted(POOL, URL), EndpointLeft(POOL, URL)], 0, 0),
        (
            [EndpointJoined(POOL, URL), AttemptStarted(POOL, URL), EndpointLeft(POOL, URL), EndpointJoined(POOL, URL)],
            0,
            1,
        ),
        (
            [
                EndpointJoined(POOL, URL),
                EndpointJoined(EndpointId("b"), URL),
                AttemptStarted(POOL, URL),
                EndpointLeft(EndpointId("b"), URL),
            ],
            1,
            1,
        ),
    ],
)
def test_an_endpoint_is_live_while_it_is_listed_healthy_and_not_draining(events, live, listed):
    view = view_after(*events)
    assert (view.live, view.endpoints) == (live, listed)
    assert f"endpoints {live}/{listed}" in view.summary_line(T0)


def test_waits_are_told_with_their_age_until_they_end():
    view = view_after(PoolWaiting(POOL, T0, "no endpoint\nis listed"))
    assert view.notes(T0 + 75) == ["glm has been waiting for 1:15: no endpoint is listed"]
    view.on_event(PoolWaiting(POOL, T0 + 80, ""), T0 + 80)
    view.on_event(PoolWaiting(POOL, T0 + 80, ""), T0 + 80)
    assert view.notes(T0 + 90) == []


def test_a_lost_network_is_told_with_its_age_until_it_is_back():
    view = view_after(NetworkLost(3, "no route\nto any host"), PoolWaiting(POOL, T0, "no network"))
    before = view.holdups()
    assert view.notes(T0 + 40) == [
        "this machine's network has been lost for 0:40: no route to any host",
        "glm has been waiting for 0:40: no network",
    ]
    view.on_event(NetworkBack(41.0), T0 + 41)
    assert view.holdups() != before
    assert view.notes(T0 + 41) == ["glm has been waiting for 0:41: no network"]


def test_no_end_is_estimated_without_a_network():
    view = view_after(RunStarted("runs/x", ("a",)), EvalSized("a", 2), finished(), now_time=T0 + 1)
    assert "left" in view.summary_line(T0 + 5)
    view.on_event(NetworkLost(1, "unreachable"), T0 + 5)
    assert "left" not in view.summary_line(T0 + 5)


def test_a_source_in_trouble_is_told_with_the_age_of_the_trouble_and_its_latest_kind():
    view = view_after(SourceChanged("e.toml", ok=False, message="e.toml: no such file"))
    before = view.holdups()
    view.on_event(SourceChanged("e.toml", ok=False, message="e.toml: is a folder"), T0 + 60)
    assert view.holdups() == before
    assert view.notes(T0 + 192) == ["source e.toml has been in trouble for 3:12: is a folder"]
    view.on_event(SourceChanged("other", ok=True, message="readable again"), T0 + 200)
    view.on_event(SourceChanged("e.toml", ok=True, message="readable again"), T0 + 200)
    assert view.notes(T0 + 200) == []
    assert view.holdups() != before


def test_of_many_sources_in_trouble_the_first_three_are_told():
    view = view_after(*(SourceChanged(f"s{number}", ok=False, message="gone") for number in range(5)))
    assert view.notes(T0) == [
        *(f"source s{number} has been in trouble for 0:00: gone" for number in range(3)),
        "sources in trouble: 5 in all",
    ]
    view.on_event(SourceChanged("s0", ok=True, message="back"), T0)
    view.on_event(SourceChanged("s1", ok=True, message="back"), T0)
    assert len(view.notes(T0)) == 3


def test_what_stops_the_run_and_who_gave_up_is_told():
    view = view_after(RunStopping("SIGINT"), EvalGaveUp("math", "too long"), EvalGaveUp("code", "too long"))
    assert view.notes(T0) == ["stopping: SIGINT", "given up: math, code"]


def test_holdups_change_with_what_is_waited_for_but_not_with_its_reason():
    view = view_after(PoolWaiting(POOL, T0, "one reason"))
    before = view.holdups()
    view.on_event(PoolWaiting(POOL, T0, "another reason"), T0 + 1)
    assert view.holdups() == before
    view.on_event(PoolWaiting(EndpointId("other"), T0, "why"), T0 + 1)
    assert view.holdups() != before


def moved(new: int, url: Url = URL) -> LimitMoved:
    return LimitMoved(POOL, url, 8, new, "gain", 5)


def test_the_limits_of_the_endpoints_that_take_work_stand_beside_what_is_in_flight():
    other = Url("http://b/v1")
    view = view_after(EndpointJoined(POOL, URL), AttemptStarted(POOL, URL), moved(16), moved(1200))
    assert ", 1/1,200 in flight" in view.summary_line(T0)
    view.on_event(EndpointJoined(POOL, other), T0)
    view.on_event(moved(100, other), T0)
    assert ", 1/1,200 in flight" in view.summary_line(T0)
    view.on_event(HealthChanged(POOL, other, "probing", "live", ""), T0)
    assert ", 1/1,300 in flight" in view.summary_line(T0)
    view.on_event(EndpointDraining(POOL, URL, "marked so"), T0)
    assert ", 1/100 in flight" in view.summary_line(T0)


def test_no_limit_is_told_while_one_that_counts_is_not_known():
    other = Url("http://b/v1")
    live = [EndpointJoined(POOL, URL), AttemptStarted(POOL, URL)]
    assert ", 1 in flight" in view_after(*live).summary_line(T0)
    assert ", 0 in flight" in view_after(moved(8)).summary_line(T0)
    two = view_after(*live, moved(8), EndpointJoined(POOL, other), AttemptStarted(POOL, other))
    assert ", 2 in flight" in two.summary_line(T0)


def test_what_an_endpoint_was_allowed_is_forgotten_with_it():
    joined = [EndpointJoined(POOL, URL), HealthChanged(POOL, URL, "probing", "live", "")]
    view = view_after(*joined, moved(8))
    assert ", 0/8 in flight" in view.summary_line(T0)
    for event in (EndpointLeft(POOL, URL), *joined):
        view.on_event(event, T0)
    assert ", 0 in flight" in view.summary_line(T0)


def test_rollouts_under_way_are_told_with_the_bound_of_the_session_gates():
    view = view_after(RolloutStarted("math"), RolloutStarted("math"), RolloutStarted("code"), finished())
    assert "under way" not in view.summary_line(T0)
    view.on_event(SessionsMoved(POOL, 2, "start"), T0)
    assert "under way" not in view.summary_line(T0)
    view.on_event(SessionsMoved(POOL, 2, "slots", limit=1500), T0)
    assert "in flight, 2 under way (at most 1,500 sessions) | " in view.summary_line(T0)
    view.on_event(SessionsMoved(POOL, 2, "slots", limit=21), T0)
    view.on_event(SessionsMoved(EndpointId("b"), 0, "hits", budget_tokens=59_999.7), T0)
    assert "2 under way (at most 21 sessions, contexts up to 60,000 tokens)" in view.summary_line(T0)


def test_more_rollouts_that_end_than_began_leave_none_under_way():
    view = view_after(finished(), finished(), RolloutStarted("math"), SessionsMoved(POOL, 0, "", limit=4))
    assert ", 1 under way (at most 4 sessions)" in view.summary_line(T0)


def test_no_limit_that_moves_is_a_hold_up():
    view = view_after(moved(8))
    before = view.holdups()
    view.on_event(moved(4), T0)
    view.on_event(SessionsMoved(POOL, 2, "hits", limit=4), T0)
    assert view.holdups() == before
    assert view.notes(T0) == []


def test_events_of_no_interest_change_nothing():
    assert view_after(Warned("unreadable")) == ProgressView(T0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5.0, "0:00"), (7.9, "0:07"), (754.0, "12:34"), (3723.0, "1:02:03"), (360_000.0, "100:00:00")],
)
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text


def test_an_attempt_that_was_dropped_is_no_longer_in_flight():
    view = view_after(AttemptStarted(POOL, URL), AttemptStarted(POOL, URL), AttemptDropped(POOL, URL))
    assert view.in_flight == 1
