"""Where rollouts wait for their images before they take anything: those behind them go on meanwhile.

Invariant: a rollout that was parked comes out of :meth:`ImageLine.take` exactly once, with a hold on its images or the
reason why there is none; when the line is closed, every hold that nobody took is given back.
"""

from __future__ import annotations

from collections import deque

import attrs
import trio

from scavenge.core.plan import RolloutTask
from scavenge.errors import ImageUnavailable
from scavenge.runtime.imagepool import ImageHold, ImagePool, ImageWait

PARKED_MOST = 256
"""Rollouts of one evaluation that wait for images side by side."""


@attrs.frozen(eq=False)
class Supplied:
    """A rollout, and its images or what became of them."""

    task: RolloutTask
    images: ImageHold | ImageUnavailable


@attrs.define(eq=False)
class ImageLine:
    """The rollouts of one evaluation that wait for images. Its waits are tasks of a nursery of the evaluation's."""

    pool: ImagePool
    _waiting: int = attrs.field(default=0, init=False)
    _supplied: deque[Supplied] = attrs.field(factory=deque, init=False)
    _moved: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits, and nobody is to be taken out."""
        return not self._waiting and not self._supplied

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no more should be parked."""
        return self._waiting >= PARKED_MOST

    def park(self, task: RolloutTask, nursery: trio.Nursery) -> None:
        """Let a rollout wait for its images, in a task of *nursery*. Never waits."""
        self._waiting += 1
        wait = self.pool.ask(task.example.images)  # here, so that who is parked first is served first
        nursery.start_soon(self._wait, task, wait, name=f"images of {task.key.example_id}")

    def take(self) -> Supplied | None:
        """The next rollout whose wait is over, if there is one now."""
        return self._supplied.popleft() if self._supplied else None

    async def wait_moved(self) -> None:
        """Wait until a wait is over."""
        await trio.lowlevel.checkpoint()
        while not self._supplied:
            await self._moved.park()

    def close(self) -> None:
        """Give back the images that nobody took."""
        for supplied in self._supplied:
            if isinstance(supplied.images, ImageHold):
                supplied.images.release()
        self._supplied.clear()

    async def _wait(self, task: RolloutTask, wait: ImageWait) -> None:
        images: ImageHold | ImageUnavailable
        try:
            images = await self.pool.wait_held(wait)
        except ImageUnavailable as exc:
            images = exc
        finally:
            self._waiting -= 1
        self._supplied.append(Supplied(task, images))
        self._moved.unpark_all()
