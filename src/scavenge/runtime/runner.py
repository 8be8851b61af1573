"""One evaluation: takes examples from its host, has them played out over a pool, hands the results to the sink.

Data flow: dataset → plan → feeder → rollout tasks → sink. One feeder an evaluation acquires what a rollout needs first
(its images; room in the host; then a slot where it asks the model at once, or a session's place where it may ask often)
and only then starts its task, so the number of tasks follows the slots, not the dataset, and the order of the plan is
the order of the start. A rollout whose images are not there yet steps aside and holds nothing meanwhile.

Invariants: a rollout that ended well or for good is handed to the sink exactly once; one that is cancelled hands over
nothing and is owed; what the feeder acquired is given back on every way out; a rollout that is played again, for
whatever reason, has a session that knows nothing of the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs
import trio

from scavenge.core.failure import failure_of
from scavenge.core.ledger import Ask
from scavenge.core.plan import Plan, Refused, RolloutTask
from scavenge.core.sessions.book import LiveSession
from scavenge.core.supervision import Ticket
from scavenge.errors import ImageUnavailable
from scavenge.events import EvalSized, RolloutStarted
from scavenge.rollouts import Failure, Rollout, RolloutRecord, Timing
from scavenge.runtime.dispatcher import HeldLease
from scavenge.runtime.hosting import Displaced, Host
from scavenge.runtime.imageline import ImageLine, Supplied
from scavenge.runtime.imagepool import ImageHold, ImagePool
from scavenge.runtime.pool import Pool
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import Session, SessionPorts
from scavenge.runtime.sink import Sink
from scavenge.types import RequestFailed

CLOSE_WITHIN_S = 2.0
"""How long an environment may take to close."""
FIRST_ROWS = 64
"""Rows read before the first rollout starts."""
ROWS_AT_ONCE = 256
IMAGE_RETRIES = 2
"""How often a rollout is played again because an image that it was promised was not there."""

Held = HeldLease | LiveSession | None
"""What the feeder acquired for a rollout: a slot for its first request, a session's place, or nothing."""


