"""A whole run: several evaluations side by side until they are done, stalled, or something stops them all.

Data flow: the evaluations' results come back from the sink once they are on disk, and feed the circuit breaker; a pool
that gets nowhere for ``stall_timeout`` ends its evaluations and leaves the others alone.

Invariant: why a run stopped is decided once, by the first cause; results that were handed to the sink are written
whatever the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio

from scavenge.core.gates.breaker import CircuitBreaker
from scavenge.errors import NoEndpointsError, ScavengeError, single_error
from scavenge.events import EvalGaveUp, Observer, RolloutFinished, RunStopping
from scavenge.rollouts import RolloutRecord
from scavenge.runtime.pool import Pool
from scavenge.runtime.runner import EvalRun
from scavenge.runtime.waits import LOOK_EVERY_S, WaitTeller


@attrs.frozen
class RunLimits:
    """What bounds a run. ``stall_timeout`` is in seconds; 0 waits for ever. ``elastic``: endpoints may come and go."""

    stall_timeout: float = 600.0
    max_consecutive_failures: int = 12
    elastic: bool = True


@attrs.define(eq=False)
class Run:
    """The work of one run. ``stopped_by`` says what ended it early, if anything did."""

    limits: RunLimits
    emit: Observer
    wall_clock: Callable[[], float]
    breaker: CircuitBreaker = attrs.field(init=False)
    stopped_by: ScavengeError | None = None
    failed: int = 0
    """Results of this part that are errors."""
    stalled: list[NoEndpointsError] = attrs.field(factory=list)
    _work: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def __attrs_post_init__(self) -> None:
        self.breaker = CircuitBreaker(self.limits.max_consecutive_failures, self.limits.elastic)

    def stop(self, cause: ScavengeError) -> None:
        """End the work now; what is under way is dropped and owed. Only the first cause counts."""
        if self.stopped_by is None:
            self.stopped_by = cause
            self.emit(RunStopping(str(cause)))
            self._work.cancel()

    def on_durable(self, record: RolloutRecord) -> None:
        """Hear of a result that is on disk."""
        self.failed += record.error is not None
        self.emit(RolloutFinished(record))
        if self.breaker.observe(record.error):
            self.stop(self.breaker.error())

    async def play(self, evals: Sequence[EvalRun]) -> None:
        """Run the evaluations to their end, or until :meth:`stop`.

        Raises what an environment that breaks raises; the other evaluations are cancelled then.
        """
        by_pool: dict[int, list[EvalRun]] = {}
        for one in evals:
            by_pool.setdefault(id(one.job.pool), []).append(one)
        with single_error(), self._work:
            async with trio.open_nursery() as nursery:
                for group in by_pool.values():
                    nursery.start_soon(self._play_pool, group[0].job.pool, group)

    async def _play_pool(self, pool: Pool, evals: Sequence[EvalRun]) -> None:
        async with trio.open_nursery() as watching:
            watching.start_soon(self._watch, pool, evals, watching.cancel_scope)
            async with trio.open_nursery() as nursery:
                for one in evals:
                    nursery.start_soon(one.run, name=f"eval {one.job.name}")
            watching.cancel_scope.cancel()

    async def _watch(self, pool: Pool, evals: Sequence[EvalRun], scope: trio.CancelScope) -> None:
        """Tell of the pool's waits, and end its evaluations when a wait gets too long."""
        waits = WaitTeller(pool, self.emit, self.wall_clock)
        while True:
            await trio.sleep(LOOK_EVERY_S)
            stalled_s = waits.look()
            if 0 < self.limits.stall_timeout <= stalled_s:
                self._give_up(pool, evals, pool.why_waiting())
                scope.cancel()

    def _give_up(self, pool: Pool, evals: Sequence[EvalRun], why: str) -> None:
        told = f"pool {pool.endpoint_id!r} got nowhere for {self.limits.stall_timeout:g} s (stall_timeout): {why}"
        self.stalled.append(NoEndpointsError(told))
        for one in evals:
            self.emit(EvalGaveUp(one.job.name, told))
