"""An account of images that is kept beside the image plan: what it may decide, and what it has to."""

from __future__ import annotations

from random import Random

import attrs

from scavenge.core.images.commands import Answer, Deliver, List, LookAtDisk, Ready, Remove, Unavailable
from scavenge.core.images.plan import ImagePlan, PlanSettings
from scavenge.images import Broken, Delivered, Denied, DiskRoom, InUse, Missing, NotRemoved, Removed, Throttled, Unfit

SIZE = 10
LANES = {"a": ("mirror", "hub"), "b": ("hub",), "c": ("mirror", "mirror", "other"), "d": ("hub", "mirror"), "e": ()}
FOR_EVER_S = 1e9


@attrs.define(eq=False)
class Item:
    """An image as the account knows it."""

    lanes: tuple[str, ...]
    registered: bool = False
    pending: int = 0
    leases: int = 0
    gone: set[int] = attrs.field(factory=set)
    good: bool = False
    """Whether it was listed or delivered, and not removed or found missing since."""
    distrusted: bool = False
    ours: bool = False
    in_engine: bool = False
    under_way: int | None = None
    removing: bool = False


class Account:
    """Tells the plan what happens, notes what it decides, and checks every command."""

    def begin(self, settings: PlanSettings, random: Random, capacity: int | None) -> None:
        self.now = 100.0
        self.settings = settings
        self.plan = ImagePlan(settings, random)
        self.capacity = capacity
        """Room for images of ours; ``None``: the disk cannot be seen."""
        self.items = {name: Item(lanes) for name, lanes in LANES.items()}
        self.waiters: dict[int, tuple[tuple[str, ...], float]] = {}
        self.ever_waited: set[int] = set()
        self.held: list[tuple[str, ...]] = []
        self.listing = self.looking = False
        self.changed_since_list: set[str] = set()
        self.silent_since: float | None = None
        self.seen: tuple[int | None, float] | None = None
        self.lane_shut_until: dict[str, float] = {}

    # --- facts

    def named(self, condition) -> list[str]:
        return [name for name, item in self.items.items() if condition(item)]

    @property
    def free(self) -> int | None:
        if self.capacity is None:
            return None
        return self.capacity - SIZE * len(self.named(lambda item: item.ours and item.in_engine))

    def waits_for(self, name: str) -> bool:
        return any(name in images for images, _ in self.waiters.values())

    def is_failed(self, item: Item) -> bool:
        return len(item.gone) == len(item.lanes)

    # --- what the plan decides

    def decide(self) -> None:
        promised: set[str] = set()
        for command in self.plan.decide(self.now):
            self.check(command, promised)
        assert self.plan.decide(self.now) == [], "it says something without news"
        wake_at = self.plan.next_wake_at(self.now)
        assert wake_at is None or wake_at > self.now, "it would be woken for ever"

    def check(self, command: object, promised: set[str]) -> None:
        match command:
            case List():
                assert not self.listing
                self.listing = True
                self.changed_since_list = set()
            case LookAtDisk():
                assert not self.looking
                self.looking = True
            case Deliver(image, source):
                self.check_delivery(image, source)
            case Remove(image):
                self.check_removal(image, promised)
            case Answer(waiter, image, what):
                images, since = self.waiters.pop(waiter)
                assert waiter not in self.ever_waited
                self.ever_waited.add(waiter)
                if isinstance(what, Ready):
                    self.check_ready(images, what)
                    promised.update(images)
                    self.hold(images)
                else:
                    self.check_unavailable(images, image, what, since)

    def check_delivery(self, image: str, source: int) -> None:
        item = self.items[image]
        assert item.under_way is None
        assert not item.removing
        assert len(self.named(lambda one: one.under_way is not None)) < self.settings.workers
        assert item.pending or self.waits_for(image)
        assert source not in item.gone
        assert self.now >= self.lane_shut_until.get(item.lanes[source], 0)
        assert not self.listing
        assert self.silent_since is None
        assert not item.good or item.distrusted or not self.plan.is_ready(image)
        assert self.seen is not None
        free, at = self.seen
        assert free is None or free >= self.settings.min_free_bytes
        assert self.now - at < 10
        item.under_way = source

    def check_removal(self, image: str, promised: set[str]) -> None:
        item = self.items[image]
        assert not self.settings.keep
        assert item.ours
        assert not item.leases
        assert not item.removing
        assert item.under_way is None
        assert image not in promised
        assert not self.named(lambda one: one.removing), "one at a time"
        item.removing = True

    def check_ready(self, images: tuple[str, ...], what: Ready) -> None:
        for image in images:
            item = self.items[image]
            assert not item.removing
            assert item.good or self.silent_for_long or what.how == "assumed", f"nobody has seen {image}"

    def check_unavailable(self, images: tuple[str, ...], image: str, what: Unavailable, since: float) -> None:
        assert image in images
        timed_out = self.now - since >= self.settings.wait_timeout_s
        assert timed_out or self.is_failed(self.items[image])
        assert what.why

    @property
    def silent_for_long(self) -> bool:
        return self.silent_since is not None and self.now - self.silent_since >= 30

    # --- what happens

    def register(self, name: str) -> None:
        item = self.items[name]
        item.registered = True
        item.pending += 1
        self.plan.register(name, item.lanes, self.now)

    def wait(self, images: tuple[str, ...]) -> None:
        self.waiters[self.plan.wait_all(images, self.now)] = images, self.now

    def hold(self, images: tuple[str, ...]) -> None:
        self.held.append(images)
        for image in set(images):
            self.items[image].leases += 1
            self.plan.lease(image)

    def let_go(self, images: tuple[str, ...]) -> None:
        self.held.remove(images)
        for image in set(images):
            self.items[image].leases -= 1
            self.plan.unlease(image)

    def missing(self, image: str) -> None:
        item = self.items[image]
        item.good, item.distrusted = False, True
        self.changed_since_list.add(image)
        self.plan.missing(image, self.now)

    def listed(self) -> None:
        names = set(self.named(lambda item: item.in_engine))
        for name, item in self.items.items():
            if name in self.changed_since_list or item.under_way is not None or item.removing or item.distrusted:
                continue
            if item.in_engine:
                item.ours = item.ours and item.good
                item.good = True
            else:
                item.good = item.leases > 0 and self.plan.is_ready(name)  # its use tells, if it was assumed
        self.listing, self.silent_since = False, None
        self.plan.listed(names, self.now)

    def unlisted(self) -> None:
        self.listing = False
        self.fell_silent()
        self.plan.unlisted("connection refused", self.now)

    def fell_silent(self) -> None:
        self.silent_since = self.now if self.silent_since is None else self.silent_since

    def looked(self) -> None:
        self.looking = False
        self.seen = self.free, self.now
        self.plan.disk(None if self.free is None else DiskRoom(self.free, 0), self.now)

    def ended(self, image: str, end: object) -> None:
        item = self.items[image]
        source, item.under_way = item.under_way, None
        self.changed_since_list.add(image)
        match end:
            case Delivered():
                item.ours = item.good = item.in_engine = True
                item.distrusted = False
            case Missing() | Denied() | Unfit():
                item.gone.add(source)
            case Throttled(_, seconds):
                lane = item.lanes[source]
                self.lane_shut_until[lane] = max(self.lane_shut_until.get(lane, 0), self.now + seconds)
            case Broken():
                pass
            case _ if type(end).__name__ == "EngineSilent":
                self.fell_silent()
        self.plan.delivery_ended(image, end, self.now)

    def removed(self, image: str, end: Removed | InUse | NotRemoved) -> None:
        item = self.items[image]
        item.removing = False
        self.changed_since_list.add(image)
        if isinstance(end, Removed):
            item.good = item.in_engine = item.ours = False
        self.plan.removed(image, end, self.now)

    def advance(self, until: float) -> None:
        """Let time pass, with a decision whenever one is asked for."""
        while self.now < until:
            wake_at = self.plan.next_wake_at(self.now)
            if wake_at is None or wake_at > until:
                self.now = until
            else:
                self.now = wake_at
                self.decide()
