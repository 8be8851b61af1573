"""What the page on waiting runs shows is what the code says, and its numbers are the code's."""

from __future__ import annotations

import attrs
from pages import read, words

from scavenge.core.progress_view import ProgressView
from scavenge.core.quiet import QUIET_AFTER_S
from scavenge.core.stalled_text import stalled_line
from scavenge.edge.lookout import BLOCKED_AFTER_S
from scavenge.events import ImagesChanged, NetworkLost, PoolWaiting, SourceChanged, WorkersChanged
from scavenge.runtime.picture import LEASES_MOST, TASKS_MOST, WAITING_MOST
from scavenge.status import (
    DeliveryStatus,
    EndpointStatus,
    ImagesStatus,
    LeaseStatus,
    Picture,
    PoolPicture,
    PoolStatus,
    WaitingStatus,
    WorkersStatus,
)
from scavenge.types import EndpointId, Url

PAGE = read("how-to/find-out-why-a-run-waits.md")
SHOWN = [line.strip() for line in PAGE.splitlines() if line.startswith("    ")]
POOL, URL = EndpointId("my-model"), Url("http://10.0.0.8:8000/v1")


def test_the_notes_of_the_progress_are_as_shown():
    view = ProgressView(0.0)
    view.on_event(SourceChanged("endpoints.toml", False, "endpoints.toml: no such file"), 58.0)
    view.on_event(NetworkLost(3, "no route to host"), 210.0)
    view.on_event(PoolWaiting(POOL, 0.0, f"{URL} is ejected (connection refused)"), 220.0)
    view.on_event(WorkersChanged(WorkersStatus("guessing", "starting", 0, 1, 1, 0, 8)), 243.0)
    coming = DeliveryStatus("docker.io/library/python:3.12", "docker.io", 540_000_000, 1_200_000_000, 47.0)
    view.on_event(ImagesChanged(ImagesStatus("delivering", 50, 12, 0, 8, (coming,))), 202.0)
    assert view.notes(250.0) == SHOWN[1:6]


def test_the_line_of_the_log_is_as_shown():
    states = [EndpointStatus(URL, state, "", 0, 8) for state in ("live", "live", "ejected")]
    pool = PoolPicture(
        PoolStatus(POOL, tuple(states), 12),
        leases=(LeaseStatus(URL, 1, 250.0),),
        leases_in_all=3,
        waiting=(WaitingStatus(1, 298.0),),
        places=0,
        places_waiting=0,
        stalled_s=0.0,
        why="",
    )
    workers = WorkersStatus("guessing", "ready", 2, 0, 2, 15, 0)
    line = stalled_line(300.0, Picture((pool,), (), None, (), 0, (workers,)))
    assert f"{line}; the full picture is in events.jsonl" == SHOWN[6]


def test_the_numbers_are_those_of_the_code():
    assert f"for {QUIET_AFTER_S:g} seconds, whatever the cause" in PAGE
    assert f"After {BLOCKED_AFTER_S:g} seconds of that" in PAGE
    assert {LEASES_MOST, WAITING_MOST, TASKS_MOST} == {200}
    assert "at most 200 each" in PAGE


def test_the_keys_of_a_picture_are_keys_that_it_has():
    told = words(PAGE.partition("**3.")[2].partition("**4.")[0].replace("```", ""))
    keys = {field.name for kind in (Picture, PoolPicture) for field in attrs.fields(kind)} | {"stack"}
    assert {"status", "leases", "waiting", "places", "places_waiting", "why", "stalled_s", "tasks"} - {"tasks"} <= set(
        told
    )
    assert {word for word in told if word.islower() and "." not in word} <= keys
