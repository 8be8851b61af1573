"""Watches a source's code while it runs: its tasks, each of their moments, and what it does when it is cancelled.

Decides when the code is cut; must not know what it is called for. A moment is what :mod:`scavenge.testing.sweep` takes
for one: a task of the source's gives way, or is woken and has not run yet. Its own are the tasks in which its code was
called, and those that they spawned, wherever these live.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import attrs
import trio

T = TypeVar("T")

MOST_GIVEN = 50
"""How often code is cancelled anew before it counts as code that goes on for ever."""


class WentOn(AssertionError):
    """What code gets that takes no end of cancellations."""


@attrs.define(eq=False)
class Knife:
    """Counts the moments of a call, and calls ``then`` at one of them."""

    then: Callable[[], object]
    at: float = math.inf
    moments: int = 0
    cut_at: float | None = None
    """When it fell, on Trio's clock."""
    given: int = 0
    """How many cancellations the code got since then, in the task that called it."""

    @property
    def fell(self) -> bool:
        return self.cut_at is not None

    def count(self) -> None:
        """Another moment."""
        self.moments += 1
        if self.moments == self.at:
            self.cut_at = trio.current_time()
            self.then()

    def give(self, sent: object) -> None:
        """The code is about to go on with what it waited for. Raises :class:`WentOn` when that is enough."""
        self.given += self.fell and isinstance(getattr(sent, "error", None), trio.Cancelled)
        if self.given >= MOST_GIVEN:
            self.given += 1
            raise WentOn

    @property
    def lost(self) -> bool:
        """Whether the code goes on whatever it gets, so that nothing is left but to drop it."""
        return self.given >= 2 * MOST_GIVEN


@attrs.define(eq=False)
class Probe(trio.abc.Instrument):
    """Knows the tasks of the source's that live, and lets the knives that are out count their moments."""

    tasks: set[trio.lowlevel.Task] = attrs.field(factory=set)
    _knives: list[Knife] = attrs.field(factory=list)

    async def call(self, code: Coroutine[Any, Any, T], knife: Knife) -> T:
        """Run a piece of the source's code in this task."""
        with self._watching(knife):
            return await _driven(code, knife)

    @contextmanager
    def _watching(self, knife: Knife) -> Iterator[None]:
        task = trio.lowlevel.current_task()
        self.tasks.add(task)
        self._knives.append(knife)
        try:
            yield
        finally:
            self._knives.remove(knife)
            self.tasks.discard(task)

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """Trio tells of a new task; who spawns it is the task that runs."""
        with suppress(RuntimeError):  # a callback of another thread's, in no task
            if trio.lowlevel.current_task() in self.tasks:
                self.tasks.add(task)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """Trio tells of a task's end."""
        self.tasks.discard(task)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """Trio tells of a task that is woken."""
        self._count(task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Trio tells of a task that gave way."""
        self._count(task)

    def _count(self, task: trio.lowlevel.Task) -> None:
        if task in self.tasks:
            for knife in self._knives:
                knife.count()


@types.coroutine
def _driven(code: Coroutine[Any, Any, T], knife: Knife) -> Generator[Any, Any, T]:
    """Run a coroutine to its end, and look at all that Trio sends it."""
    step: Callable[[Any], Any] = code.send
    value: object = None
    while True:
        try:
            trap = step(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the coroutine returned
        try:
            value, step = (yield trap), code.send
            knife.give(value)
        except BaseException as exc:  # Trio throws what it thinks of a foreign await
            if knife.lost:
                raise
            value, step = exc, code.throw