@attrs.frozen(eq=False)
class EvalJob:
    """What one ``[[eval]]`` comes to: a host with its environment, a plan, a pool and how its requests are made."""

    name: str
    env_id: str
    host: Host
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
    images: ImagePool
    _line: ImageLine = attrs.field(init=False)
    _needs: Counter[tuple[str, ...]] = attrs.field(factory=Counter, init=False)
    """The images of the rollouts that are registered and have no result yet."""
    _room: trio.Semaphore | None = attrs.field(default=None, init=False)
    _rows_read: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._line = ImageLine(self.images)

    async def run(self) -> None:
        """Play every rollout of the plan.

        Raises :class:`EnvironmentBroken` when the environment cannot be opened or its dataset cannot be read on.
        Cancelled, it drops the rollouts under way (they are owed) and closes the environment.
        """
        host = self.job.host
        await host.open()
        limits = [limit for limit in (self.job.max_concurrent, host.room) if limit is not None]
        self._room = trio.Semaphore(min(limits)) if limits else None
        try:
            async with trio.open_nursery() as rollouts:
                await self._feed(rollouts)
        finally:
            self._need_no_more()
            with trio.move_on_after(CLOSE_WITHIN_S, shield=True):
                await host.close()

    def _need_no_more(self) -> None:
        """Give back the images that were taken for rollouts, and the needs of those that were not played."""
        self._line.close()
        for images in self._needs.elements():
            self.images.done(images)
        self._needs.clear()

    # --- feeding

    async def _feed(self, rollouts: trio.Nursery) -> None:
        while (supplied := await self._next_supplied(rollouts)) is not None:
            if isinstance(supplied.images, ImageUnavailable):
                await self._put(supplied.task, self._record(supplied.task, failure_of(supplied.images, self)))
                continue
            try:
                if self._room is not None:
                    await self._room.acquire()
                await self._start(rollouts, supplied.task, supplied.images)
            except BaseException:
                supplied.images.release()
                raise

    async def _next_supplied(self, rollouts: trio.Nursery) -> Supplied | None:
        """The next rollout that has its images, or will not have them; ``None``: there are no more.

        One that has to wait for images lets those behind it go first.
        """
        while True:
            if (supplied := self._line.take()) is not None:
                return supplied
            if self._line.is_full:
                await self._line.wait_moved()
                continue
            task = await self._next_task()
            if isinstance(task, Refused):
                await self.sink.put(task.record)
            elif task is not None:
                if (hold := self.images.hold_nowait(task.example.images)) is not None:
                    return Supplied(task, hold)
                self._line.park(task, rollouts)
            elif self._line.is_empty:
                return None
            else:
                await self._line.wait_moved()

    async def _next_task(self) -> RolloutTask | Refused | None:
        plan = self.job.plan
        while True:
            if plan.wants_more:
                await self._read()
            if (task := plan.next()) is not None or plan.finished:
                return task

    async def _read(self) -> None:
        """Take the next rows of the dataset into the plan."""
        plan = self.job.plan
        rows = await self.job.host.read(ROWS_AT_ONCE if self._rows_read else FIRST_ROWS)
        self._rows_read += len(rows)
        for example in rows:
            rollouts = plan.offer(example)
            if rollouts and example.images:
                self.images.register(example.images, rollouts)
                self._needs[example.images] += rollouts
                plan.look_far()
        if not rows:
            plan.end()
        if plan.total is not None:
            self.ports.emit(EvalSized(self.job.name, plan.total))

    async def _start(self, rollouts: trio.Nursery, task: RolloutTask, images: ImageHold) -> None:
        """Acquire what the rollout needs, then start it; from then on the rollout's task owns it, and its images."""
        age = self.next_age()
        try:
            held = await self._acquire(age)
        except RequestFailed as exc:
            self._leave_room()
            images.release()
            await self._put(task, self._record(task, failure_of(exc, self)))
        except BaseException:
            self._leave_room()
            raise
        else:
            rollouts.start_soon(self._play, task, age, held, images, name=f"rollout {task.key.example_id}")

    async def _acquire(self, age: int) -> Held:
        await trio.lowlevel.checkpoint()
        if self.job.host.multi_turn:
            return await self.job.pool.acquire_place(age)
        return await self.job.pool.acquire(Ask((age, 0))) if self.job.host.lease_first else None

    def _leave_room(self) -> None:
        if self._room is not None:
            self._room.release()

    # --- one rollout

    async def _put(self, task: RolloutTask, record: RolloutRecord) -> None:
        """Hand in a rollout's result; its images are not needed for it any more."""
        if task.example.images:
            self._needs[task.example.images] -= 1
            self.images.done(task.example.images)
        await self.sink.put(record)

    async def _play(self, task: RolloutTask, age: int, held: Held, images: ImageHold) -> None:
        self.ports.emit(RolloutStarted(self.job.name))
        try:
            record = await self._rollout(task, age, held, images)
        finally:
            if isinstance(held, LiveSession):
                self.job.pool.sessions.leave(held)
            images.release()
            self._leave_room()
        if record.error is None and record.usage.completion_tokens is not None:
            self.job.plan.learn(task, record.usage.completion_tokens)
        await self._put(task, record)

    async def _rollout(self, task: RolloutTask, age: int, held: Held, images: ImageHold) -> RolloutRecord:
        """Play a rollout; afresh where it failed in the environment and may be played again, or was displaced.

        One that found an image missing waits for it, without a slot, and is played afresh, too.
        """
        started_at = trio.current_time()
        left, image_retries = self.job.rollout_retries, IMAGE_RETRIES
        place = held if isinstance(held, LiveSession) else None
        lease = held if isinstance(held, HeldLease) else None
        session = Session(self.job.pool, age, self.job.requests, self.ports, lease, place)
        ticket = Ticket(age, f"{task.key.example_id} (rollout {task.key.rollout})")
        while True:
            try:
                result = await self.job.host.play(ticket, task.example, session)
            finally:
                session.close()
            if isinstance(result, Failure) and image_retries and images.has(result.missing_image):
                image_retries -= 1
                result = await self._renewed(images, result)
            elif isinstance(result, Failure) and not result.final and left > 0:
                left -= 1
                result = Displaced(result.error.message)
            if not isinstance(result, Displaced):
                return self._record(task, result, session, trio.current_time() - started_at)
            session = session.afresh()

    async def _renewed(self, images: ImageHold, failure: Failure) -> Failure | Displaced:
        """Have an image delivered that turned out to be missing, so that the rollout can be played again."""
        try:
            await images.renew(failure.missing_image)
        except ImageUnavailable as exc:
            return failure_of(exc, self)
        return Displaced(failure.error.message)

    def _record(
        self, task: RolloutTask, result: Rollout | Failure, session: Session | None = None, total_s: float = 0.0
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
        if isinstance(result, Failure):
            return attrs.evolve(record, error=result.error)
        return attrs.evolve(
            record,
            reward=result.reward,
            metrics=result.metrics,
            completion=result.completion,
            answer=result.answer,
            info=result.info,
        )
