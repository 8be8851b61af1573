"""Sees from outside whether the event loop still turns, and writes down what holds it up when it does not.

A thread of its own looks every second. When the loop has not beaten for :data:`BLOCKED_AFTER_S`, the stacks of all
threads go to ``blocked-N.txt`` in the run's ``logs/``, and one line to the log, once a stretch. Decides nothing else:
a loop that is held up turns again, or somebody with the stacks in hand ends the process.

A process that was stopped, or whose machine slept, is not blocked: the thread stood still too, and knows it. Nor can
the thread look while something holds the interpreter's lock; what it sees then, it sees afterwards.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType

import attrs
import trio

from scavenge.core.codeplace import code_place
from scavenge.core.quiet import QuietClock

BLOCKED_AFTER_S = 30.0
BEAT_EVERY_S = 1.0
END_WITHIN_S = 1.0
"""How long leaving waits for the thread, which may be busy with a disk that hangs."""

_log = logging.getLogger("scavenge")


@attrs.define(eq=False)
class Lookout:
    """Watches the event loop of the thread that enters it, until it is left; a context manager.

    ``folder`` is where stacks are written; ``tell`` is called in the lookout's thread, with one line.
    """

    folder: Path
    tell: Callable[[str], None] = _log.warning
    blocked_after_s: float = BLOCKED_AFTER_S
    look_every_s: float = BEAT_EVERY_S
    _beats: int = 0
    _seen: int = 0
    """The beats at the last look."""
    _clock: QuietClock = attrs.field(init=False)
    _loop_thread: int = attrs.field(factory=threading.get_ident, init=False)
    _left: threading.Event = attrs.field(factory=threading.Event, init=False)
    _thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._clock = QuietClock(time.monotonic(), self.blocked_after_s, 2 * self.look_every_s, again=False)
        self._thread = threading.Thread(target=self._run, name="lookout", daemon=True)

    def beat(self) -> None:
        """Say that the loop turns."""
        self._beats += 1

    async def run_beats(self) -> None:
        """Beat once a second until cancelled."""
        while True:
            self.beat()
            await trio.sleep(BEAT_EVERY_S)

    def look(self, now: float) -> None:
        """Look once, and tell when it is time to. *now* is the monotonic time."""
        beats, seen = self._beats, self._seen
        self._seen = beats
        if beats != seen:
            self._clock.on_sign(now)
        elif (silent_s := self._clock.look(now)) is not None:
            self._report(silent_s)

    def __enter__(self) -> Lookout:
        self._loop_thread = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._left.set()
        self._thread.join(END_WITHIN_S)

    def _run(self) -> None:
        while not self._left.wait(self.look_every_s):
            self.look(time.monotonic())

    def _report(self, silent_s: float) -> None:
        frames = sys._current_frames()
        stuck = frames.get(self._loop_thread)
        place = "its thread has ended" if stuck is None else f"it is held up in {_place(stuck)}"
        text = "\n".join(_stacks(frames, self._loop_thread))
        self.tell(f"the event loop has not turned for {silent_s:.0f} s: {place}; {self._write(text)}")

    def _write(self, text: str) -> str:
        """Keep the stacks in a file that is not there yet, and say where."""
        number = 1
        while True:
            path = self.folder / f"blocked-{number}.txt"
            try:
                with open(path, "x", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(text)
            except FileExistsError:
                number += 1
            except OSError as exc:
                return f"its stacks cannot be written to {path}: {exc.strerror}"
            else:
                return f"see {path}"


def _stacks(frames: dict[int, FrameType], first: int) -> Iterator[str]:
    """The stacks of all other threads as text, the one of the event loop first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident in sorted(frames.keys() - {threading.get_ident()}, key=lambda one: (one != first, one)):
        what = ", the event loop" if ident == first else ""
        yield f"thread {names.get(ident, ident)}{what}:"
        yield "".join(traceback.format_stack(frames[ident]))


def _place(frame: FrameType) -> str:
    module = str(frame.f_globals.get("__name__", ""))
    return code_place(frame.f_code.co_filename, module, frame.f_lineno, frame.f_code.co_qualname)
