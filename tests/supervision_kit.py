"""A stage for stories about the supervisor: it carries commands out as a shell would, without any process."""

from __future__ import annotations

from random import Random

from scavenge.core.supervision import (
    Abort,
    Command,
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
    WorkerId,
)

DEFAULTS = {
    "min": 1,
    "max": 4,
    "multiplex": 4,
    "startup_timeout_s": 600.0,
    "restart_backoff_max_s": 30.0,
    "request_deadline_s": 600.0,
}


class Stage:
    """A supervisor, the time, and what its commands came to."""

    def __init__(self, seed: int = 0, **settings) -> None:
        self.now = 1_000.0
        self.supervisor = Supervisor(SupervisorSettings(**{**DEFAULTS, **settings}), Random(seed), self.now, "plus")
        self.told: list[Command] = []
        self.spawned: list[tuple[float, WorkerId]] = []
        self.slot: dict[WorkerId, int] = {}
        self.starting: list[WorkerId] = []
        self.ready: list[WorkerId] = []
        self.killed: dict[WorkerId, str] = {}
        self.retired: list[WorkerId] = []
        self.inside: dict[Ticket, WorkerId] = {}
        self.cpu: dict[WorkerId, float | None] = {}
        """What a look at a worker shows; 0 by default."""
        self.silent: set[WorkerId] = set()
        """Workers that give no sign while time passes."""

    def settle(self) -> list[Command]:
        """Carry out what is decided; what that was."""
        new = []
        while decided := self.supervisor.decide(self.now):
            new += decided
            for command in decided:
                self._carry_out(command)
        self.told += new
        return new

    def _carry_out(self, command: Command) -> None:
        match command:
            case Spawn(worker, slot):
                self.spawned.append((self.now, worker))
                self.slot[worker] = slot
                self.starting.append(worker)
            case Give(ticket, worker):
                assert worker in self.ready
                self.inside[ticket] = worker
            case Kill(worker, why):
                self.killed[worker] = why
                self._leave(worker)
            case Retire(worker):
                self.retired.append(worker)
                self._leave(worker)
            case Look(worker):
                self.supervisor.on_cpu(worker, self.cpu.get(worker, 0.0), self.now)
            case Displace(ticket, _) | Refuse(ticket, _) | Condemn(ticket, _):
                self.inside.pop(ticket, None)
            case Abort() | GiveUp():
                pass

    def _leave(self, worker: WorkerId) -> None:
        for workers in (self.starting, self.ready):
            if worker in workers:
                workers.remove(worker)

    # --- rollouts

    def ask(self, count: int, first: int = 0) -> list[Ticket]:
        """So many new rollouts, whose ages are counted from *first* on."""
        tickets = [Ticket(age, f"plus/{age}/0") for age in range(first, first + count)]
        for ticket in tickets:
            self.ask_again(ticket)
        return tickets

    def ask_again(self, ticket: Ticket) -> list[Command]:
        self.supervisor.ask(ticket, self.now)
        return self.settle()

    def withdraw(self, ticket: Ticket) -> list[Command]:
        self.supervisor.withdraw(ticket, self.now)
        return self.settle()

    def answer(self, *tickets: Ticket) -> list[Command]:
        new = []
        for ticket in tickets:
            self.supervisor.on_answer(self.inside.pop(ticket), ticket, self.now)
            new += self.settle()
        return new

    # --- workers

    def load(self, *workers: WorkerId) -> list[Command]:
        """Workers, or all that are starting, become ready."""
        new = []
        for worker in workers or tuple(self.starting):
            self.starting.remove(worker)
            self.ready.append(worker)
            self.supervisor.on_ready(worker, self.now)
            new += self.settle()
        return new

    def end(self, worker: WorkerId, why: str = "SIGSEGV") -> list[Command]:
        self._leave(worker)
        self.supervisor.on_end(worker, why, self.now)
        return self.settle()

    def not_spawned(self, worker: WorkerId, why: str = "no memory") -> list[Command]:
        self._leave(worker)
        self.supervisor.on_not_spawned(worker, why, self.now)
        return self.settle()

    def broken(self, worker: WorkerId, why: str = "KeyError: 'rows'") -> list[Command]:
        self._leave(worker)
        self.supervisor.on_broken(worker, why, self.now)
        return self.settle()

    def exhaust(self) -> None:
        """No start succeeds until every slot that is wanted is exhausted."""
        for _ in range(400):
            for worker in tuple(self.starting):
                self.not_spawned(worker)
            self.wait(0.5)

    # --- time

    def wait(self, seconds: float) -> list[Command]:
        """Let time pass, with a wake-up whenever one is asked for. Workers that are not silent are heard of."""
        until, new = self.now + seconds, []
        while True:
            wake_at = self.supervisor.next_wake_at(self.now)
            assert wake_at is None or wake_at > self.now, "it would be woken again at once, for ever"
            self.now = until if wake_at is None else min(until, wake_at)
            for worker in (*self.starting, *self.ready):
                if worker not in self.silent:
                    self.supervisor.on_sign(worker, self.now)
            new += self.settle()
            if self.now >= until:
                return new

    def stall(self, seconds: float) -> list[Command]:
        """Nobody runs for a while; then the decision comes before what the workers have said meanwhile."""
        self.now += seconds
        return self.settle()

    @property
    def status(self):
        return self.supervisor.status(self.now)


def told(commands: list[Command], kind: type) -> list:
    """The commands of a kind."""
    return [command for command in commands if isinstance(command, kind)]


def ready_stage(**settings) -> Stage:
    """A stage with ``min`` workers that are ready."""
    stage = Stage(**settings)
    stage.settle()
    stage.load()
    return stage


def suspect(age: int) -> Ticket:
    return Ticket(age, f"plus/{age}/0", deaths=2)
