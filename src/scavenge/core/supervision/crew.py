"""The workers of a pool: how they stand, what is in them, and which gets the next rollout. Pure.

A worker's stage is the use of its slot: starting → ready → over → gone. One that is over stops, or is killed; what it
had written before is still heard.

Invariants: ``_open`` has exactly the ready workers that are kept for nobody, the emptiest first, and of these the one
that was given work longest ago; a ticket has one place at most; a worker in which a suspect is has nothing else.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator

import attrs

from scavenge.core.supervision.commands import Condemn, Displace, Ticket, WorkerId
from scavenge.core.supervision.silence import Silence
from scavenge.core.supervision.slots import Slot, Use


@attrs.define
class Place:
    """A rollout's place in a worker."""

    alone: bool
    """It is a suspect, and nothing else is in the worker."""
    answer_by_s: float = math.inf
    """When its cancellation has to be answered."""

    @property
    def aborted(self) -> bool:
        """Whether it was cancelled: nobody waits for its result."""
        return not math.isinf(self.answer_by_s)


@attrs.define(eq=False)
class Worker:
    """One worker, from the decision to start it until it is gone."""

    id: WorkerId
    slot: Slot
    silence: Silence
    end_by_s: float
    """When it has to be ready, and once it is over, gone."""
    places: dict[Ticket, Place] = attrs.field(factory=dict)
    kept_for: Ticket | None = None
    """The suspect that gets it for itself, or has it."""
    turn: int = 0
    """The number of what it was given last."""
    idle_since_s: float = 0.0
    over_why: str = ""
    blamed: bool = False
    """Whether its end speaks against the rollouts in it, once it is over."""

    @property
    def rank(self) -> tuple[int, int, WorkerId]:
        """The lower, the sooner it gets a rollout."""
        return len(self.places), self.turn, self.id

    @property
    def judge_s(self) -> float:
        """When it has to be ready, or to have answered a cancellation, or to be gone."""
        if self.slot.use is not Use.READY:
            return self.end_by_s
        return min((place.answer_by_s for place in self.places.values()), default=math.inf)

    @property
    def due_s(self) -> float:
        """When it has to be seen to."""
        return min(self.judge_s, self.silence.look_at_s if self.slot.use is Use.READY else math.inf)

    def lost(self, ticket: Ticket, place: Place) -> Displace | Condemn:
        """What becomes of a rollout that was in it unanswered when it went."""
        ticket.deaths += self.blamed
        if self.blamed and place.alone:
            said = f"all {ticket.deaths} workers that it was played in died, the last with nothing else in it"
            return Condemn(ticket, f"{said}: {self.over_why}")
        return Displace(ticket, self.over_why)


@attrs.define(eq=False)
class Crew:
    """All workers of a pool that are not gone."""

    starting: int = 0
    ready: int = 0
    alone: int = 0
    """Suspects in workers."""
    _workers: dict[WorkerId, Worker] = attrs.field(factory=dict, init=False)
    _where: dict[Ticket, Worker] = attrs.field(factory=dict, init=False)
    _open: list[tuple[int, int, WorkerId]] = attrs.field(factory=list, init=False)
    _kept: dict[Ticket, Worker] = attrs.field(factory=dict, init=False)
    """Workers that are being emptied for a suspect."""
    _turns: int = attrs.field(default=0, init=False)

    @property
    def playing(self) -> int:
        """How many rollouts are in workers."""
        return len(self._where)

    @property
    def open(self) -> int:
        """How many ready workers are kept for nobody."""
        return len(self._open)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def find(self, worker: WorkerId) -> Worker | None:
        """A worker that is not gone."""
        return self._workers.get(worker)

    def where(self, ticket: Ticket) -> Worker | None:
        """The worker that a ticket has its place in."""
        return self._where.get(ticket)

    # --- lives

    def add(self, worker: Worker) -> None:
        """A worker is being started."""
        self._workers[worker.id] = worker
        self.starting += 1

    def on_ready(self, worker: Worker, now_s: float) -> None:
        """A worker that was starting has become ready."""
        self.starting -= 1
        self.ready += 1
        worker.idle_since_s = now_s
        insort(self._open, worker.rank)

    def shut(self, worker: Worker) -> Ticket | None:
        """Give a worker that is starting or ready no work any more; the suspect that it was being emptied for."""
        if worker.slot.use is Use.STARTING:
            self.starting -= 1
            return None
        self.ready -= 1
        waiting = worker.kept_for if worker.kept_for in self._kept else None
        if worker.kept_for is None:
            self._close(worker)
        else:
            self._kept.pop(worker.kept_for, None)
        return waiting

    def remove(self, worker: Worker) -> dict[Ticket, Place]:
        """A worker that is shut is gone; what was in it."""
        del self._workers[worker.id]
        for ticket, place in worker.places.items():
            del self._where[ticket]
            self.alone -= place.alone
        return worker.places

    def _close(self, worker: Worker) -> None:
        del self._open[bisect_left(self._open, worker.rank)]

    # --- places

    def emptiest(self) -> Worker | None:
        """The worker that is next to be given something."""
        return self._workers[self._open[0][2]] if self._open else None

    def idle(self) -> Iterator[Worker]:
        """The ready workers that have nothing."""
        for load, _, worker in self._open:
            if load:
                return
            yield self._workers[worker]

    def put(self, ticket: Ticket, worker: Worker) -> None:
        """A ticket gets a place in a worker: an open one, or the one that is kept for it."""
        alone = worker.kept_for is not None
        if not alone:
            self._close(worker)
        self._turns += 1
        worker.turn = self._turns
        worker.places[ticket] = Place(alone)
        self._where[ticket] = worker
        self.alone += alone
        self._kept.pop(ticket, None)
        if not alone:
            insort(self._open, worker.rank)

    def take(self, ticket: Ticket, now_s: float) -> Place:
        """A ticket's place becomes free."""
        worker = self._where.pop(ticket)
        is_open = worker.slot.use is Use.READY and worker.kept_for is None
        if is_open:
            self._close(worker)
        place = worker.places.pop(ticket)
        self.alone -= place.alone
        worker.idle_since_s = now_s
        if place.alone:
            worker.kept_for = None
        if is_open or (place.alone and worker.slot.use is Use.READY):
            insort(self._open, worker.rank)
        return place

    # --- suspects

    def keep(self, worker: Worker, ticket: Ticket) -> None:
        """Give an open worker nothing more until it is empty: then a suspect gets it for itself."""
        self._close(worker)
        worker.kept_for = ticket
        self._kept[ticket] = worker

    def let_go(self, ticket: Ticket) -> None:
        """A suspect that a worker may be being emptied for does not need it."""
        if (worker := self._kept.pop(ticket, None)) is not None:
            worker.kept_for = None
            insort(self._open, worker.rank)

    def swap_kept(self) -> None:
        """Where a worker is being emptied for a suspect, take one that is empty already instead."""
        for ticket, worker in list(self._kept.items()):
            other = self.emptiest()
            if worker.places and other is not None and not other.places:
                self.let_go(ticket)
                self.keep(other, ticket)

    def emptied(self) -> list[tuple[Ticket, Worker]]:
        """The suspects whose workers are empty."""
        return [(ticket, worker) for ticket, worker in self._kept.items() if not worker.places]
