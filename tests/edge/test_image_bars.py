"""Images that somebody waits for: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

import trio
from screen_streams import Broken, Terminal

from scavenge.edge.console import Screen
from scavenge.edge.image_bars import ImageBars, run_image_bars
from scavenge.events import ImageFailed, ImageFetching, ImageReady, ImagesChanged, ImageTrouble, Warned
from scavenge.status import DeliveryStatus, ImagesStatus

PYTHON = "docker.io/library/python:3.12"
COMING = DeliveryStatus(PYTHON, "docker.io", 500, 1_000, 0.0)
STATUS = ImagesStatus("delivering", wanted=2, present=0, failed=0, waiting=2, deliveries=(COMING,))
DONE = ImagesStatus("idle", wanted=2, present=2, failed=0, waiting=0)
READY = ImageReady(PYTHON, "docker.io", 34.0, 1_200_000_000)
FAILED = ImageFailed("docker.io/a/b:1", "docker.io: denied: key opal-zebra")
DENIED = ImageTrouble("docker.io/a/b:1", "docker.io", "denied", "no such repository")


def epoch() -> float:
    return 1_700_000_000.0 + trio.current_time()


async def told_after(seconds: float, stream: io.StringIO, *events: object) -> str:
    """What is written when the bars are shown for a while, in which these things happen."""
    bars = ImageBars(Screen.on(stream, {"TERM": "xterm", "HUB_KEY": "opal-zebra"}), epoch, total=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_image_bars, bars)
        for event in events:
            bars(event)  # type: ignore[arg-type]  # each is an event
            await trio.sleep(0.3)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    return stream.getvalue()


async def test_on_a_terminal_each_delivery_has_a_bar_which_is_wiped_at_the_end(autojump_clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    text = await told_after(1, Terminal(), ImagesChanged(STATUS))
    assert "0/2 images, 1 fetching, 1 waiting" in text
    assert "docker.io [##########..........] 50 % of 1.0 kB" in text
    assert text.endswith("\x1b[2K")


async def test_on_a_terminal_an_image_that_came_is_counted_and_one_that_failed_is_told(autojump_clock):
    text = await told_after(1, Terminal(), READY, ImagesChanged(DONE), FAILED)
    assert "1/2 images, 1 failed" in text
    assert "in 34.0 s" not in text
    assert "a/b:1: not to be had: docker.io: denied: key [secret]" in text


async def test_elsewhere_each_image_is_a_plain_line(autojump_clock):
    text = await told_after(1, io.StringIO(), ImageFetching(PYTHON, "docker.io"), ImagesChanged(STATUS), READY, FAILED)
    assert text.splitlines() == [
        "python:3.12: 1.2 GB from docker.io in 34.0 s",
        "a/b:1: not to be had: docker.io: denied: key [secret]",
    ]


async def test_elsewhere_all_are_told_in_a_line_every_30_s(autojump_clock):
    text = await told_after(70, io.StringIO(), ImagesChanged(STATUS))
    assert text.splitlines() == [f"0/2 images, 1 fetching, 1 waiting | {passed}" for passed in ("0:30", "1:00")]


async def test_troubles_are_told_as_in_a_log_without_flooding(autojump_clock):
    text = await told_after(0, io.StringIO(), *[DENIED] * 20, ImageTrouble(PYTHON, "shipments", "missing", "x"))
    assert text.splitlines() == ["image a/b:1: docker.io: denied (no such repository), not asked for it again"]


async def test_a_warning_is_told(autojump_clock):
    assert await told_after(0, io.StringIO(), Warned("credentials of docker.io cannot be read")) == (
        "credentials of docker.io cannot be read\n"
    )


async def test_a_terminal_that_went_away_ends_nothing(autojump_clock):
    stream = Broken(OSError(5, "hung up"))
    bars = ImageBars(Screen(stream, Screen.on(io.StringIO(), {}).redact, interactive=True), epoch, total=2)
    with trio.move_on_after(5) as shown:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_image_bars, bars)
            await trio.sleep(1)
            bars(FAILED)
    assert shown.cancelled_caught


def test_the_last_state_can_be_said_when_all_is_over():
    bars = ImageBars(Screen.on(io.StringIO(), {}), lambda: 0.0, total=2)
    bars(ImagesChanged(DONE))
    assert bars.line() == "2/2 images | 0:00"
    assert bars.drawing().share == 1.0


def test_an_image_that_is_waited_for_no_more_is_told_unless_it_failed():
    stream = io.StringIO()
    bars = ImageBars(Screen.on(stream, {}), lambda: 0.0, total=2)
    bars(ImagesChanged(STATUS))
    bars(FAILED)
    bars.gave_up(FAILED.image, "it failed")
    bars.gave_up(PYTHON, "has not come in 1800 s:\nbeing delivered")
    assert stream.getvalue().splitlines()[1:] == ["has not come in 1800 s: being delivered"]
    assert "2 failed" in bars.line()
