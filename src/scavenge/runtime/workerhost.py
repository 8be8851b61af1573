"""An environment that lives in worker processes, as an evaluation sees it. Knows no process and decides nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from scavenge.core.supervision import Ticket
from scavenge.core.worker_messages import ReadRows, Rows, RowsFailed
from scavenge.errors import EnvironmentBroken, single_error
from scavenge.rollouts import Example
from scavenge.runtime.hosting import CANNOT_READ, PlayResult
from scavenge.runtime.ports import ModelSession
from scavenge.runtime.workerpool import WorkerPool
from scavenge.types import Json, ModelAddress

STOP_GRACE_S = 3.0
"""How long all workers together have to end by themselves when the run ends."""
READING_DEATHS = 3
"""So many workers in a row that die over the same rows, and the dataset cannot be read on."""


@attrs.define(eq=False)
class WorkerHost:
    """A host whose environment is made in the workers of *pool*, which somebody else keeps running."""

    pool: WorkerPool
    learn: Callable[[Json], None]
    """Told once what the results depend on, before anything is played; what it raises ends the evaluation."""
    _rows: int = attrs.field(default=0, init=False)
    _whole: bool = attrs.field(default=False, init=False)

    @property
    def multi_turn(self) -> bool:
        """As the environment says, once a worker has loaded it."""
        return self.pool.facts is not None and self.pool.facts.multi_turn

    @property
    def lease_first(self) -> bool:
        """Never: what a worker computes before it asks the model must not hold a slot."""
        return False

    @property
    def room(self) -> int:
        """As many as all workers together can have."""
        return self.pool.settings.max * self.pool.multiplex

    async def open(self) -> None:
        """Wait until a worker has loaded the environment, and learn what the results depend on."""
        self.learn((await self.pool.wait_loaded()).identity)

    async def read(self, count: int) -> Sequence[Example]:
        """The next examples, from a worker; after its death from another. Raises :class:`EnvironmentBroken`."""
        await trio.lowlevel.checkpoint()
        if self._whole:
            return ()
        rows = await self._ask(ReadRows(self._rows, count))
        self._rows += len(rows.examples)
        self._whole = rows.last
        return rows.examples

    async def _ask(self, question: ReadRows) -> Rows:
        for _ in range(READING_DEATHS):
            answer = await self._ask_one(question)
            if isinstance(answer, RowsFailed):
                raise EnvironmentBroken(self.pool.name, f"{CANNOT_READ}: {answer.message}")
            if answer is not None:
                return answer
        what = f"{CANNOT_READ}: {READING_DEATHS} workers died over what follows row {question.skip}, the last"
        raise EnvironmentBroken(self.pool.name, f"{what} by {self.pool.last_why}{self.pool.tail_said()}")

    async def _ask_one(self, question: ReadRows) -> Rows | RowsFailed | None:
        """The answer of one worker; ``None``: it died."""
        within_s = self.pool.settings.request_deadline_s
        with trio.move_on_after(within_s) as patience:
            life = await self.pool.wait_ready()
        if patience.cancelled_caught:
            what = f"{CANNOT_READ}: no worker became ready within request_deadline = {within_s:g} s"
            raise EnvironmentBroken(self.pool.name, f"{what}; {self.pool.status().why}")
        return await life.read(question)

    async def play(self, ticket: Ticket, example: Example, session: ModelSession) -> PlayResult:
        """Play an example out in a worker; see :meth:`WorkerPool.play`."""
        return await self.pool.play(ticket, example, ModelAddress(session.base_url, session.api_key))

    async def close(self) -> None:
        """Ask the workers to end; whoever keeps the pool waits for it."""
        self.pool.close()
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_workers(pools: Sequence[WorkerPool]) -> AsyncIterator[None]:
    """Keep the workers of several evaluations while the block runs.

    Raises what :meth:`WorkerPool.run_workers` raises, without its group. Leaving asks all of them to end at once and
    gives them :data:`STOP_GRACE_S` together; what is left then is killed. Cancellation that reaches the workers kills
    them.
    """
    with single_error():
        async with trio.open_nursery() as services:
            for pool in pools:
                services.start_soon(pool.run_workers, name=f"workers of {pool.name}")
            try:
                yield
            finally:
                for pool in pools:
                    pool.close()
                with trio.move_on_after(STOP_GRACE_S, shield=True):
                    for pool in pools:
                        await pool.wait_gone()
                services.cancel_scope.cancel()
