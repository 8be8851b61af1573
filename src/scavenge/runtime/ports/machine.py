"""What a run needs of this machine: a log of results, threads for what blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class ResultLog(Protocol):
    """Where finished rollouts are written."""

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines and put them on disk before returning. Called in a thread, one call at a time.

        Raises :class:`scavenge.errors.ResultsError`, after which the file holds whole lines only.
        """
        ...


class Threads(Protocol):
    """Runs what blocks somewhere else than in the event loop. Tests on a virtual clock run it in place instead."""

    async def run(self, step: Callable[[], T], *, abandon_on_cancel: bool = False) -> T:
        """Call *step* in a thread and wait for it.

        Cancelled, it waits for *step* all the same, unless *abandon_on_cancel* says that nobody needs its result.
        """
        ...
