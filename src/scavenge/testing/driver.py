"""A Trio run inside synchronous code, which moves only when it is told to: for Hypothesis state machines.

The run is Trio's guest mode with a clock that stands still. What a test pokes between two :meth:`TrioDriver.settle`
calls (cancel, release, resize) meets in one tick of the run, and that is where races are.
"""

from __future__ import annotations

import queue
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Protocol

import trio
from trio.testing import MockClock, wait_all_tasks_blocked


class _Ended(Protocol):
    """How the run ended, as Trio tells it."""

    def unwrap(self) -> object: ...


class TrioDriver:
    """Runs tasks from synchronous code, as a context manager or until :meth:`close`.

    Synchronous functions of Trio (``scope.cancel()``, ``event.set()``, ``trio.current_time()``) can be called in
    between as they are.

    versionadded: 0.1
    """

    def __init__(self) -> None:
        self.clock = MockClock()
        self._ticks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._ended: _Ended | None = None
        self._tasks: trio.Nursery | None = None
        trio.lowlevel.start_guest_run(
            self._main,
            clock=self.clock,
            run_sync_soon_threadsafe=self._ticks.put,
            done_callback=self._note_end,
            host_uses_signal_set_wakeup_fd=True,
        )
        self._run_until(lambda: self._tasks is not None)

    def start(self, function: Callable[..., Awaitable[object]], *arguments: object) -> trio.CancelScope:
        """Start a task, which moves at the next :meth:`settle`; the scope that is returned cancels it alone."""
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await function(*arguments)

        self.nursery.start_soon(run)
        return scope

    @property
    def nursery(self) -> trio.Nursery:
        """Where the tasks live."""
        if self._tasks is None:
            raise RuntimeError("the run has ended: make another TrioDriver")
        return self._tasks

    def settle(self, seconds: float = 0.0) -> None:
        """Move the clock on by ``seconds`` and let the tasks run until all of them wait.

        Raises what a task raised, in an exception group; it also ends the run.
        """
        self.clock.jump(seconds)
        idle = trio.Event()

        async def note_idle() -> None:
            await wait_all_tasks_blocked()
            idle.set()

        self.nursery.start_soon(note_idle)
        self._run_until(idle.is_set)
        self._reraise()

    def close(self) -> None:
        """Cancel the tasks and end the run. Raises what a task raised, in a group; a second call does nothing."""
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
            self._run_until(lambda: False)
        self._reraise()

    def __enter__(self) -> TrioDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _main(self) -> None:
        async with trio.open_nursery() as self._tasks:
            await trio.sleep_forever()

    def _note_end(self, ended: _Ended) -> None:
        self._ended = ended
        self._tasks = None

    def _run_until(self, done: Callable[[], bool]) -> None:
        while self._ended is None and not done():
            self._ticks.get()()

    def _reraise(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended.unwrap()
