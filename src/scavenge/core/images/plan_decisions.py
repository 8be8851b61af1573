"""What the plan has done next: whom it answers, when it asks the engine, what it fetches and what it removes. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

from scavenge.core.images.commands import Answer, Command, Deliver, List, LookAtDisk, Ready, Remove
from scavenge.core.images.plan_board import Board
from scavenge.core.images.plan_image import Image, Known
from scavenge.core.images.plan_needs import Figure
from scavenge.core.images.plan_settings import LOOK_AHEAD, SHORT_PATIENCE_S
from scavenge.core.images.plan_view import PlanView


@attrs.frozen(eq=False)
class Decisions:
    """Decides by the board, and notes there what was decided."""

    board: Board
    view: PlanView

    def decide(self, now: float) -> Iterator[Command]:
        """All that is to be done now."""
        self._pass_time(now)
        promised: set[Image] = set()
        """Who is answered leases these before the next decision."""
        for answer, images in self._answers(now):
            if isinstance(answer.what, Ready):
                promised.update(images)
            yield answer
        yield from self._ask_engine(now)
        yield from self._fetch(promised, now)

    def _pass_time(self, now: float) -> None:
        self.board.pass_time(now)
        if self.board.engine.assume_at <= now:
            for image in list(self.board.needs.unknown):
                self.board.learn(image, Known.ASSUMED)

    # --- answers

    def _answers(self, now: float) -> Iterator[tuple[Answer, tuple[Image, ...]]]:
        for waiter in list(self.board.to_answer):
            if (answer := self.view.answer(waiter)) is not None:
                self.board.end_wait(waiter)
                yield answer, waiter.images
        self.board.to_answer.clear()
        while (impatient := self.board.needs.impatient(now)) is not None:
            answer = self.view.timeout(impatient, now)
            self.board.end_wait(impatient)
            yield answer, ()

    # --- the engine

    def _ask_engine(self, now: float) -> Iterator[Command]:
        if self._list_at() <= now:
            self.board.engine.list()
            yield List()

    def _list_at(self) -> float:
        """When a listing is to be asked for, if nothing happens."""
        engine, needs = self.board.engine, self.board.needs
        if engine.listing:
            return math.inf
        if engine.is_silent:
            wanted = needs.figure(Figure.UNSETTLED) or needs.figure(Figure.ASSUMED)
            return engine.try_at if wanted else math.inf
        if needs.unknown:
            return -math.inf
        return engine.list_again_at if needs.figure(Figure.ABSENT_AND_WAITED_FOR) else math.inf

    # --- deliveries

    def _fetch(self, promised: set[Image], now: float) -> Iterator[Command]:
        """Begin deliveries as far as workers and the disk allow, or make room for the next one."""
        disk, deliveries = self.board.disk, self.board.deliveries
        while (found := self._next(now)) is not None:
            if not disk.looking and disk.look_at(len(deliveries), now) <= now:
                disk.look()
                yield LookAtDisk()
            if disk.looking:
                return
            if not disk.has_room(len(deliveries), now):
                yield from self._make_room(*found, promised, now)
                return
            yield self._begin(*found, now)

    def _next(self, now: float) -> tuple[Image, int] | None:
        """The image to fetch next, and its source, if there is one that only the disk may hold up."""
        board = self.board
        if board.engine.is_silent or board.engine.listing or len(board.deliveries) >= board.settings.workers:
            return None
        found = board.queue.best(now)
        if found is None or found[0].waiters:
            return found
        ahead = board.needs.figure(Figure.AHEAD) + len(board.deliveries)
        return found if ahead < max(LOOK_AHEAD, 2 * board.needs.figure(Figure.LEASED)) else None

    def _begin(self, image: Image, source: int, now: float) -> Command:
        self.board.begin(image, source, now)
        return Deliver(image.name, source)

    def _make_room(self, image: Image, source: int, promised: set[Image], now: float) -> Iterator[Command]:
        """Remove one image for another that is to be fetched; or try that one where nothing else can ever help."""
        board = self.board
        if board.removal.under_way:
            return
        stuck = not (board.deliveries or promised or board.needs.figure(Figure.LEASED))
        victim = board.removal.oldest(promised, now)
        if victim is None and image.waiters and (stuck or image.waited_s(now) >= SHORT_PATIENCE_S):
            victim = board.removal.farthest(image.urgency, promised, now)
        if victim is not None:
            board.remove(victim)
            yield Remove(victim.name)
        elif stuck and board.disk.is_above_floor(now):
            yield self._begin(image, source, now)

    # --- time

    def next_wake_at(self, now: float) -> float | None:
        """When there is something to decide if nothing happens; ``None``: never."""
        board = self.board
        at = min(self._list_at(), board.needs.timeout_at, board.cooling.next_at(), self._fetch_at(now))
        if board.needs.unknown:
            at = min(at, board.engine.assume_at)
        return None if at == math.inf else max(now, at)

    def _fetch_at(self, now: float) -> float:
        """When something may be fetched that cannot be now, for its lanes or for the disk."""
        board = self.board
        if len(board.deliveries) >= board.settings.workers:
            return math.inf
        at = board.queue.opens_at(now)
        if self._next(now) is not None and not board.disk.looking:
            at = min(at, board.disk.look_at(len(board.deliveries), now))
            if board.disk.is_full(now):
                at = min(at, board.disk.full_until)
        return at
