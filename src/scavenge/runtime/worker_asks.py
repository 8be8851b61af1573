"""The rollouts' tasks that wait for what comes of them in a worker. Decides nothing.

Invariant: a task is woken exactly once for each time that it waits, or its wait was cancelled.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from scavenge.core.supervision import Ticket
from scavenge.rollouts import Example
from scavenge.runtime.hosting import PlayResult
from scavenge.types import ModelAddress


@attrs.define(eq=False)
class Asked:
    """What is to be played, and what came of it."""

    example: Example
    model: ModelAddress
    _result: PlayResult | None = attrs.field(default=None, init=False)
    _parked: trio.lowlevel.Task | None = attrs.field(default=None, init=False)

    def deliver(self, result: PlayResult) -> None:
        """Say what came of it, once. Never waits."""
        self._result = result
        if self._parked is not None:
            trio.lowlevel.reschedule(self._parked)

    @trio.lowlevel.enable_ki_protection
    async def wait(self, withdraw: Callable[[], object]) -> PlayResult:
        """Wait for what comes of it. Cancelled, it calls *withdraw* at once, unless a result is there already."""
        if self._result is None:
            self._parked = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(lambda _: self._abort(withdraw))
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()  # what was played is a result
        assert self._result is not None  # noqa: S101 - nothing else wakes it
        return self._result

    @staticmethod
    def _abort(withdraw: Callable[[], object]) -> trio.lowlevel.Abort:
        withdraw()
        return trio.lowlevel.Abort.SUCCEEDED


class Asks:
    """All that wait."""

    def __init__(self) -> None:
        self._asked: dict[Ticket, Asked] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def __getitem__(self, ticket: Ticket) -> Asked:
        return self._asked[ticket]

    def put(self, ticket: Ticket, asked: Asked) -> None:
        """Take in one that will wait."""
        self._asked[ticket] = asked

    def drop(self, ticket: Ticket) -> None:
        """Forget one that does not wait any more."""
        del self._asked[ticket]

    def deliver(self, ticket: Ticket, result: PlayResult) -> None:
        """Wake the one that waits for *ticket*, if it still does."""
        if (asked := self._asked.pop(ticket, None)) is not None:
            asked.deliver(result)
