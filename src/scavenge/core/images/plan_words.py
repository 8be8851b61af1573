"""What the plan says in words: why an image is not there, in one line. Decides nothing."""

from __future__ import annotations

import math

from scavenge.core.figures import size
from scavenge.images import Broken, Denied, DiskFull, EngineSilent, Missing, Throttled, Transferred, Unfit

LONGEST = 300
"""Characters of what somebody else said."""

_OUTCOMES: dict[type, str] = {
    Missing: "missing",
    Denied: "denied",
    Throttled: "throttled",
    Unfit: "unfit",
    Broken: "broken",
    DiskFull: "disk full",
    EngineSilent: "engine silent",
}


def outcome_of(end: object) -> str:
    """How a failed delivery ended, as events have it."""
    return _OUTCOMES[type(end)]


def one_line(text: str) -> str:
    """A text of somebody else on one line, cut where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def roughly(seconds: float) -> str:
    """A duration that counts down, in whole seconds or minutes: ``40 s``, ``11 min``."""
    return f"{math.ceil(seconds)} s" if seconds <= 60 else f"{math.ceil(seconds / 60)} min"


def how_far(transferred: Transferred) -> str:
    """``45 %`` where the whole is known, else ``1.2 GB so far``."""
    if not transferred.total_bytes or transferred.total_bytes < transferred.done_bytes:
        return f"{size(transferred.done_bytes)} so far"
    return f"{100 * transferred.done_bytes // transferred.total_bytes} %"


def no_room(free_bytes: int | None, floor_bytes: int) -> str:
    """Why the disk keeps deliveries from beginning."""
    free = "" if free_bytes is None else f": {size(free_bytes)} free"
    kept = f", {size(floor_bytes)} are to stay free" if free and floor_bytes else ""
    return f"no room on disk{free}{kept}"
