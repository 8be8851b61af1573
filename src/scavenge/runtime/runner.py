"""One evaluation: takes examples from its environment, plays them out over a pool, hands the results to the sink.

Data flow: dataset → plan → feeder → rollout tasks → sink. One feeder an evaluation acquires what a rollout needs first
(a slot where it asks the model once, else a session's place) and only then starts its task, so the number of tasks
follows the slots, not the dataset, and the order of the plan is the order of the start.

Invariants: a rollout that ended well or for good is handed to the sink exactly once; one that is cancelled hands over
nothing and is owed; what the feeder acquired is given back on every way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import attrs
import trio

from scavenge.core.codeplace import error_text, raised_at, raised_line
from scavenge.core.ledger import Ask
from scavenge.core.plan import Plan, Refused, RolloutTask
from scavenge.core.sessions.book import LiveSession
from scavenge.errors import EnvironmentBroken, PoisonRequest, leaves
from scavenge.events import EvalSized, RolloutStarted, Warned
from scavenge.rollouts import ErrorInfo, Example, Rollout, RolloutRecord, Timing
from scavenge.runtime.dispatcher import HeldLease
from scavenge.runtime.pool import Pool
from scavenge.runtime.ports import Environment, Threads
from scavenge.runtime.session import RequestSettings, Session, SessionPorts
from scavenge.runtime.sink import Sink
from scavenge.types import Misrouted, Rejected, RequestFailed

CLOSE_WITHIN_S = 2.0
"""How long an environment may take to close."""
FIRST_ROWS = 64
"""Rows read before the first rollout starts."""
ROWS_AT_ONCE = 256
FINAL = (RequestFailed, PoisonRequest)
"""Errors of the model's side: ``rollout_retries`` is for those of the environment."""


@attrs.frozen(eq=False)
class EvalJob:
    """What one ``[[eval]]`` comes to: an environment, a plan, a pool and how its requests are made."""

    name: str
    env_id: str
    environment: Environment
    plan: Plan
    pool: Pool
    requests: RequestSettings
    max_concurrent: int | None = None
    rollout_retries: int = 0


