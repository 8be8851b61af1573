"""What is said of workers: in words, and in the progress while an evaluation has too few of them."""

from __future__ import annotations

import attrs
import pytest

from scavenge.core.progress_view import ProgressView
from scavenge.core.workers_view import DEATHS, FAILURES, WorkersView, ended_text, state_text, wait_text
from scavenge.events import (
    EvalGaveUp,
    EvalSized,
    Event,
    RolloutFinished,
    RunStarted,
    RunStopping,
    WorkerEnded,
    WorkersChanged,
)
from scavenge.rollouts import RolloutKey, RolloutRecord
from scavenge.status import WorkersStatus

T0 = 1_000_000.0
LOADING = WorkersStatus("math", "starting", ready=0, starting=1, wanted=2, playing=0, parked=8)
READY = WorkersStatus("math", "ready", ready=2, starting=0, wanted=2, playing=20, parked=0)
FEW = attrs.evolve(READY, state="degraded", ready=1, why="worker 2 died loading: exit code 1")
EMPTY = attrs.evolve(LOADING, state="empty", starting=0, why="worker 1 died serving: SIGSEGV")
OVER = attrs.evolve(READY, state="closed", ready=0, wanted=0, playing=0)


def view_after(*statuses: WorkersStatus, now_time: float = T0) -> WorkersView:
    view = WorkersView()
    for status in statuses:
        view.changed(status, now_time)
    return view


@pytest.mark.parametrize(
    ("how", "why", "displaced", "log", "text"),
    [
        (
            "died serving",
            "SIGSEGV",
            4,
            "l/x.log",
            "died serving (SIGSEGV), 4 rollouts are played elsewhere; see l/x.log",
        ),
        ("died serving", "hung", 1, "", "died serving (hung), 1 rollout is played elsewhere"),
        ("died loading", "exit code 1", 0, "", "died loading (exit code 1)"),
        ("not spawned", "no\nmemory", 0, "", "cannot be started (no memory)"),
        ("retired", "", 0, "l/x.log", "is retired"),
        ("retired", "exit code 0", 0, "", "is retired (exit code 0)"),
    ],
)
def test_the_end_of_a_worker_is_told_in_words(how, why, displaced, log, text):
    assert ended_text(WorkerEnded("math", 3, how, why, displaced, log)) == f"worker 3 {text}"


def test_only_a_process_that_was_there_dies():
    assert {"not spawned"} == FAILURES - DEATHS


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (LOADING, "no worker is ready, one is loading"),
        (attrs.evolve(LOADING, starting=3, why="x"), "no worker is ready, 3 are loading: x"),
        (READY, "2 of 2 workers ready"),
        (attrs.evolve(READY, wanted=1, ready=1, starting=1), "1 of 1 worker ready, 1 starting"),
        (attrs.evolve(READY, wanted=1), "2 of 2 workers ready"),
        (FEW, "1 of 2 workers ready: worker 2 died loading: exit code 1"),
        (EMPTY, "no worker: worker 1 died serving: SIGSEGV"),
    ],
)
def test_the_state_of_workers_is_told_in_words(status, text):
    assert state_text(status) == text


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (LOADING, "math: no worker is ready, one is loading, 8 rollouts wait for one"),
        (READY, "math: 2 of 2 workers ready, 20 rollouts in them"),
        (
            attrs.evolve(FEW, playing=1, parked=1, why="out of\nmemory"),
            "math: 1 of 2 workers ready, 1 rollout in them, 1 rollout waits for one: out of memory",
        ),
    ],
)
def test_a_quiet_run_tells_of_the_rollouts_in_workers_and_of_those_that_wait(status, text):
    assert wait_text(status) == text


