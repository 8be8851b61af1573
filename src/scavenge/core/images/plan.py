"""What is done about container images: which are fetched from which source, which are removed, who is told. Pure.

It hears who needs what and what became of deliveries, and decides what follows; it knows no engine, no registry and no
task. What it knows is on the board (``plan_board.py``): who needs what (``plan_needs.py``), how images fare with their
sources (``plan_trial.py``, ``plan_lanes.py``), what is fetched next (``plan_queue.py``), the engine's silence
(``plan_engine.py``), room on disk and what may be removed (``plan_disk.py``, ``plan_removal.py``). What is done next is
in ``plan_decisions.py``, words in ``plan_view.py``.

Invariants:

- The engine is asked for its images only when something is needed of which nothing is known, or when somebody waits
  and the last listing is old; once at a time. What was there stays known until a listing, a removal or its use says
  otherwise; asking whether it is there asks nobody.
- An image is delivered once at a time, only when it is absent for sure and needed, and never while the engine is silent
  or being asked. No more than ``workers`` deliveries are under way.
- An image is failed when every source has said that it does not give it, and stays failed.
- Each waiter is answered once, unless it is withdrawn: when all of its images are there at the same time, or one will
  not be. Nothing is leased to somebody who still waits for another image, so those who wait never hold each other up.
- Only what was brought is removed, never what is leased or just answered with; with ``keep`` nothing is. What was there
  before is not brought, even if it is delivered because its use did not find it.
- A decision that was told is not told again: without news, a second call says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random

import attrs

from scavenge.core.images.commands import Command, WaiterId
from scavenge.core.images.plan_board import Board
from scavenge.core.images.plan_decisions import Decisions
from scavenge.core.images.plan_image import Known
from scavenge.core.images.plan_settings import PlanSettings
from scavenge.core.images.plan_view import PlanView
from scavenge.events import ImageFailed, ImageTrouble
from scavenge.images import DeliveryEnd, DiskRoom, RemovalEnd, Transferred
from scavenge.status import ImagesStatus

__all__ = ["ImagePlan", "PlanSettings"]


@attrs.define(eq=False)
class ImagePlan:
    """Decides what is done about the images of a run.

    Whoever carries its decisions out tells it what comes of them, and calls :meth:`decide` after all news and at
    :meth:`next_wake_at`. Who is answered with ``Ready`` leases those images before the next decision.
    """

    settings: PlanSettings
    random: Random = attrs.field(repr=False)
    _board: Board = attrs.field(init=False, repr=False)
    _view: PlanView = attrs.field(init=False, repr=False)
    _decisions: Decisions = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._board = Board(self.settings, self.random)
        self._view = PlanView(self._board)
        self._decisions = Decisions(self._board, self._view)

    # --- needs; each raises ValueError where it undoes what was not done

    def register(self, image: str, lanes: Sequence[str], now: float) -> None:
        """One more rollout will need an image; *lanes* are those of its sources, in order, the same at every call."""
        found = self._board.needs.find(image)
        self._board.needs.register(found, lanes)
        if found.known is Known.UNKNOWN and (listed := self._board.engine.was_listed(image, now)) is not None:
            found.theirs = listed and not found.is_ours
            self._board.learn(found, Known.PRESENT if listed else Known.ABSENT)
        else:
            self._board.settle(found)

    def done(self, image: str) -> None:
        """A rollout that was registered needs the image no more."""
        found = self._board.needs[image]
        if not found.pending:
            raise ValueError(f"nobody who needs image {image} is left")
        found.pending -= 1
        self._board.settle(found)

    def wait_all(self, images: Sequence[str], now: float) -> WaiterId:
        """Somebody is held up by images until all of them are there at once.

        Answered exactly once, unless withdrawn: with the image that is not to be had, or the one that came. As long as
        bytes come, the time that others are fetched before its own does not count.
        """
        waiter = self._board.needs.wait([self._board.needs[image] for image in images], now)
        for image in waiter.images:
            self._board.settle(image)
        self._board.to_answer[waiter] = None
        return waiter.id

    def withdraw(self, waiter: WaiterId) -> None:
        """Somebody who has not been answered waits no longer."""
        if waiter not in self._board.needs.waiters:
            raise ValueError(f"waiter {waiter} does not wait")
        self._board.end_wait(self._board.needs.waiters[waiter])

    def lease(self, image: str) -> None:
        """A rollout uses an image: it is not removed."""
        found = self._board.needs[image]
        found.leases += 1
        found.used = True
        self._board.settle(found)

    def unlease(self, image: str) -> None:
        """A rollout that used an image uses it no more."""
        found = self._board.needs[image]
        if not found.leases:
            raise ValueError(f"image {image} is leased to nobody")
        found.leases -= 1
        self._board.settle(found)

    def missing(self, image: str, now: float) -> None:
        """The use of an image showed that it is not there: it is delivered, whatever a listing says."""
        found = self._board.needs[image]
        found.distrusted = True
        if found.known is not Known.FAILED:
            self._board.learn(found, Known.ABSENT)

    def adopt(self, image: str) -> None:
        """A dead run brought an image: it is ours to remove."""
        found = self._board.needs.find(image)
        self._board.removal.bring(found)
        self._board.settle(found)

    def disown(self) -> None:
        """Another engine has come in the place of the one that was known: what was brought is not in this one."""
        for image in list(self._board.removal.brought):
            self._board.removal.give_up(image)
            self._board.settle(image)

    def is_theirs(self, image: str) -> bool:
        """Whether an image was there before: it is nobody's to note down and to remove, even if it is delivered."""
        return self._board.needs[image].theirs

    def is_ready(self, image: str) -> bool:
        """Whether nobody has to wait for an image now: it is there, or assumed to be."""
        found = self._board.needs.images.get(image)
        return found is not None and found.is_ready

    # --- what is heard; each raises ValueError where nothing of the kind was asked for

    def listed(self, names: Collection[str], now: float) -> None:
        """The engine has these images, by all their names."""
        self._board.listed(names, now)

    def unlisted(self, why: str, now: float) -> None:
        """The engine did not say which images it has."""
        self._board.engine.unlisted(why, now)

    def progressed(self, image: str, transferred: Transferred) -> None:
        """A delivery is so far. What comes too late changes nothing."""
        self._board.progressed(self._board.needs[image], transferred)

    def found(self, image: str) -> None:
        """What was to be delivered is there already, brought by somebody else: the delivery is over."""
        self._board.found(self._board.needs[image])

    def delivery_ended(self, image: str, end: DeliveryEnd, now: float) -> None:
        """A delivery is over."""
        self._board.ended(self._board.needs[image], end, now)

    def removed(self, image: str, end: RemovalEnd, now: float) -> None:
        """A removal is over, one that was decided or one of the :meth:`leftovers`."""
        self._board.removed(self._board.needs[image], end, now)

    def disk(self, room: DiskRoom | None, now: float) -> None:
        """So it stands with the engine's disk; ``None``: that cannot be seen."""
        self._board.disk.seen(room, now)

    # --- what follows

    def decide(self, now: float) -> list[Command]:
        """All that is to be done now, each told once."""
        return list(self._decisions.decide(now))

    def next_wake_at(self, now: float) -> float | None:
        """When :meth:`decide` has something to do if nothing happens; ``None``: never."""
        return self._decisions.next_wake_at(now)

    def told(self) -> list[ImageTrouble | ImageFailed]:
        """What went wrong since this was asked last."""
        told, self._board.told = self._board.told, []
        return told

    def status(self, now: float) -> ImagesStatus:
        """How the images are doing now."""
        return self._view.status(now)

    def leftovers(self) -> list[str]:
        """What is to be removed at the end of the run, when no delivery is under way any more, the oldest first.

        What was being delivered is among it: it may have come.
        """
        if self.settings.keep:
            return []
        cut_short = [image for image in self._board.deliveries if not image.theirs and not image.leases]
        return [image.name for image in dict.fromkeys([*self._board.removal.leftovers(), *cut_short])]
