"""What is done with the worker processes of one evaluation: which are started, given work, killed and retired. Pure.

It hears what happened and decides what follows; it knows no process, no message and no task. What is parked is need,
whenever it came: how many workers are wanted follows from the rollouts in flight, and only workers that are ready or
starting count against it. Slots, their budgets and their back-off are in ``slots.py``, who gets which rollout in
``giving.py``, who hangs in ``silence.py``.

Invariants: a rollout that was asked for is parked, in one worker, or answered for: by its worker, by :class:`Displace`
(then the worker is gone), :class:`Refuse` or :class:`Condemn`, or by its own withdrawal. Nothing is told of a rollout
that was withdrawn, or of a worker that is gone. Each command is told once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from random import Random

import attrs

from scavenge.core.supervision import commands
from scavenge.core.supervision import settings as figures
from scavenge.core.supervision.clock import AwakeClock
from scavenge.core.supervision.commands import Command, Ticket, WorkerId
from scavenge.core.supervision.crew import Crew, Worker
from scavenge.core.supervision.giving import gives
from scavenge.core.supervision.need import Surplus, workers_wanted
from scavenge.core.supervision.outbox import Outbox
from scavenge.core.supervision.parking import Parking
from scavenge.core.supervision.silence import Silence
from scavenge.core.supervision.slots import How, Slots, Use
from scavenge.status import WorkersStatus


@attrs.define(eq=False)
class Supervisor:
    """Decides what is done with the workers of one evaluation.

    Whoever carries its decisions out tells it all that happens, calls :meth:`decide` after each event and at
    :meth:`next_wake_at`, and answers a :class:`Look` by :meth:`on_cpu`. What comes too late (from a worker that is
    gone, about a rollout that is not in it) changes nothing.
    """

    settings: figures.SupervisorSettings
    random: Random = attrs.field(repr=False)
    _begun_at: float = attrs.field(alias="now")
    eval_name: str = ""
    hung_after_s: float = attrs.field(default=figures.HUNG_AFTER_S, kw_only=True)
    """After how much silence without work a worker hangs."""
    multiplex: int = attrs.field(init=False)
    """How many rollouts a worker plays at once; may be lowered before the first is asked for."""
    _clock: AwakeClock = attrs.field(init=False)
    _slots: Slots = attrs.field(init=False)
    _crew: Crew = attrs.field(factory=Crew, init=False)
    _parking: Parking = attrs.field(factory=Parking, init=False)
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _none_ready_since_s: float = attrs.field(default=0.0, init=False)
    _surplus: Surplus = attrs.field(factory=Surplus, init=False)
    _check_at_s: float = attrs.field(default=math.inf, init=False)
    """Nothing is due about any worker before."""
    _outbox: Outbox = attrs.field(factory=Outbox, init=False)

    def __attrs_post_init__(self) -> None:
        self.multiplex = self.settings.multiplex
        self._clock = AwakeClock(min(figures.STEP_S, self.hung_after_s / figures.LOOKS), self._begun_at)
        self._slots = Slots(self.settings.max, self.settings.restart_backoff_max_s, self.random)

    # --- rollouts

    def ask(self, ticket: Ticket, now: float) -> None:
        """A rollout wants to be played. Raises :class:`ValueError` when it was asked for and has not been answered."""
        self._clock.tick(now)
        if ticket in self._parking or self._crew.where(ticket) or ticket in self._outbox.endings:
            raise ValueError(f"rollout {ticket.name} was asked for before")
        self._parking.add(ticket, self._clock.awake_s)

    def withdraw(self, ticket: Ticket, now: float) -> None:
        """A rollout is cancelled. In a worker, its place is taken until the worker has answered, or is gone."""
        self._clock.tick(now)
        self._outbox.endings.pop(ticket, None)
        if ticket in self._parking:
            self._crew.let_go(ticket)
            self._parking.remove(ticket)
        elif (worker := self._crew.where(ticket)) is not None and not worker.places[ticket].aborted:
            worker.places[ticket].answer_by_s = self._clock.awake_s + figures.ABORT_GRACE_S
            if worker.slot.use is Use.READY:
                self._outbox.aborts[ticket] = commands.Abort(ticket, worker.id)
                self._watch(worker)

    def on_answer(self, worker: WorkerId, ticket: Ticket, now: float) -> None:
        """A worker has played a rollout, has failed to, or has cancelled it."""
        self._clock.tick(now)
        found = self._crew.find(worker)
        if found is None or self._crew.where(ticket) is not found:
            return
        self._outbox.aborts.pop(ticket, None)
        found.silence.on_sign(self._clock.awake_s)
        place = self._crew.take(ticket, self._clock.awake_s)
        if found.slot.use is Use.READY and not place.aborted:
            self._slots.on_finished(found.slot)

    # --- workers

    def on_not_spawned(self, worker: WorkerId, why: str, now: float) -> None:
        """A worker's process could not be started."""
        self._end(worker, How.NOT_SPAWNED, why, now)

    def on_ready(self, worker: WorkerId, now: float) -> None:
        """A worker has loaded the environment."""
        self._clock.tick(now)
        found = self._crew.find(worker)
        if found is not None and found.slot.use is Use.STARTING:
            self._slots.on_ready(found.slot)
            self._crew.on_ready(found, self._clock.awake_s)
            found.silence.on_sign(self._clock.awake_s)
            self._watch(found)

    def on_broken(self, worker: WorkerId, why: str, now: float) -> None:
        """A worker says that it cannot load the environment; its process ends by itself."""
        self._clock.tick(now)
        found = self._crew.find(worker)
        if found is not None and found.slot.use is not Use.OVER:
            self._over(found, How.SERVING if found.slot.use is Use.READY else How.LOADING, why)

    def on_sign(self, worker: WorkerId, now: float) -> None:
        """A worker was heard of."""
        self._clock.tick(now)
        if (found := self._crew.find(worker)) is not None:
            found.silence.on_sign(self._clock.awake_s)

    def on_cpu(self, worker: WorkerId, cpu_s: float | None, now: float) -> None:
        """A worker has used so much processor time since its start; ``None``: nobody knows."""
        self._clock.tick(now)
        found = self._crew.find(worker)
        if found is None or found.slot.use is not Use.READY:
            return
        if found.silence.hangs(cpu_s, self._clock.awake_s):
            self._over(found, How.SERVING, why := f"hung: no sign of life and no work for {self.hung_after_s:g} s")
            self._kill(found, why)

    def on_end(self, worker: WorkerId, why: str, now: float) -> None:
        """A worker's process is gone, and everything that it had written has been told before."""
        self._end(worker, How.LOADING, why, now)

    def close(self, now: float) -> None:
        """The run ends: nothing is started, given or killed any more."""
        self._clock.tick(now)
        self._closed = True

    # --- the ends of workers

    def _end(self, worker: WorkerId, how: How, why: str, now: float) -> None:
        self._clock.tick(now)
        found = self._crew.find(worker)
        if found is None:
            return
        if found.slot.use is not Use.OVER:
            self._over(found, How.SERVING if found.slot.use is Use.READY else how, why)
        self._outbox.kills.pop(worker, None)
        self._slots.on_free(found.slot)
        for ticket, place in self._crew.remove(found).items():
            if not place.aborted:
                self._outbox.endings[ticket] = found.lost(ticket, place)

    def _over(self, worker: Worker, how: How | None, why: str) -> None:
        """A worker is of no use any more: *how* it failed, or ``None`` when it is we who end it."""
        were_ready = self._crew.ready
        if (suspect := self._crew.shut(worker)) is not None:
            self._parking.put_back(suspect)
        if were_ready and not self._crew.ready:
            self._none_ready_since_s = self._clock.awake_s
        if how is None:
            self._slots.on_over(worker.slot)
        else:
            self._slots.on_failed(worker.slot, how, why, self._clock.now)
        for ticket in worker.places:
            self._outbox.aborts.pop(ticket, None)
        worker.over_why = f"worker {worker.id} {how.value if how else 'was ended'} ({why})"
        worker.blamed = how is How.SERVING
        worker.end_by_s = self._clock.awake_s + figures.STOP_GRACE_S
        self._watch(worker)

    def _kill(self, worker: Worker, why: str) -> None:
        self._outbox.kills[worker.id] = commands.Kill(worker.id, why)
        worker.end_by_s = math.inf

    def _watch(self, worker: Worker) -> None:
        self._check_at_s = min(self._check_at_s, worker.due_s)

    # --- decisions

    @property
    def _wanted(self) -> int:
        return workers_wanted(self.settings, self.multiplex, self._parking, self._crew)

    @property
    def _missing(self) -> int:
        return self._wanted - self._crew.ready - self._crew.starting

    def decide(self, now: float) -> list[Command]:
        """All that is to be done now, each told once."""
        self._clock.tick(now)
        decided: list[Command] = []
        if not self._closed:
            decided += self._attend()
            decided += self._give_up()
        if not self._closed:
            decided += gives(self._parking, self._crew, self.multiplex)
            decided += self._refuse()
            decided += self._retire()
            decided += self._spawn()
        return self._outbox.take() + decided

    def _attend(self) -> Iterator[Command]:
        """See to the workers about which something is due."""
        if not self._clock.is_due(self._check_at_s):
            return
        for worker in self._crew:
            if self._clock.is_due(worker.judge_s):
                self._judge(worker)
            elif self._clock.is_due(worker.due_s):
                worker.silence.on_look(self._clock.awake_s)
                yield commands.Look(worker.id)
        self._check_at_s = min((worker.due_s for worker in self._crew), default=math.inf)

    def _judge(self, worker: Worker) -> None:
        """End a worker that has had its time."""
        why = f"it has not ended within {figures.STOP_GRACE_S:g} s"
        if worker.slot.use is Use.STARTING:
            why = f"not ready within startup_timeout = {self.settings.startup_timeout_s:g} s"
            self._over(worker, How.LOADING, why)
        elif worker.slot.use is Use.READY:
            why = f"it has not answered a cancelled rollout within {figures.ABORT_GRACE_S:g} s"
            self._over(worker, None, why)
        self._kill(worker, why)

    def _give_up(self) -> Iterator[Command]:
        """End it all when no worker can be had."""
        if (why := self._slots.hopeless()) is not None:
            self._closed = True
            yield commands.GiveUp(why)

    def _refuse(self) -> Iterator[Command]:
        """Refuse what has been parked for too long while no worker was ready."""
        said = f"no worker became ready within request_deadline = {self.settings.request_deadline_s:g} s"
        while self._clock.is_due(self._deadline_s) and (longest := self._parking.longest()) is not None:
            self._parking.remove(longest[0])
            yield commands.Refuse(longest[0], f"{said}: {self._trouble(self._clock.now) or 'it is still loading'}")

    @property
    def _deadline_s(self) -> float:
        longest = self._parking.longest()
        if self._crew.ready or longest is None:
            return math.inf
        return max(longest[1], self._none_ready_since_s) + self.settings.request_deadline_s

    def _retire(self) -> Iterator[Command]:
        """Retire workers that nothing has needed for a while, the highest slots first."""
        for worker in self._surplus.to_retire(self._crew.ready - self._wanted, self._crew, self._clock):
            self._over(worker, None, "retired")
            yield commands.Retire(worker.id)

    def _spawn(self) -> Iterator[Command]:
        """Start the workers that are missing, as far as their slots may be tried."""
        now, awake_s = self._clock.now, self._clock.awake_s
        ready_by_s = awake_s + self.settings.startup_timeout_s
        for slot in self._slots.to_start(self._missing, now):
            number = WorkerId(next(self._numbers))
            worker = Worker(number, slot, Silence(self.hung_after_s, awake_s), ready_by_s)
            self._slots.on_started(slot, now)
            self._crew.add(worker)
            self._watch(worker)
            yield commands.Spawn(number, slot.index)

    def next_wake_at(self, now: float) -> float | None:
        """When :meth:`decide` has something to do if nothing happens; ``None``: never."""
        due_s = min(self._check_at_s, self._deadline_s, self._surplus.next_at_s(self._crew))
        at = math.inf if math.isinf(due_s) else now + self._clock.wait_s(due_s)
        at = min(at, self._slots.next_start_at(self._missing, now))
        return None if self._closed or math.isinf(at) else at

    # --- to be shown

    def status(self, now: float) -> WorkersStatus:
        """How the workers are doing now."""
        ready, starting, wanted = self._crew.ready, self._crew.starting, self._wanted
        why = self._trouble(now) if ready < wanted else ""
        state = "degraded" if why else "ready"
        if not ready:
            state = "starting" if starting else "empty"
        counts = ready, starting, wanted, self._crew.playing, len(self._parking)
        return WorkersStatus(self.eval_name, state, *counts, why)

    def _trouble(self, now: float) -> str:
        missing = self._missing
        what = self._slots.trouble(missing)
        return f"{what}; {self._slots.again(missing, now)}" if what and not self._closed else what
