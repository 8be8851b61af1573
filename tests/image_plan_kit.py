"""A stage for stories about the image plan: it notes what is decided, and carries out what a story leaves to it."""

from __future__ import annotations

from collections import Counter
from random import Random

from scavenge.core.images.commands import (
    Answer,
    Command,
    Deliver,
    List,
    LookAtDisk,
    Ready,
    Remove,
    Unavailable,
    WaiterId,
)
from scavenge.core.images.plan import ImagePlan, PlanSettings
from scavenge.images import Delivered, DeliveryEnd, DiskRoom, RemovalEnd, Removed

LANES = ("shipments", "hub")


class FixedRandom(Random):
    """Always the same: jitter is as long as it can be, or as a story wants it."""

    def __init__(self, value: float = 1.0) -> None:
        super().__init__(0)
        self.value = value

    def random(self) -> float:
        return self.value


class Stage:
    """A plan, the time, an engine that lists at once, and a disk that is looked at at once."""

    def __init__(self, lanes: tuple[str, ...] = ("hub",), random: Random | None = None, **settings) -> None:
        self.now = 1_000.0
        self.lanes = lanes
        self.plan = ImagePlan(PlanSettings(**{"min_free_bytes": 0, **settings}), random or FixedRandom())
        self.has: set[str] = set()
        """What the engine has."""
        self.answers_engine = True
        """Whether a listing is answered at once; what it is not, a story answers."""
        self.engine_silent = False
        self.free: int | None = None
        self.total = 0
        self.under_way: dict[str, int] = {}
        self.removing: list[str] = []
        self.answered: dict[WaiterId, Ready | Unavailable] = {}
        self.images: dict[WaiterId, tuple[str, ...]] = {}
        self.counts: Counter[str] = Counter()

    # --- carrying out

    def settle(self) -> list[Command]:
        """Carry out what is decided; what that was, but for looks at the disk, which are only counted."""
        new: list[Command] = []
        while decided := self.plan.decide(self.now):
            new += [command for command in decided if not isinstance(command, LookAtDisk)]
            for command in decided:
                self.counts[type(command).__name__] += 1
                self._carry_out(command)
        return new

    def _carry_out(self, command: Command) -> None:
        match command:
            case Answer(waiter, _, what):
                assert waiter not in self.answered
                self.answered[waiter] = what
                if isinstance(what, Ready):
                    for image in self.images[waiter]:
                        self.plan.lease(image)
            case List() if self.engine_silent:
                self.plan.unlisted("connection refused", self.now)
            case List() if self.answers_engine:
                self.plan.listed(frozenset(self.has), self.now)
            case LookAtDisk():
                self.plan.disk(None if self.free is None else DiskRoom(self.free, self.total), self.now)
            case Deliver(image, source):
                self.under_way[image] = source
            case Remove(image):
                self.removing.append(image)

    # --- rollouts

    def register(self, *images: str) -> list[Command]:
        for image in images:
            self.plan.register(image, self.lanes, self.now)
        return self.settle()

    def wait(self, *images: str) -> WaiterId:
        waiter = self.plan.wait_all(images, self.now)
        self.images[waiter] = images
        self.settle()
        return waiter

    def play(self, *images: str) -> WaiterId:
        """A rollout comes that needs images."""
        for image in images:
            self.plan.register(image, self.lanes, self.now)
        return self.wait(*images)

    def over(self, *images: str) -> list[Command]:
        """A rollout that held images is over."""
        for image in images:
            self.plan.unlease(image)
            self.plan.done(image)
        return self.settle()

    # --- what comes of commands

    def deliver(self, image: str, size: int = 0) -> list[Command]:
        return self.end(image, Delivered(size))

    def end(self, image: str, end: DeliveryEnd) -> list[Command]:
        del self.under_way[image]
        if isinstance(end, Delivered):
            self.has.add(image)
            if self.free is not None:
                self.free -= end.size_bytes
        self.plan.delivery_ended(image, end, self.now)
        return self.settle()

    def removed(self, image: str, end: RemovalEnd | None = None, freed: int = 0) -> list[Command]:
        self.removing.remove(image)
        if end is None:
            self.has.discard(image)
        if self.free is not None:
            self.free += freed
        self.plan.removed(image, end or Removed(), self.now)
        return self.settle()

    # --- time

    def pass_time(self, seconds: float) -> list[Command]:
        """Let time pass, with a decision whenever one is asked for, and only then."""
        until, new = self.now + seconds, []
        while (wake_at := self.plan.next_wake_at(self.now)) is not None and wake_at <= until + 1e-6:
            assert wake_at > self.now, "it would be woken again at once, for ever"
            self.now = wake_at
            new += self.settle()
        self.now = max(self.now, until)
        return new

    @property
    def status(self):
        return self.plan.status(self.now)

    @property
    def told(self):
        return self.plan.told()


def told(commands: list[Command], kind: type) -> list:
    """The commands of a kind."""
    return [command for command in commands if isinstance(command, kind)]
