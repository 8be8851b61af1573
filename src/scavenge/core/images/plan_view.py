"""How the images are doing, and what holds one up, in words. Reads the plan's parts and changes nothing."""

from __future__ import annotations

import itertools

import attrs

from scavenge.core.images.commands import Answer, Ready, Unavailable
from scavenge.core.images.plan_board import Board, Delivery
from scavenge.core.images.plan_image import Busy, Image, Known, Waiter
from scavenge.core.images.plan_needs import Figure
from scavenge.core.images.plan_words import how_far, no_room, roughly
from scavenge.status import DeliveryStatus, ImagesStatus


@attrs.frozen(eq=False)
class PlanView:
    """Looks at the board."""

    board: Board

    def status(self, now: float) -> ImagesStatus:
        """How the images are doing now."""
        figure = self.board.needs.figure
        state, why = self._state(now)
        return ImagesStatus(
            state,
            wanted=figure(Figure.WANTED),
            present=figure(Figure.PRESENT),
            failed=figure(Figure.FAILED),
            waiting=len(self.board.needs.waiters),
            deliveries=tuple(_shown(delivery, now) for delivery in self.board.deliveries.values()),
            why=why,
            free_bytes=self.board.disk.free_bytes,
            brought=figure(Figure.BROUGHT),
        )

    def _state(self, now: float) -> tuple[str, str]:
        unsettled = self.board.needs.figure(Figure.UNSETTLED) > 0
        if self.board.engine.is_silent and (unsettled or self.board.needs.figure(Figure.ASSUMED)):
            return "silent", self._silence()
        if self.board.deliveries:
            return "delivering", ""
        if not unsettled:
            return "idle", ""
        if self._is_short(now):
            return "disk-bound", no_room(self.board.disk.free_bytes, self.board.disk.floor_bytes)
        return "waiting", self._why_waiting(now)

    def _is_short(self, now: float) -> bool:
        return self.board.queue.best(now) is not None and not self.board.disk.has_room(len(self.board.deliveries), now)

    def _why_waiting(self, now: float) -> str:
        waited_for = (image for waiter in self.board.needs.waiters.values() for image in waiter.images)
        lacking = (image for image in itertools.chain(waited_for, self.board.queue) if not image.is_ready)
        return next((self.held_up(image, now) for image in lacking), "")

    def _silence(self) -> str:
        return f"the container engine does not answer: {self.board.engine.why}"

    # --- why one image is not there

    def held_up(self, image: Image, now: float) -> str:
        """Why an image is not there yet, in a few words."""
        if image.known is Known.FAILED:
            return image.trial.why_hopeless
        if (delivery := self.board.deliveries.get(image)) is not None:
            return f"being delivered from {delivery.lane}, {how_far(delivery.transferred)}"
        if self.board.engine.is_silent:
            return self._silence()
        if image.known is Known.UNKNOWN:
            return "the container engine has not said yet which images it has"
        if image.busy is Busy.REMOVING:
            return "it is being removed, to be fetched again"
        return self._not_fetched(image, now)

    def _not_fetched(self, image: Image, now: float) -> str:
        trouble = image.trial.trouble
        route = [self.board.trials.lanes[lane] for lane in image.trial.route()]
        shut = all(lane.is_shut(now) for lane in route)
        if image.trial.is_cooling or (shut and image.trial.resting):
            return f"{trouble}; tried again soon"
        if shut:
            first = min(route, key=lambda lane: lane.shut_until)
            return f"{first.name} wants to be left alone for {roughly(first.shut_until - now)}"
        if self._is_short(now):
            return no_room(self.board.disk.free_bytes, self.board.disk.floor_bytes)
        return "others are fetched first" if image.waiters else "it is fetched when its time comes near"

    # --- what waiters are told

    def timeout(self, waiter: Waiter, now: float) -> Answer:
        """The answer to somebody who has waited for long enough."""
        image = _lacking(waiter)
        why = f"not there within wait_timeout = {self.board.needs.wait_timeout_s:g} s: {self.held_up(image, now)}"
        return Answer(waiter.id, image.name, Unavailable(why))

    def answer(self, waiter: Waiter) -> Answer | None:
        """The answer to somebody who waits, if all is there or something never will be."""
        for image in waiter.images:
            if image.known is Known.FAILED:
                return Answer(waiter.id, image.name, Unavailable(image.trial.why_hopeless))
        if not all(image.is_ready for image in waiter.images):
            return None
        if not waiter.images:
            return Answer(waiter.id, "", Ready("present"))
        image = min(waiter.images, key=_certainty)
        return Answer(waiter.id, image.name, Ready(_how(image), image.source))


def _shown(delivery: Delivery, now: float) -> DeliveryStatus:
    sizes = delivery.transferred.done_bytes, delivery.transferred.total_bytes
    return DeliveryStatus(delivery.image.name, delivery.lane, *sizes, age_s=now - delivery.begun_at)


def _lacking(waiter: Waiter) -> Image:
    return next(image for image in waiter.images if not image.is_ready)


def _how(image: Image) -> str:
    if image.known is Known.ASSUMED:
        return "assumed"
    return "delivered" if image.source else "present"


def _certainty(image: Image) -> int:
    return ("assumed", "delivered", "present").index(_how(image))
