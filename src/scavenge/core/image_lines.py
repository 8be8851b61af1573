"""Log lines of container images: their words, and which of them are worth telling. Pure.

Images are told by the names that people write.

Invariant: the state does not grow with the images, but with the places that they come from. Of each kind of trouble the
first is told, and then each that comes when there are twice as many, so that a hundred alike make a few lines.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from scavenge.core.figures import duration, size
from scavenge.core.images.reference import DOCKER_HUB, familiar
from scavenge.core.naming import one_line
from scavenge.events import ImageFailed, ImageFetching, ImageReady, ImageReleased, ImagesChanged, ImageTrouble
from scavenge.status import ImagesStatus

WHY_CHARACTERS = 160
TROUBLE_CHARACTERS = 400
NAME_CHARACTERS = 80
DIGEST_CHARACTERS = 12
LOG_EVERY_S = 10.0
"""How often the event log has it where deliveries merely get on."""

SILENT, DISK_BOUND = "silent", "disk-bound"
THROTTLED = "throttled"
EXPECTED = frozenset({"missing", "engine silent"})
"""Outcomes that are no news: that one source lacks an image (that all do is), and what is told of the engine itself."""
PASSING = frozenset({"broken"})
"""Outcomes that mostly pass by themselves."""
HUB_REMEDY = "docker login gives a higher limit; [images] mirrors or shipments do without Docker Hub"
NO_ANSWER = "the container engine does not answer"
"""How the reason of a silence begins."""
ANSWERS_AGAIN = "the container engine answers again"

ImageEvent: TypeAlias = "ImageFetching | ImageReady | ImageTrouble | ImageFailed | ImageReleased | ImagesChanged"


@attrs.frozen
class Line:
    """A log line. ``level`` is ``debug``, ``info`` or ``warning``."""

    level: str
    text: str


def image_name(image: str) -> str:
    """An image as people write it, its digest cut."""
    name, at, digest = familiar(image).partition("@sha256:")
    short = f"{name}{at}{digest[:DIGEST_CHARACTERS]}…" if at else name
    return one_line(short, NAME_CHARACTERS)


def fetching_text(event: ImageFetching) -> str:
    """That a delivery begins."""
    return f"image {image_name(event.image)} is being fetched from {event.source}"


def ready_text(event: ImageReady) -> str:
    """That an image has come."""
    return f"image {image_name(event.image)} is there: {size(event.size_bytes)} from {event.source}{took(event)}"


def took(event: ImageReady) -> str:
    """How long a delivery took, to be read after what came."""
    return f" in {event.seconds:.1f} s" if event.seconds < 60 else f" in {duration(event.seconds)}"


def trouble_text(event: ImageTrouble, before: int = 0) -> str:
    """What went wrong with a delivery and when it is tried again; *before* is how many there were of the kind."""
    again = f"again in {duration(event.retry_s)}" if event.retry_s is not None else "not asked for it again"
    remedy = f"; {HUB_REMEDY}" if event.outcome == THROTTLED and event.source == DOCKER_HUB and not before else ""
    why = one_line(event.why, TROUBLE_CHARACTERS)
    told = f"image {image_name(event.image)}: {event.source}: {event.outcome} ({why}), {again}{remedy}"
    return told + _so_many(before)


def failed_text(event: ImageFailed, before: int = 0) -> str:
    """That no source gives an image; *before* is how many images failed before it."""
    why = one_line(event.why, TROUBLE_CHARACTERS)
    return f"image {image_name(event.image)} is not to be had, samples that need it are errors: {why}{_so_many(before)}"


def _so_many(before: int) -> str:
    return f" (number {before + 1} of the kind)" if before else ""


def released_text(event: ImageReleased) -> str:
    """That an image is removed, or why it is left."""
    what = f"is left: {one_line(event.why, WHY_CHARACTERS)}" if event.why else "is removed"
    return f"image {image_name(event.image)} {what}"


def state_text(status: ImagesStatus, characters: int = WHY_CHARACTERS) -> str:
    """What keeps all images from coming, for the states that are worth a warning: ``silent`` and ``disk-bound``."""
    return one_line(status.why, characters) or (NO_ANSWER if status.state == SILENT else "no room on disk")


@attrs.define
class Repeats:
    """How often something of a kind has happened, and which of it is to be told.

    That is the first, and then what comes when there are twice as many as at the last time; of one image once at most.
    """

    count: int = 0
    _due: int = 1
    _told: set[str] = attrs.field(factory=set)

    def before(self, image: str = "") -> int | None:
        """Count one more. How many came before it, where it is to be told; else ``None``."""
        self.count += 1
        if self.count < self._due or image in self._told:
            return None
        self._due = 2 * self.count
        if image:
            self._told.add(image)
        return self.count - 1


@attrs.define
class ImageLines:
    """The lines of what happens to images, given what was told."""

    _failed: Repeats = attrs.field(factory=Repeats)
    _troubles: dict[tuple[str, str], Repeats] = attrs.field(factory=dict)
    """By source and outcome."""
    _bound: Repeats = attrs.field(factory=Repeats)
    _state: str = ""

    def line(self, event: ImageEvent) -> Line | None:
        """The line of an event; ``None``: it has none."""
        match event:
            case ImageTrouble():
                return self._of_trouble(event)
            case ImageFailed():
                before = self._failed.before(event.image)
                return Line("debug" if before is None else "warning", failed_text(event, before or 0))
            case ImagesChanged():
                return self._of_state(event.status)
            case ImageFetching():
                return Line("debug", fetching_text(event))
            case ImageReady():
                return Line("debug", ready_text(event))
            case _:
                return Line("debug", released_text(event))

    def _of_trouble(self, event: ImageTrouble) -> Line:
        if event.outcome in EXPECTED:
            return Line("debug", trouble_text(event))
        before = self._troubles.setdefault((event.source, event.outcome), Repeats()).before(event.image)
        level = "debug" if before is None else "info" if event.outcome in PASSING else "warning"
        return Line(level, trouble_text(event, before or 0))

    def _of_state(self, status: ImagesStatus) -> Line | None:
        """The line of another state. Images that come and go at the edge of what the disk holds are told seldom."""
        before, self._state = self._state, status.state
        if status.state == before:
            return None
        if status.state == SILENT or (status.state == DISK_BOUND and self._bound.before() is not None):
            return Line("warning", state_text(status, TROUBLE_CHARACTERS))  # whole, with its remedy
        return Line("info", ANSWERS_AGAIN) if before == SILENT else None


@attrs.define
class LogPace:
    """Which of the statuses of a run's images are worth a line in the event log: not each second's."""

    _written_time: float = 0.0
    _kind: tuple[object, ...] = ()

    def is_due(self, status: ImagesStatus, now_time: float) -> bool:
        """Whether this one is to be written, which it then counts as. A clock that is set back holds up none."""
        kind = (status.state, status.failed, status.waiting > 0)
        if kind == self._kind and 0 <= now_time - self._written_time < LOG_EVERY_S:
            return False
        self._kind, self._written_time = kind, now_time
        return True
