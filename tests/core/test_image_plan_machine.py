"""The image plan against an account that is kept beside it: nothing forbidden is done, and nobody waits for nothing."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from image_plan_account import FOR_EVER_S, LANES, SIZE, Account
from scavenge.core.images.plan import PlanSettings
from scavenge.images import (
    Broken,
    Delivered,
    Denied,
    DiskFull,
    EngineSilent,
    InUse,
    Missing,
    NotRemoved,
    Removed,
    Throttled,
    Transferred,
    Unfit,
)

NAMES = sorted(LANES)
ENDS = st.sampled_from(
    [
        *[Delivered(SIZE)] * 4,
        *[Broken("cut")] * 3,
        Missing("no"),
        Denied("no"),
        Unfit("no"),
        Throttled("429", 100.0),
        DiskFull("full"),
        EngineSilent("silent"),
    ]
)
REMOVALS = st.sampled_from([Removed(), Removed(), InUse("used"), NotRemoved("silent")])


class ImagePlanMachine(Account, RuleBasedStateMachine):
    """The rules only poke; what is decided then is a rule of its own."""

    @initialize(
        workers=st.integers(1, 3),
        keep=st.booleans(),
        attempts=st.integers(1, 3),
        timeout=st.sampled_from([FOR_EVER_S, 200.0]),
        room=st.sampled_from([None, 2, 3]),
        floor=st.sampled_from([0, SIZE]),
        there=st.sets(st.sampled_from(NAMES), max_size=2),
        seed=st.integers(0, 999),
    )
    def start(self, workers, keep, attempts, timeout, room, floor, there, seed):
        settings = PlanSettings(
            workers=workers, keep=keep, attempts=attempts, wait_timeout_s=timeout, min_free_bytes=floor
        )
        self.begin(settings, Random(seed), None if room is None else room * SIZE + floor)
        for name in there:
            self.items[name].in_engine = True

    # --- rollouts

    @rule(name=st.sampled_from(NAMES))
    def need(self, name):
        self.register(name)

    @precondition(lambda self: self.named(lambda item: item.pending))
    @rule(data=st.data())
    def need_no_more(self, data):
        name = data.draw(st.sampled_from(self.named(lambda item: item.pending)))
        self.items[name].pending -= 1
        self.plan.done(name)

    @precondition(lambda self: self.named(lambda item: item.registered))
    @rule(data=st.data())
    def somebody_waits(self, data):
        names = st.sampled_from(self.named(lambda item: item.registered))
        self.wait(tuple(data.draw(st.lists(names, min_size=1, max_size=2))))

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def withdraw(self, data):
        waiter = data.draw(st.sampled_from(list(self.waiters)))
        del self.waiters[waiter]
        self.plan.withdraw(waiter)

    @rule(name=st.sampled_from(NAMES))
    def use_at_once(self, name):
        if self.plan.is_ready(name):
            assert self.items[name].good or self.silent_since is not None or self.items[name].leases
            self.hold((name,))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), gone=st.booleans())
    def use_no_more(self, data, gone):
        images = data.draw(st.sampled_from(self.held))
        if gone:
            self.items[images[0]].in_engine = False
        self.let_go(images)
        if gone:
            self.missing(images[0])

    # --- what comes of commands

    @precondition(lambda self: self.listing)
    @rule(answers=st.sampled_from([True, True, False]))
    def the_engine_answers_or_not(self, answers):
        if answers:
            self.listed()
        else:
            self.unlisted()

    @precondition(lambda self: self.looking)
    @rule()
    def the_disk_is_seen(self):
        self.looked()

    @precondition(lambda self: self.named(lambda item: item.under_way is not None))
    @rule(data=st.data(), end=ENDS)
    def a_delivery_ends(self, data, end):
        name = data.draw(st.sampled_from(self.named(lambda item: item.under_way is not None)))
        self.plan.progressed(name, Transferred(1, 2))
        self.ended(name, end)

    @precondition(lambda self: self.named(lambda item: item.removing))
    @rule(data=st.data(), end=REMOVALS)
    def a_removal_ends(self, data, end):
        self.removed(data.draw(st.sampled_from(self.named(lambda item: item.removing))), end)

    # --- others

    @rule(name=st.sampled_from(NAMES), there=st.booleans())
    def somebody_else_brings_or_removes(self, name, there):
        self.items[name].in_engine = there

    # --- time

    @rule()
    def settle(self):
        self.decide()

    @rule(seconds=st.sampled_from([0.5, 5.0, 31.0, 200.0]))
    def live_on(self, seconds):
        self.advance(self.now + seconds)

    @rule(seconds=st.sampled_from([5.0, 31.0, 10_000.0]))
    def stall(self, seconds):
        """Nobody runs."""
        self.now += seconds

    # --- what always holds

    @invariant()
    def the_status_counts_as_the_account_does(self):
        if not hasattr(self, "plan"):
            return
        status = self.plan.status(self.now)
        assert status.wanted == len(self.named(lambda item: item.pending))
        assert status.waiting == len(self.waiters)
        assert {one.image for one in status.deliveries} == set(self.named(lambda item: item.under_way is not None))
        assert status.state in ("idle", "delivering", "waiting", "disk-bound", "silent")

    @invariant()
    def what_is_left_at_the_end_is_ours(self):
        if not hasattr(self, "plan"):
            return
        may_go = self.named(lambda item: item.ours or item.under_way is not None)
        left = self.plan.leftovers()
        assert set(left) <= set(may_go)
        assert not self.settings.keep or not left
        assert not any(self.items[name].leases for name in left)

    def teardown(self):
        """The world recovers: all is answered well, who is answered is soon over. Everybody comes to an end."""
        if not hasattr(self, "plan"):
            return
        if self.settings.keep:
            self.capacity = None if self.capacity is None else 1_000
        for _ in range(600):
            self.recover()
            if not self.waiters:
                break
            wake_at = self.plan.next_wake_at(self.now)
            assert wake_at is not None
            assert wake_at < FOR_EVER_S, "nobody will ever be answered"
            self.now = wake_at
        assert not self.waiters, self.plan.status(self.now)
        self.recover()
        for name in self.named(lambda item: item.pending):
            while self.items[name].pending:
                self.items[name].pending -= 1
                self.plan.done(name)
        self.recover()
        self.decide()
        assert self.plan.status(self.now).wanted == 0
        assert self.plan.next_wake_at(self.now) is None or self.plan.decide(self.plan.next_wake_at(self.now)) == []

    def recover(self):
        """All that was decided is done, and who holds images gives them back, until nothing is left to do."""
        busy = True
        while busy:
            self.decide()
            busy = bool(self.held) or self.listing or self.looking
            busy = busy or bool(self.named(lambda item: item.under_way is not None or item.removing))
            for images in tuple(self.held):
                self.let_go(images)
            if self.listing:
                self.listed()
            if self.looking:
                self.looked()
            for name in self.named(lambda item: item.under_way is not None):
                self.ended(name, Delivered(SIZE))
            for name in self.named(lambda item: item.removing):
                self.removed(name, Removed())


TestImagePlanMachine = ImagePlanMachine.TestCase
