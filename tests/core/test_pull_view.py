"""How far the images are that somebody waits for, in lines."""

from __future__ import annotations

import attrs
import pytest

from scavenge.core.pull_view import PullView, failed_line, ready_line
from scavenge.events import Event, ImageFailed, ImageReady, ImagesChanged, Warned
from scavenge.status import DeliveryStatus, ImagesStatus

T0 = 1_000_000.0
PYTHON = "docker.io/library/python:3.12"
COMING = DeliveryStatus(PYTHON, "docker.io", 0, 1_000_000_000, 0.0)
STATUS = ImagesStatus("delivering", wanted=10, present=2, failed=0, waiting=8, deliveries=(COMING,))
READY = ImageReady(PYTHON, "docker.io", 34.0, 1_200_000_000)


def view_after(*events: Event, total: int = 10) -> PullView:
    view = PullView(total, T0)
    for event in events:
        view.on_event(event, T0)
    return view


def coming(done_bytes: int, total_bytes: int | None = 1_000_000_000) -> ImagesChanged:
    one = attrs.evolve(COMING, done_bytes=done_bytes, total_bytes=total_bytes)
    return ImagesChanged(attrs.evolve(STATUS, deliveries=(one,)))


def test_before_anything_is_known_all_images_are_to_come():
    view = view_after()
    assert view.lines(T0 + 5) == ["0/10 images, 10 waiting | 0:05"]
    assert view.share() == 0.0


def test_all_are_told_in_one_line_and_each_delivery_below():
    view = view_after(ImagesChanged(STATUS), READY)
    for second in range(1, 6):
        view.on_event(coming(20_000_000 * second), T0 + second)
    assert view.lines(T0 + 5) == [
        "2/10 images, 1 fetching, 7 waiting | 1.2 GB brought | 20 MB/s | 0:05",
        "python:3.12                          docker.io [##..................] 10 % of 1.0 GB 20 MB/s",
    ]
    assert view.share() == pytest.approx(0.2)


def test_a_delivery_of_which_little_is_known_has_no_bar():
    view = view_after(coming(0, None))
    assert view.lines(T0)[1] == "python:3.12                          docker.io"
    view.on_event(coming(5_000_000, None), T0 + 1)
    assert view.lines(T0 + 1)[1].split() == ["python:3.12", "docker.io", "5.0", "MB", "5.0", "MB/s"]


def test_of_a_long_name_the_end_is_shown():
    image = "docker.io/swebench/sweb.eval.x86_64.astropy_1776_astropy-12907:latest"
    status = attrs.evolve(STATUS, deliveries=(attrs.evolve(COMING, image=image, source="s" * 50),))
    line = view_after(ImagesChanged(status)).lines(T0)[1]
    assert line.startswith("…4.astropy_1776_astropy-12907:latest ssss")
    assert len(line.split(" ")[0]) == 36
    assert len(line.split(" ")[1]) == 20


def test_a_delivery_that_begins_again_has_no_speed_below_nothing_and_one_that_ended_is_forgotten():
    view = view_after(coming(100_000_000))
    view.on_event(coming(1_000), T0 + 1)
    assert "/s" not in view.lines(T0 + 1)[0]
    view.on_event(coming(20_001_000), T0 + 2)
    assert "10 MB/s" in view.lines(T0 + 2)[1]
    other = attrs.evolve(COMING, source="quay.io", done_bytes=500_000_000)
    view.on_event(ImagesChanged(attrs.evolve(STATUS, deliveries=(other,))), T0 + 3)
    assert "/s" not in view.lines(T0 + 3)[1]


def test_images_count_whether_those_that_came_are_still_needed_or_not():
    kept = attrs.evolve(STATUS, present=5, failed=1, deliveries=())
    let_go = attrs.evolve(STATUS, wanted=4, present=0, failed=0, deliveries=())
    for status in (kept, let_go):
        view = view_after(ImagesChanged(status), ImageFailed(PYTHON, "x"))
        assert (view.left, view.there, view.failed) == (4, 5, {PYTHON})
        assert view.in_all(T0) == "5/10 images, 4 waiting, 1 failed | 0:00"


def test_where_nothing_is_under_way_the_reason_is_told_until_nothing_is_left():
    held = attrs.evolve(STATUS, state="waiting", deliveries=(), why="docker.io leaves us alone for 11 min")
    assert view_after(ImagesChanged(held)).lines(T0)[1] == "docker.io leaves us alone for 11 min"
    over = attrs.evolve(STATUS, present=10, deliveries=())
    view = view_after(ImagesChanged(over))
    assert (view.lines(T0), view.share()) == (["10/10 images | 0:00"], 1.0)


def test_no_images_at_all_are_no_share():
    view = view_after(Warned("x"), total=0)
    assert (view.lines(T0), view.share()) == (["0/0 images | 0:00"], None)


def test_more_images_than_were_told_of_leave_no_count_below_nothing():
    view = view_after(ImagesChanged(attrs.evolve(STATUS, wanted=30)))
    assert (view.there, view.share()) == (0, 0.0)
    view = view_after(ImagesChanged(attrs.evolve(STATUS, wanted=1)))
    assert (view.left, view.there) == (0, 10)


def test_what_became_of_an_image_is_a_line():
    assert ready_line(READY) == "python:3.12: 1.2 GB from docker.io in 34.0 s"
    assert failed_line(ImageFailed(PYTHON, "docker.io:\ndenied")) == "python:3.12: not to be had: docker.io: denied"
