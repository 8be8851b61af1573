"""Signals become the end of the work: the first one stops the run, one that comes much later ends the process.

A plain signal handler decides, not a task, so that the later signal works even where a loop that never gives way keeps
every task from running. Knows neither files nor processes: what a signal does is handed in.

Invariant: whatever the order in which several runs of one process begin and end, a signal reaches all that go on, and
when the last of them has ended the handler from before the first is in place again.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import attrs
import trio

PATIENCE_S = 10.0
"""How long cleaning up may take before another signal ends the process."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@attrs.define(eq=False, repr=False)  # `signal` writes out each handler that it is given, and nobody reads that
class _Handler:
    """One run's handler; ``before`` has what was in place when it came, which may be another run's."""

    stop: Callable[[signal.Signals], None]
    kill: Callable[[signal.Signals], None]
    clock: Callable[[], float]
    token: trio.lowlevel.TrioToken
    before: dict[signal.Signals, Any] = attrs.field(factory=dict)
    done: bool = False
    _first_at: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        below = self.before[signal.Signals(number)]
        if isinstance(below, _Handler):
            below(number, frame)
        if self.done:
            return
        if self._first_at is None:
            self._first_at = self.clock()
            self.token.run_sync_soon(self.stop, signal.Signals(number))
        elif self.clock() - self._first_at >= PATIENCE_S:
            self.kill(signal.Signals(number))


@contextmanager
def signals_end_the_run(
    stop: Callable[[signal.Signals], None], kill: Callable[[signal.Signals], None], clock: Callable[[], float]
) -> Iterator[None]:
    """While the block runs, call *stop* in the event loop at the first SIGINT or SIGTERM.

    Another one that comes :data:`PATIENCE_S` or more after it, by *clock* in seconds, calls *kill* at once; one that
    comes sooner does nothing. Belongs in the main thread.
    """
    handler = _Handler(stop, kill, clock, trio.lowlevel.current_trio_token())
    for number in SIGNALS:
        handler.before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        handler.done = True
        for number in SIGNALS:
            _drop_done(number)


def _drop_done(number: signal.Signals) -> None:
    """Put back what was in place before the topmost handlers whose runs have ended."""
    top: Any = signal.getsignal(number)
    while isinstance(top, _Handler) and top.done:
        top = top.before[number]
    signal.signal(number, signal.SIG_DFL if top is None else top)  # None: it was set outside Python
