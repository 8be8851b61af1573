"""The terminal, or what standard error is instead: the one way to it, for log lines and progress alike. No policy.

What is said is redacted first. Where the stream is no terminal, or a dumb one, only whole lines are written, never a
control code.

Invariant: a stream that went away costs what is said, never the run; after its first error nothing is written to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import attrs

from scavenge.core.redaction import Redactor

if TYPE_CHECKING:
    from rich.console import Console, Group

DUMB = frozenset({"", "dumb", "unknown"})
BAR_CHARACTERS = 60


@attrs.frozen
class Drawing:
    """What is drawn in place: lines, each cut to the width, below a bar when ``share`` (0 to 1) is known."""

    lines: Sequence[str]
    share: float | None = None


@attrs.define(eq=False)
class Screen:
    """Standard error, or another stream for people. ``interactive`` tells whether drawing in place works there."""

    stream: TextIO
    redact: Redactor
    interactive: bool
    _console: Console | None = None
    """There while something is drawn: lines that are said then go above the drawing."""
    _gone: bool = False

    @classmethod
    def on(cls, stream: TextIO, environ: Mapping[str, str]) -> Screen:
        """A screen that knows from the environment what it can do and what it must not show."""
        able = stream.isatty() and environ.get("TERM", "") not in DUMB
        return cls(stream, Redactor.of_environ(environ), able)

    @property
    def gone(self) -> bool:
        """Whether the stream went away, so that nobody sees what is said."""
        return self._gone

    def say(self, text: str) -> None:
        """Write a text and a line break. Never raises because of the stream."""
        text = self.redact(text)
        console = self._console
        if console is None:
            self._write(lambda: print(text, file=self.stream, flush=True))
        else:
            self._write(lambda: console.print(text, soft_wrap=True, markup=False, highlight=False, emoji=False))

    @contextmanager
    def drawing(self) -> Iterator[Callable[[Drawing], None]]:
        """Draw in place while the block runs: it gets a function that replaces the drawing. It is wiped at the end."""
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self.stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
        last: Drawing | None = None

        def draw(drawing: Drawing) -> None:
            nonlocal last
            if drawing != last:
                last = drawing
                shown = self._renderable(drawing)
                self._write(lambda: live.update(shown, refresh=True))

        self._write(live.start)
        self._write(lambda: console.show_cursor(True))  # a process that is killed leaves the terminal as it was
        self._console = console
        try:
            yield draw
        finally:
            self._console = None
            self._write(live.stop)

    def _renderable(self, drawing: Drawing) -> Group:
        from rich.console import Group
        from rich.padding import Padding
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        lines = [Text(self.redact(line), no_wrap=True, overflow="crop") for line in drawing.lines]
        if drawing.share is None:
            return Group(*lines)
        bar = ProgressBar(total=1.0, completed=drawing.share, width=BAR_CHARACTERS)
        return Group(Padding(bar, 0), *lines)  # a bar by itself does not end its line

    def _write(self, write: Callable[[], object]) -> None:
        if self._gone:
            return
        try:
            write()
        except BlockingIOError:  # somebody made the stream non-blocking and it is full: only this text is lost
            pass
        except (OSError, ValueError):  # the pipe broke, the terminal hung up, the stream was closed
            self._gone = True
