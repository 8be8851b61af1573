"""Signals become the end of the work: the first one stops the run, one that comes much later ends the process.

A plain signal handler decides, not a task, so that the later signal works even where a loop that never gives way keeps
every task from running. Knows neither files nor processes: what a signal does is handed in.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import trio

PATIENCE_S = 10.0
"""How long cleaning up may take before another signal ends the process."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_end_the_run(
    stop: Callable[[signal.Signals], None], kill: Callable[[signal.Signals], None], clock: Callable[[], float]
) -> Iterator[None]:
    """While the block runs, call *stop* in the event loop at the first SIGINT or SIGTERM.

    Another one that comes :data:`PATIENCE_S` or more after it, by *clock* in seconds, calls *kill* at once; one that
    comes sooner does nothing. Belongs in the main thread.
    """
    token = trio.lowlevel.current_trio_token()
    first_at: float | None = None

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal first_at
        if first_at is None:
            first_at = clock()
            token.run_sync_soon(stop, signal.Signals(number))
        elif clock() - first_at >= PATIENCE_S:
            kill(signal.Signals(number))

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
