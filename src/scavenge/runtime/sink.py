"""One writer for all results: what is put here is written and on disk before it is counted. Opens no file.

A finished rollout is never lost to a cancellation: :meth:`Sink.put` takes it in before it waits for anything. Lines are
made when a record is put, so a record may change afterwards without harm. All that is pending is written in one go in a
thread; what comes in the meantime is the next go.

Invariants: a record is counted (``on_durable``) exactly once, in the order it was put, after the append that holds its
line has returned; when an append fails, neither it nor anything later is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import attrs
import trio

from scavenge.core.records import encode, storable
from scavenge.rollouts import RolloutRecord
from scavenge.runtime.ports import ResultLog, Threads

PENDING_MAX = 1_000
"""Records waiting to be written above which :meth:`Sink.put` holds its caller back."""
LAST_WORDS_S = 2.0
"""How long a cancelled writer still waits for the work that is unwinding to hand in what it has."""


@attrs.define(eq=False)
class Sink:
    """Writes records to *log*. Run it with :meth:`run_sink`, and :meth:`close` it when nobody will put any more.

    *threads* should be its own, so that no other work holds up the results.
    """

    log: ResultLog
    on_durable: Callable[[RolloutRecord], None]
    threads: Threads
    _pending: deque[tuple[RolloutRecord, bytes]] = attrs.field(factory=deque, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _failed: bool = attrs.field(default=False, init=False)
    _work: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _room: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    @property
    def pending(self) -> int:
        """How many records are not on disk yet."""
        return len(self._pending)

    def put_nowait(self, record: RolloutRecord) -> None:
        """Take in a finished rollout. Never waits; the caller sees to it that not too many are pending.

        After a failed write it drops the record: the run is ending, and the rollout is owed again on resume. Raises
        :class:`RuntimeError` when the sink is closed.
        """
        if self._closed:
            raise RuntimeError("a result was put into the sink after it was closed")
        if not self._failed:
            record = storable(record)
            self._pending.append((record, encode(record)))
            self._work.unpark()

    async def put(self, record: RolloutRecord) -> None:
        """Take in a finished rollout, then wait while too many are pending.

        Cancelled, it has taken the record in all the same.
        """
        self.put_nowait(record)
        await trio.lowlevel.checkpoint()
        while len(self._pending) > PENDING_MAX and not self._failed:
            await self._room.park()

    def close(self) -> None:
        """Say that nothing more will be put; :meth:`run_sink` returns when all is written."""
        self._closed = True
        self._work.unpark()

    async def run_sink(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until closed and all is written.

        Raises :class:`scavenge.errors.ResultsError` when a write fails. Cancelled before it was closed, it goes on for
        up to two seconds, until :meth:`close` is called and all is written; an append under way is always waited for.
        """
        task_status.started()
        try:
            await self._drain()
        finally:
            with trio.move_on_after(LAST_WORDS_S, shield=True):
                await self._drain()

    async def _drain(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self._failed and (self._pending or not self._closed):
            if self._pending:
                await self._write()
            else:
                await self._work.park()

    async def _write(self) -> None:
        batch = list(self._pending)
        lines = [line for _, line in batch]
        try:
            await self.threads.run(partial(self.log.append, lines))
        except Exception:
            self._failed = True
            self._pending.clear()
            self._room.unpark_all()
            raise
        for _ in batch:
            self._pending.popleft()
        self._room.unpark_all()
        for record, _ in batch:
            self.on_durable(record)
