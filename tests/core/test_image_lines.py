"""Log lines of container images: their words, and that what is alike does not flood."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.image_lines import HUB_REMEDY, ImageLines, Line, LogPace, Repeats, image_name
from scavenge.events import Event, ImageFailed, ImageFetching, ImageReady, ImageReleased, ImagesChanged, ImageTrouble
from scavenge.status import ImagesStatus

PYTHON = "docker.io/library/python:3.12"
FETCHING = ImagesStatus("delivering", wanted=5, present=1, failed=0, waiting=2)
FULL = attrs.evolve(FETCHING, state="disk-bound", why="no room on disk: 3.1 GB\nfree")
SILENT = attrs.evolve(FETCHING, state="silent", why="the container engine does not answer: refused")


def told(lines: ImageLines, *events: Event) -> list[Line]:
    """The lines of some events that are not only for debugging."""
    found = [lines.line(event) for event in events]  # type: ignore[arg-type]  # each is an image's
    return [line for line in found if line is not None and line.level != "debug"]


def denied(number: int, outcome: str = "denied", source: str = "docker.io") -> ImageTrouble:
    return ImageTrouble(f"docker.io/a/b:{number}", source, outcome, "no such repository")


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (PYTHON, "python:3.12"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
        ("ghcr.io/a/b@sha256:" + "0123456789ab" + "0" * 52, "ghcr.io/a/b@sha256:0123456789ab…"),
        ("docker.io/a/" + "b" * 200 + ":1", "a/" + "b" * 77 + "…"),
    ],
)
def test_an_image_is_told_as_people_write_it_and_cut(image, name):
    assert image_name(image) == name


@given(st.text(max_size=60))
def test_any_text_has_a_name_of_one_line(text: str):
    assert "\n" not in image_name(text)


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (ImageFetching(PYTHON, "shipments"), "debug", "image python:3.12 is being fetched from shipments"),
        (
            ImageReady(PYTHON, "docker.io", 34.04, 1_200_000_000),
            "debug",
            "image python:3.12 is there: 1.2 GB from docker.io in 34.0 s",
        ),
        (
            ImageReady(PYTHON, "docker.io", 250.0, 20_000_000_000),
            "debug",
            "image python:3.12 is there: 20 GB from docker.io in 4:10",
        ),
        (
            ImageTrouble(PYTHON, "quay.io", "throttled", "too many\nrequests", 900.0),
            "warning",
            "image python:3.12: quay.io: throttled (too many requests), again in 15:00",
        ),
        (
            ImageTrouble(PYTHON, "docker.io", "throttled", "toomanyrequests", 900.0),
            "warning",
            f"image python:3.12: docker.io: throttled (toomanyrequests), again in 15:00; {HUB_REMEDY}",
        ),
        (
            ImageTrouble(PYTHON, "docker.io", "denied", "wrong password"),
            "warning",
            "image python:3.12: docker.io: denied (wrong password), not asked for it again",
        ),
        (
            ImageTrouble(PYTHON, "docker.io", "broken", "unexpected EOF", 2.0),
            "info",
            "image python:3.12: docker.io: broken (unexpected EOF), again in 0:02",
        ),
        (
            ImageTrouble(PYTHON, "shipments", "missing", "not in any of 3 archives"),
            "debug",
            "image python:3.12: shipments: missing (not in any of 3 archives), not asked for it again",
        ),
        (
            ImageTrouble(PYTHON, "docker.io", "engine silent", "refused", 1.0),
            "debug",
            "image python:3.12: docker.io: engine silent (refused), again in 0:01",
        ),
        (
            ImageFailed(PYTHON, "shipments: not in any tar; docker.io: denied"),
            "warning",
            (
                "image python:3.12 is not to be had, samples that need it are errors: shipments: not in any tar; "
                "docker.io: denied"
            ),
        ),
        (ImageReleased(PYTHON), "debug", "image python:3.12 is removed"),
        (ImageReleased(PYTHON, "a container\nhas it"), "debug", "image python:3.12 is left: a container has it"),
        (ImagesChanged(FULL), "warning", "no room on disk: 3.1 GB free"),
        (ImagesChanged(attrs.evolve(FULL, why="")), "warning", "no room on disk"),
        (ImagesChanged(SILENT), "warning", "the container engine does not answer: refused"),
        (ImagesChanged(attrs.evolve(SILENT, why="")), "warning", "the container engine does not answer"),
    ],
)
def test_what_happens_to_an_image_is_told_in_words(event, level, text):
    assert ImageLines().line(event) == Line(level, text)


@pytest.mark.parametrize("state", ["idle", "delivering", "waiting"])
def test_a_state_that_is_the_progresss_to_tell_is_no_line(state):
    assert ImageLines().line(ImagesChanged(attrs.evolve(FETCHING, state=state))) is None


def test_a_hundred_images_that_fail_alike_make_a_few_lines_which_count_them():
    found = told(ImageLines(), *(denied(number) for number in range(100)))
    assert [line.text.partition("not asked for it again")[2] for line in found] == [
        "", *(f" (number {number} of the kind)" for number in (2, 4, 8, 16, 32, 64)),
    ]  # fmt: skip
    found = told(ImageLines(), *(ImageFailed(f"docker.io/a/b:{number}", "x") for number in range(100)))
    assert len(found) == 7
    assert found[-1].text.endswith("x (number 64 of the kind)")


def test_what_is_not_told_is_there_for_debugging():
    lines = ImageLines()
    found = [lines.line(denied(number)) for number in range(3)]
    assert [line.level for line in found if line is not None] == ["warning", "warning", "debug"]


def test_each_source_and_each_outcome_has_its_first_line():
    events = (*(denied(number, source=f"s{number}") for number in range(4)), denied(0, "unfit", "s0"))
    assert len(told(ImageLines(), *events)) == 5


def test_an_image_whose_trouble_goes_on_is_told_once():
    assert len(told(ImageLines(), *[denied(1)] * 50)) == 1
    assert len(told(ImageLines(), *[denied(1)] * 50, denied(2))) == 2


def test_the_remedy_is_told_once():
    events = (denied(number, "throttled") for number in range(4))
    assert [HUB_REMEDY in line.text for line in told(ImageLines(), *events)] == [True, False, False]


def test_a_silence_of_the_engine_is_told_when_it_begins_and_when_it_is_over():
    events = [ImagesChanged(one) for one in (FETCHING, SILENT, attrs.evolve(SILENT, waiting=9), FETCHING, FETCHING)]
    assert told(ImageLines(), *events) == [
        Line("warning", "the container engine does not answer: refused"),
        Line("info", "the container engine answers again"),
    ]


def test_a_silence_of_the_engine_is_told_with_its_remedy():
    why = f"the container engine does not answer: container engine at unix:///{'x' * 100}: no such socket; see its log"
    (line,) = told(ImageLines(), ImagesChanged(attrs.evolve(SILENT, why=why)))
    assert line.text == why


def test_images_that_come_and_go_at_the_edge_of_the_disk_are_told_seldom():
    events = [ImagesChanged(one) for one in (FULL, FETCHING) * 100]
    assert len(told(ImageLines(), *events)) == 7


@given(st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=200))
def test_repeats_tell_the_first_and_at_most_one_each_time_their_number_doubles(images: list[str]):
    repeats = Repeats()
    found = [repeats.before(image) for image in images]
    due = [before for before in found if before is not None]
    assert due[:1] == [0][: len(images)]
    assert all(later + 1 >= 2 * (earlier + 1) for earlier, later in pairwise(due))
    named = [image for image, before in zip(images, found, strict=True) if before is not None and image]
    assert len(named) == len(set(named))


def test_the_event_log_has_a_status_every_ten_seconds_and_each_that_is_of_another_kind():
    pace = LogPace()
    statuses = [
        (0.0, FETCHING, True),
        (1.0, attrs.evolve(FETCHING, present=2), False),
        (9.9, FETCHING, False),
        (10.0, FETCHING, True),
        (11.0, attrs.evolve(FETCHING, waiting=3), False),
        (12.0, attrs.evolve(FETCHING, waiting=0), True),
        (13.0, attrs.evolve(FETCHING, waiting=0, failed=1), True),
        (14.0, SILENT, True),
        (5.0, SILENT, True),
        (6.0, SILENT, False),
    ]
    assert [pace.is_due(status, 1e9 + now) for now, status, _ in statuses] == [due for _, _, due in statuses]
