from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.quiet import QuietClock, is_progress
from scavenge.events import (
    AttemptEnded,
    AttemptStarted,
    HealthChanged,
    ImageFailed,
    ImageFetching,
    ImageReady,
    ImagesChanged,
    RolloutFinished,
    RolloutStarted,
    Warned,
    WorkerEnded,
    WorkerReady,
    WorkersChanged,
    WorkerStarting,
)
from scavenge.rollouts import ErrorInfo, RolloutKey, RolloutRecord
from scavenge.status import ImagesStatus, WorkersStatus
from scavenge.types import Attempt, EndpointId, Url

POOL, URL = EndpointId("glm"), Url("http://a/v1")


def reports(clock: QuietClock, until: int, step: int = 5) -> dict[int, float]:
    """What looks every few seconds tell, by their instants."""
    start = int(clock.looked_at)
    told = {now: clock.look(now) for now in range(start + step, until + 1, step)}
    return {now: quiet_s for now, quiet_s in told.items() if quiet_s is not None}


def test_a_quiet_stretch_is_told_when_it_is_long_and_at_each_doubling():
    assert reports(QuietClock(0.0), 2500) == {300: 300.0, 600: 600.0, 1200: 1200.0, 2400: 2400.0}


def test_one_report_a_stretch_is_enough_where_it_says_so():
    clock = QuietClock(0.0, after_s=30.0, again=False)
    assert reports(clock, 1000) == {30: 30.0}
    clock.on_sign(1000.0)
    assert reports(clock, 1100) == {1030: 30.0}


def test_a_sign_of_progress_starts_another_stretch():
    clock = QuietClock(0.0)
    assert reports(clock, 295) == {}
    clock.on_sign(295.0)
    assert reports(clock, 890) == {595: 300.0}


def test_a_stretch_begins_with_the_last_sign_and_not_with_the_next_look():
    clock = QuietClock(0.0)
    clock.on_sign(4.0)
    assert clock.look(5.0) is None
    assert clock.quiet_s == 1.0


def test_a_sign_that_is_older_than_the_last_look_counts_from_that_look():
    clock = QuietClock(0.0)
    clock.look(5.0)
    clock.on_sign(2.0)
    clock.look(10.0)
    assert clock.quiet_s == 5.0


def test_the_first_report_after_progress_comes_as_early_as_the_very_first():
    clock = QuietClock(0.0)
    assert reports(clock, 700) == {300: 300.0, 600: 600.0}
    clock.on_sign(700.0)
    assert reports(clock, 1000) == {1000: 300.0}


def test_time_in_which_nobody_looked_is_not_quiet():
    clock = QuietClock(0.0)
    clock.look(5.0)
    assert clock.look(100_000.0) is None
    assert clock.quiet_s == 20.0


@given(st.lists(st.one_of(st.floats(0, 50), st.floats(-50, 0)), max_size=80))
def test_a_clock_that_goes_back_or_jumps_makes_no_stretch_longer_than_it_was(steps: list[float]):
    clock, now, watched_s = QuietClock(0.0, after_s=60.0), 0.0, 0.0
    latest = 0.0
    for step in steps:
        now += step
        watched_s += min(max(0.0, now - latest), clock.look_counts_s)
        latest = max(latest, now)
        told = clock.look(now)
        assert clock.quiet_s == pytest.approx(watched_s)
        assert told is None or told >= 60.0


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        ("ok", True),
        ("rejected", True),
        ("failed", True),
        ("timeout", True),
        ("lost", False),
        ("busy", False),
        ("misrouted", False),
    ],
)
def test_an_attempt_is_progress_unless_its_request_is_as_far_as_before(outcome, counts):
    assert is_progress(AttemptEnded(POOL, Attempt(URL, outcome, 0.0, 1.0), 0)) is counts


@pytest.mark.parametrize("error", [None, ErrorInfo("ValueError", "no")])
def test_a_result_is_progress_whatever_it_is(error):
    assert is_progress(RolloutFinished(RolloutRecord(RolloutKey("e", "1", 0), "chat", error=error)))


def test_a_worker_that_has_loaded_its_environment_is_progress_and_one_that_starts_or_ends_is_none():
    workers = WorkersStatus("e", "starting", 0, 1, 1, 0, 3)
    assert is_progress(WorkerReady("e", 1, 77, 2.5))
    others = (WorkerStarting("e", 2), WorkerEnded("e", 1, "died serving", "SIGSEGV", 4), WorkersChanged(workers))
    assert not any(map(is_progress, others))


def test_an_image_that_has_come_is_progress_and_one_that_is_fetched_or_fails_is_none():
    assert is_progress(ImageReady("a", "docker.io", 2.0, 5))
    others = (ImageFetching("a", "s"), ImageFailed("a", "x"), ImagesChanged(ImagesStatus("delivering", 5, 1, 0, 2)))
    assert not any(map(is_progress, others))


def test_what_only_begins_or_changes_is_no_progress():
    begun = (AttemptStarted(POOL, URL), RolloutStarted("e"), HealthChanged(POOL, URL, "a", "b", ""), Warned("x"))
    assert not any(map(is_progress, begun))
