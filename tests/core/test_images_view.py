"""What is said of container images in the progress while rollouts wait for them, and of a quiet run."""

from __future__ import annotations

from random import Random

import attrs
import pytest

from scavenge.core.figures import size
from scavenge.core.images.plan import ImagePlan, PlanSettings
from scavenge.core.images_view import ImagesView, share, so_far, wait_text
from scavenge.core.progress_view import ProgressView
from scavenge.events import (
    EvalSized,
    Event,
    ImageReady,
    ImagesChanged,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    RunStopping,
)
from scavenge.rollouts import RolloutKey, RolloutRecord
from scavenge.status import DeliveryStatus, ImagesStatus

T0 = 1_000_000.0
PYTHON = "docker.io/library/python:3.12"
COMING = DeliveryStatus(PYTHON, "docker.io", 540_000_000, 1_200_000_000, 20.0)
IDLE = ImagesStatus("idle", wanted=0, present=0, failed=0, waiting=0)
FETCHING = ImagesStatus("delivering", wanted=50, present=12, failed=0, waiting=8, deliveries=(COMING,))
HELD = attrs.evolve(FETCHING, state="waiting", deliveries=(), why="docker.io leaves us\nalone for 11 min")
FULL = attrs.evolve(HELD, state="disk-bound", why="no room on disk: 3.1 GB free,\n10 GB are to stay free")
SILENT = attrs.evolve(HELD, state="silent", why="the container engine does not answer: /run/docker.sock: refused")
READY = ImageReady(PYTHON, "docker.io", 34.0, 1_200_000_000)
FINISHED = RolloutFinished(RolloutRecord(RolloutKey("math", "1", 0), "x"))


def view_after(*statuses: ImagesStatus, now_time: float = T0) -> ImagesView:
    view = ImagesView()
    for status in statuses:
        view.on_event(ImagesChanged(status), now_time)
    return view


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (9_940, "9.9 kB"),
        (9_960, "10 kB"),
        (999_499, "999 kB"),
        (999_501, "1.0 MB"),
        (3_140_000_000, "3.1 GB"),
        (38_400_000_000, "38 GB"),
        (5_000_000_000_000_000, "5,000 TB"),
        (1.5, "2 B"),
    ],
)
def test_a_size_is_told_in_at_most_three_figures(size_bytes, text):
    assert size(size_bytes) == text


@pytest.mark.parametrize(
    ("done_bytes", "total_bytes", "part", "text"),
    [
        (540_000_000, 1_200_000_000, 0.45, "45 % of 1.2 GB"),
        (999, 1_000, 0.999, "99 % of 1.0 kB"),
        (2_000, 1_000, 1.0, "100 % of 1.0 kB"),
        (-5, 1_000, 0.0, "0 % of 1.0 kB"),
        (530_000_000, None, None, "530 MB"),
        (530, 0, None, "530 B"),
        (5, -1, None, "5 B"),
        (0, None, None, ""),
    ],
)
def test_how_far_a_delivery_is_is_told_as_far_as_it_is_known(done_bytes, total_bytes, part, text):
    status = DeliveryStatus(PYTHON, "docker.io", done_bytes, total_bytes, 1.0)
    assert (share(status), so_far(status)) == (part, text)


@pytest.mark.parametrize(
    ("status", "figures"),
    [
        (IDLE, ""),
        (FETCHING, "images 12/50 (1 fetching)"),
        (attrs.evolve(FETCHING, failed=3), "images 12/50 (1 fetching, 3 failed)"),
        (attrs.evolve(HELD, failed=1), "images 12/50 (1 failed)"),
        (attrs.evolve(HELD, wanted=12_000, present=3_000), "images 3,000/12,000"),
    ],
)
def test_the_figures_tell_how_many_of_the_images_that_are_needed_are_there(status, figures):
    assert view_after(status).figures() == figures


def test_nothing_is_said_where_no_image_is_needed():
    view = ImagesView()
    assert (view.figures(), list(view.notes(T0)), view.held_up(), view.stuck()) == ("", [], False, "")
    view = view_after(IDLE)
    assert (view.figures(), list(view.notes(T0)), view.held_up(), view.stuck()) == ("", [], False, "")


@pytest.mark.parametrize(
    ("status", "note"),
    [
        (
            FETCHING,
            "8 rollouts wait for images, none has come for 2:00: python:3.12 from docker.io, 45 % of 1.2 GB",
        ),
        (HELD, "8 rollouts wait for images, none has come for 2:00: docker.io leaves us alone for 11 min"),
        (
            attrs.evolve(FULL, waiting=1),
            "1 rollout waits for images, none has come for 2:00: no room on disk: 3.1 GB free, 10 GB are to stay free",
        ),
        (
            attrs.evolve(FULL, why=""),
            "8 rollouts wait for images, none has come for 2:00: no room on disk",
        ),
        (
            SILENT,
            "the container engine has not answered for 2:00 (8 rollouts wait for images): /run/docker.sock: refused",
        ),
        (attrs.evolve(SILENT, waiting=0, why=""), "the container engine has not answered for 2:00"),
        (
            attrs.evolve(HELD, why=""),
            "8 rollouts wait for images, none has come for 2:00: nothing is being fetched yet",
        ),
    ],
)
def test_what_holds_rollouts_up_is_told_with_its_age(status, note):
    view = view_after(status)
    assert list(view.notes(T0 + 120)) == [note]
    assert view.held_up()


