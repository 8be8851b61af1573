"""Shows how far images are that somebody waits for: a bar for each on a terminal, else a plain line for each that came.

What is said comes from :mod:`scavenge.core.pull_view`; what goes wrong is said as in the log of a run. For a command
that does nothing else: a run has its progress.

Invariant: the drawing is changed by the service task only; lines that are said stand above it and stay.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from scavenge.core.image_lines import TROUBLE_CHARACTERS, ImageLines
from scavenge.core.naming import one_line
from scavenge.core.pull_view import PullView, failed_line, ready_line
from scavenge.edge.console import Drawing, Screen
from scavenge.events import Event, ImageFailed, ImageReady, ImagesChanged, ImageTrouble, Warned

DRAW_EVERY_S = 0.25
LINE_EVERY_S = 30.0


@attrs.define(eq=False)
class ImageBars:
    """An observer of the delivery of ``total`` images, and what it has learnt."""

    screen: Screen
    wall_clock: Callable[[], float]
    total: int
    view: PullView = attrs.field(init=False)
    _lines: ImageLines = attrs.field(factory=ImageLines, init=False)

    def __attrs_post_init__(self) -> None:
        self.view = PullView(self.total, self.wall_clock())

    def __call__(self, event: Event) -> None:
        """Hear of an event, and say what is worth a line of its own."""
        self.view.on_event(event, self.wall_clock())
        match event:
            case ImageReady():
                if not self.screen.interactive:
                    self.screen.say(ready_line(event))
            case ImageFailed():
                self.screen.say(failed_line(event))
            case ImageTrouble() | ImagesChanged():
                line = self._lines.line(event)
                if line is not None and line.level != "debug":
                    self.screen.say(line.text)
            case Warned():
                self.screen.say(event.message)
            case _:
                pass

    def gave_up(self, image: str, text: str) -> None:
        """Nobody waits any more for an image, for the reason in *text*; one that failed was told already."""
        if image not in self.view.failed:
            self.view.failed.add(image)
            self.screen.say(one_line(text, TROUBLE_CHARACTERS))

    def drawing(self) -> Drawing:
        """The state as it is drawn on a terminal."""
        return Drawing(self.view.lines(self.wall_clock()), self.view.share())

    def line(self) -> str:
        """The state as one line."""
        return self.view.in_all(self.wall_clock())


async def run_image_bars(bars: ImageBars) -> None:
    """Show the state until cancelled. Cancelled, it wipes what it has drawn; lines stay."""
    if not bars.screen.interactive:
        while True:
            await trio.sleep(LINE_EVERY_S)
            bars.screen.say(bars.line())
    with bars.screen.drawing() as draw:
        while True:
            draw(bars.drawing())
            await trio.sleep(DRAW_EVERY_S)
