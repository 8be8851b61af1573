"""All that the plan knows, and what follows at once from something that is learnt of one image. Pure.

Invariant: after each change of an image it has been settled: counted, in its line if it is to be fetched, among those
that may be removed if it may, and failed if it is needed and no source gives it.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import attrs

from scavenge.core.images.plan_cooling import Cooling
from scavenge.core.images.plan_disk import Disk
from scavenge.core.images.plan_engine import EngineWatch
from scavenge.core.images.plan_image import Busy, Image, Known, Waiter
from scavenge.core.images.plan_lanes import Lanes
from scavenge.core.images.plan_needs import Needs
from scavenge.core.images.plan_queue import FetchQueue
from scavenge.core.images.plan_removal import Removal
from scavenge.core.images.plan_settings import PlanSettings
from scavenge.core.images.plan_trial import Failure, Trials
from scavenge.core.images.plan_words import one_line, outcome_of
from scavenge.events import ImageFailed, ImageTrouble
from scavenge.images import Delivered, DeliveryEnd, DiskFull, EngineSilent, RemovalEnd, Removed, Throttled, Transferred


@attrs.define(eq=False)
class Delivery:
    """A delivery that is under way."""

    image: Image
    source: int
    lane: str
    begun_at: float
    transferred: Transferred = attrs.field(factory=lambda: Transferred(0))


@attrs.define(eq=False)
class Board:
    """The parts of the plan, and the deliveries that are under way."""

    settings: PlanSettings
    random: Random
    needs: Needs = attrs.field(init=False)
    engine: EngineWatch = attrs.field(init=False)
    disk: Disk = attrs.field(init=False)
    trials: Trials = attrs.field(init=False)
    queue: FetchQueue = attrs.field(init=False)
    removal: Removal = attrs.field(init=False)
    cooling: Cooling = attrs.field(factory=Cooling, init=False)
    deliveries: dict[Image, Delivery] = attrs.field(factory=dict, init=False)
    to_answer: dict[Waiter, None] = attrs.field(factory=dict, init=False)
    """Those who wait for an image of which something was learnt."""
    moved: bool = attrs.field(default=False, init=False)
    """Whether an image has come, or a part of one, since time was looked at."""
    told: list[ImageTrouble | ImageFailed] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        lanes = Lanes()
        self.needs = Needs(self.settings.wait_timeout_s, self.settings.attempts)
        self.engine = EngineWatch(self.random, self.settings.list_ttl_s)
        self.disk = Disk(self.settings.min_free_bytes)
        self.trials = Trials(lanes, self.random)
        self.queue = FetchQueue(lanes)
        self.removal = Removal(self.settings.keep)

    def settle(self, image: Image) -> None:
        """Something of an image has changed: have it where it belongs in every respect."""
        if image.known is Known.ABSENT and image.is_needed and image.trial.is_hopeless:
            image.known = Known.FAILED
            self.told.append(ImageFailed(image.name, image.trial.why_hopeless))
        self.needs.count(image)
        self.queue.put(image)
        self.removal.note(image)

    def learn(self, image: Image, known: Known) -> None:
        """Something is known of an image from now on; those who wait for it may have to be told."""
        image.known = known
        if image.is_ready:
            image.trial.wake_all()
        self.settle(image)
        if image.is_ready or image.known is Known.FAILED:
            self.to_answer.update(dict.fromkeys(image.waiters.values()))

    def end_wait(self, waiter: Waiter) -> None:
        """Somebody waits no longer."""
        self.needs.end_wait(waiter)
        self.to_answer.pop(waiter, None)
        for image in waiter.images:
            self.settle(image)

    # --- listings

    def listed(self, names: Collection[str], now: float) -> None:
        """Take in what the engine has, but for what has changed since it was asked."""
        self.engine.listed(names, now)
        for image in self.needs.images.values():
            if image.busy is Busy.NO and image.known is not Known.FAILED and image.learnt < self.engine.asked:
                self._look_up(image, image.name in names)

    def _look_up(self, image: Image, there: bool) -> None:
        if there and not image.distrusted and image.known is not Known.PRESENT:
            if image.known is Known.ABSENT:  # it was gone, or never there: somebody else has brought it since
                self.removal.give_up(image)
            image.source, image.theirs = "", not image.is_ours
            self.learn(image, Known.PRESENT)
        elif not there and image.known is not Known.ABSENT and not (image.leases and image.is_ready):
            image.theirs = False
            self.learn(image, Known.ABSENT)

    # --- deliveries

    def begin(self, image: Image, source: int, now: float) -> None:
        """A delivery begins."""
        lane = image.trial.lanes[source]
        self.trials.lanes[lane].under_way += 1
        self.deliveries[image] = Delivery(image, source, lane, now)
        image.busy = Busy.DELIVERING
        image.tried_at = now if image.tried_at is None else image.tried_at
        self.settle(image)

    def found(self, image: Image) -> None:
        """What was to be delivered is there already, by somebody else. Raises :class:`ValueError` as :meth:`ended`."""
        self._end_delivery(image)
        image.source, image.theirs, image.distrusted = "", True, False
        self.learn(image, Known.PRESENT)

    def _end_delivery(self, image: Image) -> Delivery:
        delivery = self.deliveries.pop(image, None)
        if delivery is None:
            raise ValueError(f"image {image.name} is not being delivered")
        self.trials.lanes[delivery.lane].under_way -= 1
        image.busy, image.learnt = Busy.NO, self.engine.asked
        return delivery

    def ended(self, image: Image, end: DeliveryEnd, now: float) -> None:
        """A delivery is over. Raises :class:`ValueError` when there was none."""
        delivery = self._end_delivery(image)
        if isinstance(end, Delivered):
            self.trials.delivered(image.trial, delivery.source, now)
            self.disk.delivered(end.size_bytes)
            self.moved = True
            if not image.theirs:
                self.removal.bring(image)
            image.source, image.used, image.distrusted, image.tried_at = delivery.lane, False, False, None
            self.learn(image, Known.PRESENT)
        else:
            self._failed(delivery, end, now)

    def _failed(self, delivery: Delivery, end: Failure, now: float) -> None:
        image = delivery.image
        retry_s = self.trials.failed(image.name, image.trial, delivery.source, end, now)
        trouble = ImageTrouble(image.name, delivery.lane, outcome_of(end), one_line(end.why), retry_s)
        self.told.append(trouble)
        self.cooling.note(image)
        self.learn(image, Known.ABSENT)
        if isinstance(end, DiskFull):
            self.disk.filled(now)
        elif isinstance(end, EngineSilent):
            self.engine.fell_silent(end.why, now)
        elif isinstance(end, Throttled):
            self._renew_shut_out(now)

    def _renew_shut_out(self, now: float) -> None:
        """Have those try their other sources again that would only wait for a lane that was shut."""
        for image in self.queue.shut_out(now):
            self._renew(image, now)

    def pass_time(self, now: float) -> None:
        """See which images may be tried again, or have to begin a new round."""
        if self.moved:
            self.moved, self.needs.moved_at = False, now
        for image in self.cooling.cooled(now):
            self.cooling.note(image)
            self.settle(image)
            self._renew(image, now)

    def _renew(self, image: Image, now: float) -> None:
        if self.trials.renew(image.trial, now):
            self.cooling.note(image)
            self.settle(image)

    def progressed(self, image: Image, transferred: Transferred) -> None:
        """A delivery is so far. What comes too late changes nothing."""
        if (delivery := self.deliveries.get(image)) is not None:
            self.moved = self.moved or transferred.done_bytes > delivery.transferred.done_bytes
            delivery.transferred = transferred

    # --- removals

    def remove(self, image: Image) -> None:
        """A removal begins."""
        image.busy = Busy.REMOVING
        self.removal.under_way += 1
        self.settle(image)

    def removed(self, image: Image, end: RemovalEnd, now: float) -> None:
        """A removal is over."""
        if image.busy is Busy.REMOVING:
            image.busy = Busy.NO
            self.removal.under_way -= 1
        self.disk.removed(freed=isinstance(end, Removed))
        image.learnt = self.engine.asked
        if isinstance(end, Removed):
            self.removal.give_up(image)
            self.learn(image, Known.FAILED if image.known is Known.FAILED else Known.ABSENT)
        else:
            self.removal.refused(image, now)
            self.learn(image, image.known)
