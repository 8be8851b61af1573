"""What is said of the container images of a run in the progress, and of a quiet run. Pure.

Knows no engine. All instants are Unix epoch seconds (``_time``). What is said in log lines is in
:mod:`scavenge.core.image_lines`.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from scavenge.core.figures import duration, size
from scavenge.core.image_lines import DISK_BOUND, NO_ANSWER, SILENT, WHY_CHARACTERS, image_name, state_text
from scavenge.core.naming import one_line
from scavenge.events import ImageReady, ImagesChanged
from scavenge.status import DeliveryStatus, ImagesStatus

SHOWN_MOST = 3


@attrs.define
class ImagesView:
    """The images of a run as far as the progress shows them."""

    _status: ImagesStatus | None = None
    _since_time: float = 0.0
    """Since when rollouts wait and no image has come; while the engine is silent, since when it is."""

    def on_event(self, event: ImagesChanged | ImageReady, now_time: float) -> None:
        """Hear of an event."""
        if isinstance(event, ImagesChanged):
            self._changed(event.status, now_time)
        elif not self._is_silent():
            self._since_time = now_time

    def _changed(self, status: ImagesStatus, now_time: float) -> None:
        before, self._status = self._status, status
        more = before is not None and status.present > before.present and not self._is_silent()
        if before is None or _kind(before) != _kind(status) or more:
            self._since_time = now_time

    def _is_silent(self) -> bool:
        return self._status is not None and self._status.state == SILENT

    def figures(self) -> str:
        """How many are there, of how many that are needed; empty where none is."""
        status = self._status
        if status is None or not status.wanted:
            return ""
        fetching = f"{len(status.deliveries)} fetching" if status.deliveries else ""
        failed = f"{status.failed} failed" if status.failed else ""
        more = ", ".join(filter(None, (fetching, failed)))
        return f"images {status.present:,}/{status.wanted:,}" + (f" ({more})" if more else "")

    def notes(self, now_time: float) -> Iterator[str]:
        """What holds rollouts up, in one line."""
        status = self._status
        if status is None or not _kind(status):
            return
        lasted = duration(now_time - self._since_time)
        if status.state == SILENT:
            why = one_line(status.why.removeprefix(NO_ANSWER), WHY_CHARACTERS)
            waiting = f" ({_waiting(status)})" if status.waiting else ""
            yield f"the container engine has not answered for {lasted}{waiting}{why}"
        else:
            yield f"{_waiting(status)}, none has come for {lasted}: {reason(status)}"

    def held_up(self) -> bool:
        """Whether rollouts wait for images, or images cannot be asked for."""
        return self._status is not None and bool(_kind(self._status))

    def stuck(self) -> str:
        """In what state nothing is being fetched although rollouts wait; empty while they are not held up so."""
        status = self._status
        if status is None or not _kind(status) or status.deliveries:
            return ""
        return status.state


def wait_text(status: ImagesStatus) -> str:
    """How the images are and how many rollouts wait for one, for the line of a quiet run."""
    waiting = f", {_waiting(status)}" if status.waiting else ""
    failed = f", {status.failed} failed" if status.failed else ""
    why = f": {reason(status)}" if status.waiting or status.state == SILENT else ""
    return f"{status.present} of {status.wanted} there{failed}{waiting}{why}"


def _kind(status: ImagesStatus) -> str:
    """What holds rollouts up, in one word; empty where nothing does."""
    if status.state == SILENT:
        return SILENT
    return "waiting" if status.waiting else ""


def _waiting(status: ImagesStatus) -> str:
    return f"{status.waiting:,} rollout{'s wait' if status.waiting != 1 else ' waits'} for images"


def reason(status: ImagesStatus) -> str:
    """What those who wait for images wait for: the deliveries under way, or why there are none."""
    if status.state in (SILENT, DISK_BOUND):
        return state_text(status)
    told = [_delivery(one) for one in status.deliveries[:SHOWN_MOST]]
    if len(status.deliveries) > SHOWN_MOST:
        told.append(f"and {len(status.deliveries) - SHOWN_MOST} more")
    if status.why:
        told.append(one_line(status.why, WHY_CHARACTERS))
    return "; ".join(told) or "nothing is being fetched yet"


def _delivery(status: DeliveryStatus) -> str:
    return ", ".join(filter(None, (f"{image_name(status.image)} from {status.source}", so_far(status))))


def share(status: DeliveryStatus) -> float | None:
    """How much of an image has come, from 0 to 1, as far as its size is known."""
    if not status.total_bytes or status.total_bytes < 0:
        return None
    return min(1.0, max(0.0, status.done_bytes / status.total_bytes))


def so_far(status: DeliveryStatus) -> str:
    """How far a delivery is, such as ``45 % of 1.2 GB``; empty where nothing is known."""
    part = share(status)
    if part is not None and status.total_bytes is not None:
        return f"{int(100 * part)} % of {size(status.total_bytes)}"
    return size(status.done_bytes) if status.done_bytes > 0 else ""
