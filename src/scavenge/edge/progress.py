"""Shows how far a run is: drawn in place on a terminal, else a plain line now and then. Decides when, not what.

What is said comes from :mod:`scavenge.core.progress_view`. Invariant: hearing an event writes nothing; only the service
task does.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import attrs
import trio

from scavenge.core.progress_view import ProgressView
from scavenge.edge.console import Drawing, Screen
from scavenge.events import Event

DRAW_EVERY_S = 0.25
LOOK_EVERY_S = 0.5
FIRST_LINE_AFTER_S = 5.0
LINE_EVERY_S = 30.0


@attrs.define(eq=False)
class Progress:
    """An observer of a run's events, and what it has learnt from them."""

    screen: Screen
    wall_clock: Callable[[], float]
    view: ProgressView = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.view = ProgressView(self.wall_clock())

    def __call__(self, event: Event) -> None:
        """Hear of an event."""
        self.view.on_event(event, self.wall_clock())

    def drawing(self) -> Drawing:
        """The state as it is drawn on a terminal."""
        now_time, view = self.wall_clock(), self.view
        share = min(1.0, view.done / view.total) if view.total else None
        return Drawing([view.summary_line(now_time), *view.notes(now_time)], share)

    def line(self) -> str:
        """The state as one line, with the time in front."""
        now_time = self.wall_clock()
        parts = [self.view.summary_line(now_time), *self.view.notes(now_time)]
        return f"{datetime.fromtimestamp(now_time):%Y-%m-%d %H:%M:%S} {'; '.join(parts)}"


async def run_progress(progress: Progress) -> None:
    """Show the progress until cancelled. Cancelled, it wipes what it has drawn; lines stay."""
    if progress.screen.interactive:
        await _draw(progress)
    else:
        await _tell(progress)


async def _draw(progress: Progress) -> None:
    with progress.screen.drawing() as draw:
        while True:
            draw(progress.drawing())
            await trio.sleep(DRAW_EVERY_S)


async def _tell(progress: Progress) -> None:
    due_at = trio.current_time() + FIRST_LINE_AFTER_S
    told = progress.view.holdups()
    while True:
        await trio.sleep(LOOK_EVERY_S)
        holdups = progress.view.holdups()
        if holdups != told or trio.current_time() >= due_at:
            told = holdups
            due_at = trio.current_time() + LINE_EVERY_S
            progress.screen.say(progress.line())