def test_an_evaluation_without_a_worker_is_told_with_its_age_until_one_is_ready():
    view = view_after(LOADING)
    assert list(view.notes(T0 + 12)) == ["eval math has had no worker for 0:12: one is loading"]
    view.changed(EMPTY, T0 + 30)
    assert list(view.notes(T0 + 40)) == ["eval math has had no worker for 0:40: worker 1 died serving: SIGSEGV"]
    view.changed(attrs.evolve(LOADING, starting=2, why="worker 1 died"), T0 + 50)
    assert list(view.notes(T0 + 50)) == ["eval math has had no worker for 0:50: worker 1 died; 2 are loading"]
    assert view.without() == ("math",)
    view.changed(READY, T0 + 60)
    assert (list(view.notes(T0 + 60)), view.without()) == ([], ())


def test_an_evaluation_with_too_few_workers_is_told_with_what_failed():
    view = view_after(READY)
    view.changed(FEW, T0 + 5)
    assert list(view.notes(T0 + 65)) == [
        "eval math has had too few workers for 1:00 (1 of 2): worker 2 died loading: exit code 1"
    ]
    assert view.without() == ()


def test_of_many_evaluations_with_too_few_workers_the_first_three_are_told():
    view = view_after(*(attrs.evolve(LOADING, eval=f"e{number}") for number in range(5)))
    assert len(list(view.notes(T0))) == 4
    assert list(view.notes(T0))[-1] == "evals with too few workers: 5 in all"


def test_the_figures_are_those_of_all_evaluations_and_those_that_are_over_are_forgotten():
    view = view_after(READY, attrs.evolve(LOADING, eval="code"))
    assert view.figures() == "workers 2/4 (1 starting)"
    view.changed(attrs.evolve(OVER, eval="code"), T0)
    assert view.figures() == "workers 2/2"
    view.changed(attrs.evolve(READY, wanted=1), T0)
    assert view.figures() == "workers 2/2"
    view.changed(attrs.evolve(OVER, ready=1), T0)
    assert (view.figures(), list(view.notes(T0))) == ("", [])


# --- in the progress


def progress_after(*events: Event) -> ProgressView:
    view = ProgressView(T0)
    for event in events:
        view.on_event(event, T0)
    return view


def test_the_progress_says_why_nothing_moves_while_the_first_worker_loads():
    view = progress_after(RunStarted("runs/x", ("math",)), EvalSized("math", 2), WorkersChanged(LOADING))
    assert " | endpoints 0/0 | workers 0/2 (1 starting) | 0:07" in view.summary_line(T0 + 7)
    assert view.notes(T0 + 7) == ["eval math has had no worker for 0:07: one is loading"]


def test_no_end_is_estimated_while_an_evaluation_has_no_worker():
    finished = RolloutFinished(RolloutRecord(RolloutKey("math", "1", 0), "x"))
    view = progress_after(RunStarted("runs/x", ("math",)), EvalSized("math", 2), finished, WorkersChanged(EMPTY))
    assert view.summary_line(T0 + 5).endswith("| 0:05")
    view.on_event(WorkersChanged(READY), T0 + 5)
    assert "left" in view.summary_line(T0 + 5)


def test_a_missing_worker_is_a_hold_up_and_one_of_several_is_none():
    view = progress_after(WorkersChanged(READY))
    before = view.holdups()
    view.on_event(WorkersChanged(FEW), T0)
    assert view.holdups() == before
    view.on_event(WorkersChanged(EMPTY), T0)
    empty = view.holdups()
    assert empty != before
    view.on_event(WorkersChanged(LOADING), T0)
    assert view.holdups() == empty


def test_a_run_that_stops_and_an_evaluation_that_gave_up_miss_no_workers():
    view = progress_after(WorkersChanged(EMPTY), RunStopping("SIGINT"))
    assert view.notes(T0) == ["stopping: SIGINT"]
    assert view.holdups() == progress_after(RunStopping("SIGINT")).holdups()
    view = progress_after(WorkersChanged(EMPTY), EvalGaveUp("math", "600 s"))
    assert view.notes(T0) == ["given up: math"]


def test_a_run_without_workers_says_nothing_of_them():
    assert "workers" not in progress_after().summary_line(T0)
