"""How far the delivery of a known number of images is, told from events, and the lines that say so. Pure.

Knows no terminal. All instants are Unix epoch seconds (``_time``).

Invariant: what is remembered of a delivery goes when it ends.
"""

from __future__ import annotations

import attrs

from scavenge.core.figures import duration, size
from scavenge.core.image_lines import TROUBLE_CHARACTERS, image_name, took
from scavenge.core.images_view import reason, share, so_far
from scavenge.core.naming import one_line
from scavenge.core.progress_view import RecentRate
from scavenge.events import Event, ImageFailed, ImageReady, ImagesChanged
from scavenge.status import DeliveryStatus, ImagesStatus

SPEED_WINDOW_S = 10.0
NAME_CHARACTERS = 36
"""Of a longer name the end is shown: images of one family differ there."""
SOURCE_CHARACTERS = 20
BAR_CHARACTERS = 20


@attrs.define
class _Speed:
    """How fast one delivery is."""

    rate: RecentRate
    done_bytes: int


@attrs.define
class PullView:
    """The state of the delivery of ``total`` images."""

    total: int
    started_time: float
    failed: set[str] = attrs.field(factory=set)
    """Images that are not to be had."""
    came_bytes: int = 0
    _status: ImagesStatus | None = None
    _speeds: dict[tuple[str, str], _Speed] = attrs.field(factory=dict)
    """By image and source."""

    def on_event(self, event: Event, now_time: float) -> None:
        """Hear of an event."""
        match event:
            case ImagesChanged():
                self._status = event.status
                speeds = ((one.image, one.source, self._speed(one, now_time)) for one in event.status.deliveries)
                self._speeds = {(image, source): speed for image, source, speed in speeds}
            case ImageReady():
                self.came_bytes += event.size_bytes
            case ImageFailed():
                self.failed.add(event.image)
            case _:
                pass

    def _speed(self, one: DeliveryStatus, now_time: float) -> _Speed:
        speed = self._speeds.get((one.image, one.source))
        if speed is None:
            return _Speed(RecentRate(SPEED_WINDOW_S, now_time), one.done_bytes)
        speed.rate.add(max(0, one.done_bytes - speed.done_bytes), now_time)  # one that begins again goes back to 0
        speed.done_bytes = one.done_bytes
        return speed

    @property
    def left(self) -> int:
        """Images that are neither there nor failed; those under way are among them."""
        status = self._status
        return self.total if status is None else max(0, status.wanted - status.present - status.failed)

    @property
    def there(self) -> int:
        """Images that are there, those that were before included."""
        return max(0, self.total - self.left - len(self.failed))

    def share(self) -> float | None:
        """How many of the images are settled, from 0 to 1; ``None`` where there are none."""
        return 1 - min(1.0, self.left / self.total) if self.total else None

    # --- what is said

    def lines(self, now_time: float) -> list[str]:
        """All in one line, then a line for each delivery; where there is none, the reason."""
        status = self._status
        if status is None or not self.left:
            return [self.in_all(now_time)]
        below = [self._delivery(one, now_time) for one in status.deliveries] or [reason(status)]
        return [self.in_all(now_time), *below]

    def in_all(self, now_time: float) -> str:
        """Counts, size, speed and time on one line."""
        fetching = 0 if self._status is None else len(self._status.deliveries)
        counts = ((fetching, "fetching"), (max(0, self.left - fetching), "waiting"), (len(self.failed), "failed"))
        shown = [f"{self.there:,}/{self.total:,} images", *(f"{count:,} {what}" for count, what in counts if count)]
        speed = sum(one.rate.per_s(now_time) for one in self._speeds.values())
        came = f"{size(self.came_bytes)} brought" if self.came_bytes else ""
        parts = (", ".join(shown), came, _per_s(speed), duration(now_time - self.started_time))
        return " | ".join(filter(None, parts))

    def _delivery(self, one: DeliveryStatus, now_time: float) -> str:
        name, source = _end(image_name(one.image), NAME_CHARACTERS), one_line(one.source, SOURCE_CHARACTERS)
        speed = _per_s(self._speeds[one.image, one.source].rate.per_s(now_time))
        bar = _bar(share(one))
        parts = (f"{name:<{NAME_CHARACTERS}} {source}", bar, so_far(one), speed)
        return " ".join(filter(None, parts))


def ready_line(event: ImageReady) -> str:
    """That an image has come, on a line of its own."""
    return f"{image_name(event.image)}: {size(event.size_bytes)} from {event.source}{took(event)}"


def failed_line(event: ImageFailed) -> str:
    """That an image cannot be had."""
    return f"{image_name(event.image)}: not to be had: {one_line(event.why, TROUBLE_CHARACTERS)}"


def _bar(part: float | None) -> str:
    """A bar of ASCII, which every terminal has; empty where nothing is known."""
    if part is None:
        return ""
    full = int(BAR_CHARACTERS * part)
    return f"[{'#' * full}{'.' * (BAR_CHARACTERS - full)}]"


def _end(text: str, most: int) -> str:
    return text if len(text) <= most else f"…{text[1 - most :]}"


def _per_s(speed: float) -> str:
    return f"{size(speed)}/s" if speed >= 1 else ""
