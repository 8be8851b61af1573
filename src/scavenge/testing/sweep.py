"""Cancellation at every step: runs a piece of code again and again, cancelled a little later each time.

A task can be cancelled while it waits, and also between the moment it is woken and the moment it runs, when what it
waited for is already its own. Code that loses something then leaks once in a million runs; the sweep tries every such
moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from trio.testing import MockClock


class _Knife(trio.abc.Instrument):
    """Cancels ``scope`` at the n-th moment at which ``task`` was woken or gave way."""

    def __init__(self, moments: int) -> None:
        self.left = moments
        self.scope = trio.CancelScope()
        self.task: trio.lowlevel.Task | None = None

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self._count(task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._count(task)

    def _count(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()


def cancel_at_every_step(
    use: Callable[[], Awaitable[object]], check: Callable[[], object], *, max_steps: int = 1_000
) -> int:
    """Run ``use`` to its end, cancelled one moment later each time, and ``check`` after each run.

    ``use`` builds what it needs afresh; it runs on a virtual clock that skips idle time. ``check`` is called outside of
    Trio and raises when something was lost. The number of runs is returned, of which the last was not cut short.

    Raises :class:`AssertionError` when ``use`` needs more than ``max_steps``.

    versionadded: 0.1
    """
    for runs in range(1, max_steps + 1):
        knife = _Knife(runs)
        trio.run(_use_under, use, knife, instruments=[knife], clock=MockClock(autojump_threshold=0))
        check()
        if knife.left > 0:
            return runs
    raise AssertionError(f"not at the end after {max_steps} steps: give the code less to do, or raise max_steps")


async def _use_under(use: Callable[[], Awaitable[object]], knife: _Knife) -> None:
    knife.task = trio.lowlevel.current_task()
    with knife.scope:
        await use()
    knife.task = None
