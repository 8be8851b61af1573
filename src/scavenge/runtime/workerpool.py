"""The worker processes of one evaluation: carries out what the supervisor decides, and tells it what happens.

Data flow: a rollout asks → supervisor → a worker is given it → the worker's answer, or its death → the rollout's task.
All decisions are :mod:`scavenge.core.supervision`'s; one function carries them out, :meth:`WorkerPool.settle`, which is
called after every change.

Invariants: a process is left by the task that opened it; nothing is started after :meth:`WorkerPool.close`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import assert_never

import attrs
import trio

from scavenge.core import supervision as sv
from scavenge.core.supervision import Supervisor, SupervisorSettings, Ticket, WorkerId
from scavenge.core.supervision.settings import HUNG_AFTER_S
from scavenge.core.worker_messages import Broken, Load, Ready, Stop
from scavenge.errors import CannotSpawn, ConfigError, EnvironmentBroken, Problem, ScavengeError
from scavenge.events import Observer, Warned, WorkerEnded, WorkerReady, WorkersChanged, WorkerStarting
from scavenge.rollouts import ErrorInfo, Example, Failure
from scavenge.runtime.hosting import Displaced, PlayResult
from scavenge.runtime.ports import Threads, WorkerLauncher
from scavenge.runtime.worker_asks import Asked, Asks
from scavenge.runtime.worker_life import WorkerLife
from scavenge.status import WorkersStatus
from scavenge.types import ModelAddress

CLOSED = ("closed", 0)
"""What is told last."""
BLOCKED_S = 60.0
"""An event loop that does not turn for so long, with rollouts in its worker, is told of."""


@attrs.define(eq=False)
class WorkerPool:
    """Workers that host one evaluation's environment; ``name`` is the evaluation's."""

    name: str
    load: Load
    launcher: WorkerLauncher
    settings: SupervisorSettings
    random: Random = attrs.field(repr=False)
    threads: Threads = attrs.field(repr=False)
    """Where logs are read."""
    emit: Observer = attrs.field(repr=False)
    hung_after_s: float = attrs.field(default=HUNG_AFTER_S, kw_only=True)
    supervisor: Supervisor = attrs.field(init=False)
    facts: Ready | None = attrs.field(default=None, init=False)
    """What the first worker said of the environment."""
    last_why: str = attrs.field(default="", init=False)
    """How the latest worker ended."""
    last_tail: str = attrs.field(default="", init=False)
    """The end of the log of the latest that failed."""
    _lives: dict[WorkerId, WorkerLife] = attrs.field(factory=dict, init=False)
    _asks: Asks = attrs.field(factory=Asks, init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _lives_nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _broken: ScavengeError | None = attrs.field(default=None, init=False)
    _problems: Sequence[Problem] = attrs.field(default=(), init=False)
    """What the last worker that could not load it found wrong in the evaluation file."""
    _told: tuple[str, int] | None = attrs.field(default=None, init=False)
    _looks_at: float = attrs.field(default=math.inf, init=False)
    _sooner: trio.Event = attrs.field(factory=trio.Event, init=False)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when a worker became ready or is gone, and replaced."""

    def __attrs_post_init__(self) -> None:
        now = trio.current_time()
        self.supervisor = Supervisor(self.settings, self.random, now, self.name, hung_after_s=self.hung_after_s)

    # --- for the host

    async def wait_loaded(self) -> Ready:
        """Wait until a worker has loaded the environment. Whoever runs the pool hears when none ever will."""
        await trio.lowlevel.checkpoint()
        while self.facts is None:
            await self._news.wait()
        return self.facts

    async def wait_ready(self) -> WorkerLife:
        """Wait for a worker that is ready: the one in the lowest slot."""
        await trio.lowlevel.checkpoint()
        while not (ready := [life for life in self._lives.values() if life.serves]):
            await self._news.wait()
        return min(ready, key=lambda life: life.slot)

    @trio.lowlevel.enable_ki_protection
    async def play(self, ticket: Ticket, example: Example, model: ModelAddress) -> PlayResult:
        """Have a rollout played in a worker.

        *Cancellation* takes it back: its place in the worker is free once the worker has answered for it, or is gone.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        asked = Asked(example, model)
        self._asks.put(ticket, asked)
        self.supervisor.ask(ticket, trio.current_time())
        self.settle()
        return await asked.wait(lambda: self._withdraw(ticket))

    def _withdraw(self, ticket: Ticket) -> None:
        self._asks.drop(ticket)
        self.supervisor.withdraw(ticket, trio.current_time())
        self.settle()

    @property
    def multiplex(self) -> int:
        """How many rollouts a worker plays at once."""
        return self.supervisor.multiplex

    def status(self) -> WorkersStatus:
        """How the workers are doing now; after :meth:`close` it is not empty but closed."""
        status = self.supervisor.status(trio.current_time())
        return attrs.evolve(status, state="closed", wanted=0, why="") if self._closed else status

    def tail_said(self) -> str:
        """The end of the last failed worker's log, as the end of a message; empty when it said nothing."""
        return f"; its log ends with:\n{self.last_tail}" if self.last_tail else ""

    def close(self) -> None:
        """Ask every worker to end, and start none any more. Never waits."""
        if not self._closed:
            self._closed = True
            self.supervisor.close(trio.current_time())
            for life in self._lives.values():
                life.stopping = True
                life.post(Stop())
            self.settle()
            self._sooner.set()

    async def wait_gone(self) -> None:
        """Wait until no worker is left, after :meth:`close`."""
        await trio.lowlevel.checkpoint()
        while self._lives:
            await self._news.wait()

    # --- supervision

    async def run_workers(self) -> None:
        """Keep as many workers as there is need for, until :meth:`close`.

        Raises :class:`EnvironmentBroken`, or :class:`ConfigError` where the evaluation file is wrong, in a group, when
        no worker can load the environment. Cancelled, it kills them all.
        """
        async with trio.open_nursery() as self._lives_nursery:
            self.settle()
            while not self._closed:
                await self._wait_due()
                if self._broken is not None:
                    raise self._broken
                self.settle()

    async def _wait_due(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._broken is None and not self._closed:
            self._sooner = trio.Event()
            self._looks_at = _or_never(self.supervisor.next_wake_at(trio.current_time()))
            with trio.move_on_at(self._looks_at):
                await self._sooner.wait()
            self._looks_at = math.inf

    @trio.lowlevel.enable_ki_protection
    def settle(self) -> None:
        """Do what the supervisor has decided, and tell what changed. Never waits."""
        self._act()
        now = trio.current_time()
        self._tell(self.status())
        if self._broken is not None or _or_never(self.supervisor.next_wake_at(now)) < self._looks_at:
            self._sooner.set()

    def _act(self) -> int:
        """Do what the supervisor has decided, and count the rollouts that are to be played again."""
        if self._lives_nursery is None:
            return 0  # nothing has begun, and all of it is done then
        displaced, now = 0, trio.current_time()
        while commands := self.supervisor.decide(now):
            for command in commands:
                self._carry_out(command, self._lives_nursery, now)
                displaced += isinstance(command, sv.Displace)
        return displaced

    def _tell(self, status: WorkersStatus) -> None:
        if (status.state, status.ready) != self._told and self._told != CLOSED:
            self._told = CLOSED if self._closed else (status.state, status.ready)
            self.emit(WorkersChanged(status))

    def _carry_out(self, command: sv.Command, lives_nursery: trio.Nursery, now: float) -> None:
        match command:
            case sv.Spawn(worker, slot):
                self._lives[worker] = life = WorkerLife(worker, slot, now)
                life.post(self.load)
                self.emit(WorkerStarting(self.name, worker))
                lives_nursery.start_soon(self._live, life, name=f"worker {worker} of {self.name}")
            case sv.Give(ticket, worker):
                asked = self._asks[ticket]
                self._lives[worker].give(next(self._numbers), ticket, asked.example, asked.model)
            case sv.Abort(ticket, worker):
                self._lives[worker].abort(ticket)
            case sv.Look(worker):
                process = self._lives[worker].process
                self.supervisor.on_cpu(worker, None if process is None else process.cpu_s(), now)
            case sv.Kill(worker, why):
                self._lives[worker].kill(why)
            case sv.Retire(worker):
                self._lives[worker].stopping = True
                self._lives[worker].post(Stop())
            case sv.GiveUp(why):
                said = f"no worker can load it: {why}{self.tail_said()}"
                self._broken = ConfigError(self._problems) if self._problems else EnvironmentBroken(self.name, said)
            case sv.Displace() | sv.Refuse() | sv.Condemn():
                self._asks.deliver(command.ticket, self._result_of(command))
            case _:
                assert_never(command)

    def _result_of(self, command: sv.Displace | sv.Refuse | sv.Condemn) -> PlayResult:
        match command:
            case sv.Displace(_, why):
                return Displaced(why)
            case sv.Refuse(_, why):
                return Failure(ErrorInfo("NoWorkersError", why))
            case sv.Condemn(ticket, why):
                said = f"rollout {ticket.name}: {why}{self.tail_said()}"
                return Failure(ErrorInfo("PoisonRollout", said), final=True)

    async def _live(self, life: WorkerLife) -> None:
        """Start a worker, follow it to its end, and tell of that."""
        on_end = self.supervisor.on_end
        try:
            await trio.lowlevel.checkpoint()
            why = await life.live(self.launcher, f"{self.name}-worker-{life.slot}", self.threads, self)
        except CannotSpawn as exc:
            on_end, why = self.supervisor.on_not_spawned, str(exc)
        except BaseException:  # the pool is cancelled
            self.supervisor.close(trio.current_time())
            life.stopping = life.stopping or not life.broken_why
            self._on_end(life, on_end, "killed with the run")
            raise
        self._on_end(life, on_end, why)

    def _on_end(self, life: WorkerLife, on_end: Callable[[WorkerId, str, float], None], why: str) -> None:
        if not life.stopping:
            self.last_tail = life.tail
        self.last_why = why
        on_end(life.worker, why, trio.current_time())
        del self._lives[life.worker]
        self._on_news()
        self.emit(WorkerEnded(self.name, life.worker, life.how, why, self._act(), life.log_file))
        self.settle()

    def _on_news(self) -> None:
        self._news.set()
        self._news = trio.Event()

    # --- what workers say

    def on_sign(self, life: WorkerLife) -> None:
        """A worker is alive."""
        self.supervisor.on_sign(life.worker, trio.current_time())

    def on_ready(self, life: WorkerLife, ready: Ready) -> None:
        """A worker has loaded the environment; the first one tells what it is like."""
        if self.facts is None:
            self.facts = ready
            if ready.backend == "sync":
                self.supervisor.multiplex = 1
        now = trio.current_time()
        self.supervisor.on_ready(life.worker, now)
        pid = 0 if life.process is None else life.process.pid
        self.emit(WorkerReady(self.name, life.worker, pid, now - life.started_at))
        self._on_news()

    def on_broken(self, life: WorkerLife, broken: Broken) -> None:
        """A worker cannot load the environment."""
        self._problems = broken.problems
        self.supervisor.on_broken(life.worker, broken.message, trio.current_time())

    def on_answer(self, life: WorkerLife, ticket: Ticket, result: PlayResult) -> None:
        """A rollout is over in its worker."""
        self.supervisor.on_answer(life.worker, ticket, trio.current_time())
        self._asks.deliver(ticket, result)

    def on_beat(self, life: WorkerLife, loop_late_s: float) -> None:
        """Tell of an event loop that is blocked, once."""
        blocked = loop_late_s >= BLOCKED_S and bool(life.rollouts)
        if blocked and not life.blocked:
            said = f"the event loop of worker {life.worker} has not turned for {loop_late_s:.0f} s"
            remedy = 'what blocks belongs into a thread, or the environment into backend = "sync"'
            self.emit(Warned(f"eval {self.name!r}: {said}: {remedy}"))
        life.blocked = blocked


def _or_never(at: float | None) -> float:
    return math.inf if at is None else at