def test_of_many_deliveries_the_first_three_are_told_and_a_reason_beside_them_too():
    many = tuple(attrs.evolve(COMING, image=f"ghcr.io/a/b:{number}", total_bytes=None) for number in range(5))
    (note,) = view_after(attrs.evolve(FETCHING, deliveries=many, why="no room for more")).notes(T0)
    assert note.endswith("; ghcr.io/a/b:2 from docker.io, 540 MB; and 2 more; no room for more")


def test_images_that_nobody_waits_for_hold_nobody_up():
    for status in (FETCHING, HELD, FULL):
        view = view_after(attrs.evolve(status, waiting=0))
        assert (list(view.notes(T0)), view.held_up(), view.stuck()) == ([], False, "")


def test_the_age_begins_anew_with_each_image_that_comes_and_not_with_other_news():
    view = view_after(FETCHING)
    view.on_event(ImagesChanged(attrs.evolve(FETCHING, waiting=20)), T0 + 30)
    view.on_event(ImagesChanged(HELD), T0 + 40)
    assert "for 1:00: " in next(view.notes(T0 + 60))
    view.on_event(READY, T0 + 60)
    assert "for 0:10: " in next(view.notes(T0 + 70))
    view.on_event(ImagesChanged(attrs.evolve(FETCHING, present=13)), T0 + 80)
    assert "for 0:05: " in next(view.notes(T0 + 85))
    view.on_event(ImagesChanged(attrs.evolve(FETCHING, waiting=0)), T0 + 90)
    view.on_event(ImagesChanged(FETCHING), T0 + 100)
    assert "for 0:01: " in next(view.notes(T0 + 101))


def test_the_age_of_a_silence_is_that_of_the_engine_whatever_comes_meanwhile():
    view = view_after(FETCHING)
    view.on_event(ImagesChanged(SILENT), T0 + 30)
    view.on_event(READY, T0 + 40)
    view.on_event(ImagesChanged(attrs.evolve(SILENT, present=20, waiting=0)), T0 + 50)
    assert "for 0:30" in next(view.notes(T0 + 60))


def test_rollouts_are_stuck_while_nothing_is_fetched():
    assert [view_after(status).stuck() for status in (FETCHING, HELD, FULL, SILENT)] == [
        "", "waiting", "disk-bound", "silent",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (FETCHING, "12 of 50 there, 8 rollouts wait for images: python:3.12 from docker.io, 45 % of 1.2 GB"),
        (attrs.evolve(FETCHING, waiting=0, failed=2), "12 of 50 there, 2 failed"),
        (
            attrs.evolve(SILENT, waiting=0),
            "12 of 50 there: the container engine does not answer: /run/docker.sock: refused",
        ),
    ],
)
def test_a_quiet_run_tells_of_the_rollouts_that_wait_and_what_for(status, text):
    assert wait_text(status) == text


# --- in the progress


def progress_after(*events: Event) -> ProgressView:
    view = ProgressView(T0)
    for event in (RunStarted("runs/x", ("math",)), EvalSized("math", 2), *events):
        view.on_event(event, T0)
    return view


def test_the_progress_says_why_nothing_moves_while_the_first_image_comes():
    view = progress_after(ImagesChanged(FETCHING))
    assert " | endpoints 0/0 | images 12/50 (1 fetching) | 0:07" in view.summary_line(T0 + 7)
    (note,) = view.notes(T0 + 7)
    assert note.startswith("8 rollouts wait for images, none has come for 0:07: ")
    view.on_event(READY, T0 + 8)
    (note,) = view.notes(T0 + 9)
    assert " for 0:01: " in note


def test_no_end_is_estimated_while_images_hold_all_rollouts_up():
    view = progress_after(RolloutStarted("math"), FINISHED, ImagesChanged(HELD))
    assert view.summary_line(T0 + 5).endswith("| 0:05")
    view.on_event(RolloutStarted("math"), T0 + 5)
    assert "left" in view.summary_line(T0 + 5)


def test_a_run_that_is_stuck_for_its_images_is_a_hold_up_and_one_that_fetches_or_plays_is_none():
    view = progress_after(ImagesChanged(FETCHING))
    before = view.holdups()
    view.on_event(ImagesChanged(HELD), T0)
    held = view.holdups()
    assert held != before
    view.on_event(ImagesChanged(attrs.evolve(HELD, waiting=9, why="docker.io leaves us alone for 10 min")), T0)
    assert view.holdups() == held
    view.on_event(RolloutStarted("math"), T0)
    assert view.holdups() == before


def test_a_run_that_stops_waits_for_no_image():
    view = progress_after(ImagesChanged(HELD), RunStopping("SIGINT"))
    assert view.notes(T0) == ["stopping: SIGINT"]
    assert view.holdups() == progress_after(RunStopping("SIGINT")).holdups()


def test_a_run_without_images_says_nothing_of_them():
    assert "images" not in progress_after().summary_line(T0)


# --- what the plan says


def test_a_silence_that_the_plan_tells_of_reads_well_wherever_it_is_shown():
    plan = ImagePlan(PlanSettings(), Random(1))
    plan.register(PYTHON, ["docker.io"], 0.0)
    plan.wait_all([PYTHON], 0.0)
    plan.decide(0.0)
    plan.unlisted("/run/docker.sock: refused", 1.0)
    status = plan.status(1.0)
    (note,) = view_after(status).notes(T0)
    assert note == (
        "the container engine has not answered for 0:00 (1 rollout waits for images): /run/docker.sock: refused"
    )
    assert wait_text(status) == (
        "0 of 1 there, 1 rollout waits for images: the container engine does not answer: /run/docker.sock: refused"
    )
