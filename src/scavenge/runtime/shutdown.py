"""Signals become the end of the work: the first one stops the run, one that comes much later ends the process.

Knows neither files nor processes: what a signal does is handed in.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import trio

PATIENCE_S = 10.0
"""How long cleaning up may take before another signal ends the process."""


async def run_signal_watcher(
    stop: Callable[[signal.Signals], None],
    kill: Callable[[signal.Signals], None],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call *stop* at the first SIGINT or SIGTERM, and *kill* at one that comes :data:`PATIENCE_S` or more after it."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        stopped_at: float | None = None
        async for number in signals:
            if stopped_at is None:
                stopped_at = trio.current_time()
                stop(signal.Signals(number))
            elif trio.current_time() - stopped_at >= PATIENCE_S:
                kill(signal.Signals(number))
