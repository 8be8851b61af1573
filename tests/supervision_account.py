"""An account of workers and rollouts that is kept beside the supervisor: what it may decide, and what it has to."""

from __future__ import annotations

from random import Random

import attrs

from scavenge.core.supervision import (
    Abort,
    Condemn,
    Displace,
    Give,
    GiveUp,
    Kill,
    Look,
    Refuse,
    Retire,
    Spawn,
    Supervisor,
    SupervisorSettings,
    Ticket,
)


@attrs.define(eq=False)
class Process:
    """A worker as the model knows it."""

    number: int
    slot: int
    stage: str = "starting"
    frozen: bool = False
    blamed: bool = False
    """Whether its rollouts bear its end, once it is killed or broken."""
    killed: bool = False
    inside: set[Ticket] = attrs.field(factory=set)


class Account:
    """Tells the supervisor what happens, carries out what it decides, and checks every command."""

    def begin(self, settings: SupervisorSettings, random: Random) -> None:
        self.now = 100.0
        self.settings = settings
        self.supervisor = Supervisor(settings, random, self.now)
        self.processes: dict[int, Process] = {}
        self.parked: dict[Ticket, float] = {}
        self.where: dict[Ticket, Process] = {}
        self.owed: dict[Ticket, type] = {}
        """What is to be told of a rollout at the next decision."""
        self.displaced: list[Ticket] = []
        self.withdrawn: set[Ticket] = set()
        self.to_abort: set[Ticket] = set()
        self.ended: dict[Ticket, str] = {}
        self.deaths: dict[Ticket, int] = {}
        self.numbers = 0
        self.age = 0
        self.none_ready_since = self.now
        self.how: dict[int, str] = {}
        """How the last start in a slot failed, while none was ever ready."""
        self.ever_ready = self.gave_up = False
        self.settled = False

    def workers(self, *stages: str) -> list[Process]:
        return [process for process in self.processes.values() if process.stage in stages]

    def end(self, ticket: Ticket, how: str) -> None:
        assert ticket not in self.ended, f"{ticket.name} ended twice"
        self.ended[ticket] = how

    def leave(self, process: Process, stage: str) -> None:
        was_ready = process.stage == "ready"
        process.stage = stage
        if was_ready and not self.workers("ready"):
            self.none_ready_since = self.now

    def gone(self, process: Process) -> None:
        blamed = process.blamed if process.stage == "over" else process.stage == "ready"
        self.leave(process, "gone")
        del self.processes[process.number]
        for ticket in process.inside:
            del self.where[ticket]
            self.to_abort.discard(ticket)
            if ticket not in self.withdrawn:
                was_suspect = self.deaths[ticket] >= 2
                self.deaths[ticket] += blamed
                self.owed[ticket] = Condemn if blamed and was_suspect else Displace

    def event(self, name: str, *arguments) -> None:
        getattr(self.supervisor, name)(*arguments, self.now)
        self.settled = False

    # --- what happens

    def park(self, ticket: Ticket) -> None:
        assert ticket.deaths == self.deaths[ticket]
        self.event("ask", ticket)
        self.parked[ticket] = self.now

    def answered(self, ticket: Ticket) -> None:
        process = self.where.pop(ticket)
        process.inside.remove(ticket)
        self.event("on_answer", process.number, ticket)
        self.to_abort.discard(ticket)
        if ticket not in self.withdrawn:
            self.end(ticket, "answered")

    def loaded(self, process: Process) -> None:
        self.event("on_ready", process.number)
        if process.stage == "starting":
            process.stage = "ready"
            self.ever_ready = True

    def died(self, process: Process) -> None:
        self.event("on_end", process.number, "SIGSEGV")
        if process.stage == "starting":
            self.how[process.slot] = "loading"
        self.gone(process)

    def live(self, until: float) -> None:
        self.decide()
        while self.now < until:
            wake_at = self.supervisor.next_wake_at(self.now)
            assert wake_at is None or wake_at > self.now
            self.now = until if wake_at is None else min(until, wake_at)
            for process in self.processes.values():
                if not process.frozen:
                    self.event("on_sign", process.number)
            self.decide()

    # --- what is decided

    def decide(self):
        for _ in range(100):
            commands = self.supervisor.decide(self.now)
            for command in commands:
                self.carry_out(command)
            if not commands:
                break
        else:
            raise AssertionError("it never comes to an end")
        assert not self.owed
        assert not self.to_abort
        self.settled = True

    def carry_out(self, command) -> None:
        match command:
            case Spawn(worker, slot):
                self.spawn(worker, slot)
            case Give(ticket, worker):
                self.give(ticket, self.processes[worker])
            case Abort(ticket, worker):
                assert self.where[ticket].number == worker
                self.to_abort.remove(ticket)
            case Look(worker):
                process = self.processes[worker]
                assert process.stage == "ready"
                self.supervisor.on_cpu(worker, 0.0 if process.frozen else self.now, self.now)
            case Kill(worker, why):
                self.kill(self.processes[worker], why)
            case Retire(worker):
                self.retire(self.processes[worker])
            case _:
                self.finish(command)

    def finish(self, command) -> None:
        match command:
            case Displace(ticket):
                assert self.owed.pop(ticket) is Displace
                self.displaced.append(ticket)
            case Condemn(ticket):
                assert self.owed.pop(ticket) is Condemn
                self.end(ticket, "condemned")
            case Refuse(ticket):
                assert not self.workers("ready")
                waited_s = self.now - max(self.parked.pop(ticket), self.none_ready_since)
                assert waited_s >= self.settings.request_deadline_s - 1e-3
                self.end(ticket, "refused")
            case GiveUp():
                self.give_up()

    def spawn(self, worker: int, slot: int) -> None:
        self.numbers += 1
        assert worker == self.numbers
        assert 0 <= slot < self.settings.max
        assert all(process.slot != slot for process in self.processes.values())
        assert not self.gave_up
        assert self.ever_ready or self.how.get(slot) != "loading"
        self.processes[worker] = Process(worker, slot)

    def give(self, ticket: Ticket, process: Process) -> None:
        del self.parked[ticket]
        assert ticket not in self.where
        assert process.stage == "ready"
        if ticket.deaths >= 2:
            assert not process.inside
        assert all(other.deaths < 2 for other in process.inside)
        process.inside.add(ticket)
        self.where[ticket] = process
        assert len(process.inside) <= self.settings.multiplex

    def kill(self, process: Process, why: str) -> None:
        assert not process.killed
        process.killed = True
        if process.stage == "starting":
            self.how[process.slot] = "loading"
        if process.stage != "over":
            process.blamed = why.startswith("hung")
            assert process.frozen or not process.blamed
            assert process.blamed or process.stage == "starting" or process.inside & self.withdrawn
        self.to_abort -= process.inside
        self.leave(process, "over")

    def retire(self, process: Process) -> None:
        assert process.stage == "ready"
        assert not process.inside
        self.leave(process, "over")
        assert len(self.workers("ready")) >= self.settings.min

    def give_up(self) -> None:
        assert not self.gave_up
        assert not self.ever_ready
        assert not self.workers("starting")
        assert set(self.how.values()) == {"loading"}
        self.gave_up = True
