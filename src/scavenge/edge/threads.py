"""Threads for what blocks, a few at a time, apart from Trio's shared ones. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")


class LimitedThreads:
    """At most *count* threads at a time; a further caller waits for one to be free."""

    def __init__(self, count: int) -> None:
        self._limiter = trio.CapacityLimiter(count)

    async def run(self, step: Callable[[], T], *, abandon_on_cancel: bool = False) -> T:
        """Call *step* in a thread and wait for it."""
        return await trio.to_thread.run_sync(step, limiter=self._limiter, abandon_on_cancel=abandon_on_cancel)
