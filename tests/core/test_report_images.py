"""What a report tells of container images."""

from __future__ import annotations

import pytest

from report_kit import began, event, history, report
from scavenge.core.report import images
from scavenge.core.report.history import IMAGES_TOLD
from scavenge.core.report.images import ImageStories
from scavenge.core.report.pools import OTHERS


def ready(at: float, image: str, source: str = "docker.io", seconds: float = 2.0, size: int = 5_000_000):
    return event("ImageReady", at, image=image, source=source, seconds=seconds, size_bytes=size)


def trouble(at: float, source: str = "docker.io", outcome: str = "broken"):
    return event("ImageTrouble", at, image="a", source=source, outcome=outcome, why="x", retry_s=2.0)


def failed(at: float, image: str, why: str = "docker.io: denied"):
    return event("ImageFailed", at, image=image, why=why)


def test_a_run_without_images_has_no_table_of_them():
    assert report(began()).tables == ()


def test_the_images_are_told_by_source_the_slowest_first_and_those_that_failed():
    lines = [ready(1, "a"), ready(2, "b", seconds=90.0), ready(3, "c", "shipments"), failed(4, "d")]
    sources, came, missing = report(began(), *lines, trouble(5), trouble(6), trouble(7, outcome="denied")).tables
    assert sources.head[0] == "source"
    assert sources.rows == (
        ("docker.io", "2", "10 MB", "1m32s", "46.0s", "1m30s", "2 broken, 1 denied"),
        ("shipments", "1", "5.0 MB", "2.0s", "2.0s", "2.0s", "–"),
    )
    assert came.title == "container images that were brought"
    assert came.rows == (
        ("b", "docker.io", "1m30s", "5.0 MB"),
        ("a", "docker.io", "2.0s", "5.0 MB"),
        ("c", "shipments", "2.0s", "5.0 MB"),
    )
    assert missing.rows == (("d", "docker.io: denied"),)


def test_a_source_of_which_nothing_came_has_its_troubles_only():
    (sources,) = report(began(), trouble(1, "mirror", "denied")).tables
    assert sources.rows == (("mirror", "0", "–", "–", "–", "–", "1 denied"),)


def test_of_very_many_images_the_slowest_and_the_first_that_failed_are_kept(monkeypatch):
    monkeypatch.setattr(images, "MOST_KEPT", 3)
    stories = ImageStories()
    for number in range(10):
        stories.ready(str(number), "s", float(number % 7), 1.0)
        stories.failed(str(number), "x")
    _, came, missing = stories.tables()
    assert came.title == "container images that were brought: the 3 that took longest, of 10"
    assert [row[0] for row in came.rows] == ["6", "5", "4"]
    assert missing.title == "container images that no source gives: the first 3, of 10"
    assert [row[0] for row in missing.rows] == ["0", "1", "2"]


def test_sources_and_outcomes_without_end_are_put_together():
    stories = ImageStories()
    for number in range(images.MOST_SOURCES + 5):
        stories.ready("a", f"s{number}", 1.0, 1.0)
    for number in range(images.MOST_OUTCOMES + 5):
        stories.trouble("s0", f"o{number}")
    sources, _ = stories.tables()
    assert [row[:2] for row in sources.rows][-1] == (OTHERS, "5")
    assert sources.rows[0][-1].endswith(", 5 other")


def test_the_first_images_that_failed_are_moments():
    found = history(began(), *(failed(number, f"i{number}") for number in range(50)))
    told = [(noted.what, noted.text) for noted in found.moments.first]
    assert len(told) == IMAGES_TOLD
    assert told[0] == ("no image", "i0: docker.io: denied")


@pytest.mark.parametrize(
    "line",
    [
        ready(1, "a", seconds=-1.0),
        event("ImageReady", 1, image="a", source="s", seconds=1.0, size_bytes="5"),
        event("ImageTrouble", 1, image="a", source=None, outcome="broken"),
        event("ImageFailed", 1, image="a", why=5),
    ],
)
def test_a_line_with_a_value_of_the_wrong_type_is_left_out_whole(line):
    found = history(began(), line)
    assert (found.spoilt, found.images.tables(), found.moments.first) == (1, (), [])