@attrs.define(eq=False)
class EvalRun:
    """One evaluation while it runs. ``next_age`` numbers the sessions of the whole run."""

    job: EvalJob
    sink: Sink
    ports: SessionPorts
    next_age: Callable[[], int]
    threads: Threads
    """Where the dataset is read."""
    _room: trio.Semaphore | None = attrs.field(init=False)
    _examples: Iterator[Example] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        limit = self.job.max_concurrent
        self._room = None if limit is None else trio.Semaphore(limit)

    async def run(self) -> None:
        """Play every rollout of the plan.

        Raises :class:`EnvironmentBroken` when the environment cannot be opened or its dataset cannot be read on.
        Cancelled, it drops the rollouts under way (they are owed) and closes the environment.
        """
        environment = self.job.environment
        try:
            await environment.open()
        except Exception as exc:
            raise EnvironmentBroken(self.job.name, "cannot be opened", exc, raised_at(exc, environment)) from exc
        try:
            async with trio.open_nursery() as rollouts:
                await self._feed(rollouts)
        finally:
            with trio.move_on_after(CLOSE_WITHIN_S, shield=True):
                await self._close(environment)

    async def _close(self, environment: Environment) -> None:
        """Close the environment; its results are there, so what it raises now is only told."""
        try:
            await environment.close()
        except Exception as exc:
            self.ports.emit(Warned(f"eval {self.job.name!r}: close() failed: {raised_line(exc, environment)}"))

    # --- feeding

    async def _feed(self, rollouts: trio.Nursery) -> None:
        while (task := await self._next_task()) is not None:
            if isinstance(task, Refused):
                await self.sink.put(task.record)
                continue
            if self._room is not None:
                await self._room.acquire()
            await self._start(rollouts, task)

    async def _next_task(self) -> RolloutTask | Refused | None:
        plan = self.job.plan
        while True:
            if plan.wants_more:
                await self._read()
            if (task := plan.next()) is not None or plan.finished:
                return task

    async def _read(self) -> None:
        """Read the next rows of the dataset into the plan, in a thread."""
        plan = self.job.plan
        try:
            rows = await self.threads.run(self._take_rows, abandon_on_cancel=True)
        except Exception as exc:
            place = raised_at(exc, self.job.environment)
            raise EnvironmentBroken(self.job.name, "its dataset cannot be read on", exc, place) from exc
        for example in rows:
            plan.offer(example)
        if not rows:
            plan.end()
        if plan.total is not None:
            self.ports.emit(EvalSized(self.job.name, plan.total))

    def _take_rows(self) -> list[Example]:
        count = ROWS_AT_ONCE
        if self._examples is None:
            self._examples = iter(self.job.environment.examples())
            count = FIRST_ROWS
        rows: list[object] = list(islice(self._examples, count))
        examples = [row for row in rows if isinstance(row, Example)]
        if len(examples) < len(rows):
            odd = next(row for row in rows if not isinstance(row, Example))
            raise TypeError(f"examples() yields {type(odd).__name__}, not scavenge.Example")
        return examples

    async def _start(self, rollouts: trio.Nursery, task: RolloutTask) -> None:
        """Acquire what the rollout needs, then start it; from then on the rollout's task owns it."""
        age = self.next_age()
        held: HeldLease | LiveSession
        try:
            if self.job.environment.multi_turn:
                held = await self.job.pool.acquire_place(age)
            else:
                held = await self.job.pool.acquire(Ask((age, 0)))
        except RequestFailed as exc:
            self._leave_room()
            await self.sink.put(self._record(task, exc))
        except BaseException:
            self._leave_room()
            raise
        else:
            rollouts.start_soon(self._play, task, age, held, name=f"rollout {task.key.example_id}")

    def _leave_room(self) -> None:
        if self._room is not None:
            self._room.release()

    # --- one rollout

    async def _play(self, task: RolloutTask, age: int, held: HeldLease | LiveSession) -> None:
        self.ports.emit(RolloutStarted(self.job.name))
        try:
            record = await self._rollout(task, age, held)
        finally:
            if isinstance(held, LiveSession):
                self.job.pool.sessions.leave(held)
            self._leave_room()
        if record.error is None and record.usage.completion_tokens is not None:
            self.job.plan.learn(task, record.usage.completion_tokens)
        await self.sink.put(record)

    async def _rollout(self, task: RolloutTask, age: int, held: HeldLease | LiveSession) -> RolloutRecord:
        """Play a rollout, afresh when it failed in the environment and may be played again."""
        started_at = trio.current_time()
        left = self.job.rollout_retries
        place, lease = (held, None) if isinstance(held, LiveSession) else (None, held)
        session = Session(self.job.pool, age, self.job.requests, self.ports, lease, place)
        while True:
            try:
                result = await self._try(task, session)
            finally:
                session.close()
            failed_in_environment = isinstance(result, Exception) and not isinstance(result, FINAL)
            if not failed_in_environment or left == 0:
                return self._record(task, result, session, trio.current_time() - started_at)
            left -= 1
            session = session.afresh()

    async def _try(self, task: RolloutTask, session: Session) -> Rollout | Exception:
        try:
            rollout: object = await self.job.environment.play(task.example, session)
        except Exception as exc:  # whatever an environment raises is this rollout's error, never the run's
            return exc
        if not isinstance(rollout, Rollout):
            return TypeError(f"play() of {self.job.env_id!r} returned {type(rollout).__name__}, not a scavenge.Rollout")
        return rollout

    def _record(
        self, task: RolloutTask, result: Rollout | Exception, session: Session | None = None, total_s: float = 0.0
    ) -> RolloutRecord:
        record = RolloutRecord(key=task.key, env_id=self.job.env_id)
        if session is not None:
            record = attrs.evolve(
                record,
                prompt=session.prompt,
                usage=session.usage,
                timing=Timing(session.queued_s, session.model_s, total_s),
                attempts=tuple(session.attempts),
            )
        if isinstance(result, Exception):
            return attrs.evolve(record, error=_error(result, self.job.environment))
        return attrs.evolve(
            record,
            reward=result.reward,
            metrics=result.metrics,
            completion=result.completion,
            answer=result.answer,
            info=result.info,
        )


def _error(exc: Exception, environment: Environment) -> ErrorInfo:
    """What a result line says of an exception; one that is alone in its groups stands for them."""
    found = list(leaves(exc))
    if len(found) > 1:
        return ErrorInfo(type(exc).__name__, "; ".join(raised_line(leaf, environment) for leaf in found))
    lone = found[0]
    outcome = lone.outcome if isinstance(lone, RequestFailed) else None
    too_long = isinstance(outcome, Rejected) and outcome.context_length
    text, place = error_text(lone), raised_at(lone, environment)
    said = f"{text}{place}" if text else place.lstrip()
    return ErrorInfo(type(lone).__name__, said, counts=not too_long, misrouted=isinstance(outcome, Misrouted))
