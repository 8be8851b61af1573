"""One image as the plan knows it: who needs it, what is known of it, and whose it is. Decides nothing.

What is known and what is being done are apart: an image that is being removed is still known to be there, and one that
is being delivered is still absent. It is ready while it is there, or assumed to be, and is not being removed.
"""

from __future__ import annotations

import enum
import itertools
from collections import OrderedDict
from typing import TypeAlias

import attrs

from scavenge.core.images.commands import WaiterId
from scavenge.core.images.plan_trial import Trial

Urgency: TypeAlias = "tuple[int, int]"
"""The lower, the earlier: what is waited for by its earliest waiter, then the rest in the order of registration."""


class Known(enum.Enum):
    """What is known of an image."""

    UNKNOWN = "unknown"
    ABSENT = "absent"
    PRESENT = "present"
    ASSUMED = "assumed"
    FAILED = "failed"


class Busy(enum.Enum):
    """What is being done with an image."""

    NO = "no"
    DELIVERING = "delivering"
    REMOVING = "removing"


READY = frozenset({Known.PRESENT, Known.ASSUMED})


@attrs.define(eq=False)
class Waiter:
    """Somebody who waits for images, all of them."""

    id: WaiterId
    images: tuple[Image, ...]
    since: float


@attrs.define(eq=False)
class Image:
    """An image that somebody registered, or that a dead run left."""

    name: str
    number: int
    """Its own, for good."""
    trial: Trial
    order: int = 0
    """Its place among those that are registered."""
    pending: int = 0
    """Rollouts that need it and are not over."""
    leases: int = 0
    waiters: OrderedDict[WaiterId, Waiter] = attrs.field(factory=OrderedDict)
    """The earliest first."""
    known: Known = Known.UNKNOWN
    busy: Busy = Busy.NO
    distrusted: bool = False
    """Its use showed that it is not there: no listing makes it present, only a delivery."""
    learnt: int = 0
    """How many listings had been asked for when its state changed by other means."""
    brought: int = 0
    """Which image to be brought it is, counted from 1; 0: it was not brought."""
    theirs: bool = False
    """It was there before: it is not ours to remove, even if it is delivered because its use did not find it."""
    used: bool = False
    """Whether it was leased since it was brought."""
    tried_at: float | None = None
    """When its delivery was begun first since it was there last."""
    source: str = ""
    """The lane that delivered it."""
    leave_until: float = 0.0
    """Its removal is not tried before."""

    @property
    def is_ready(self) -> bool:
        """Whether nobody has to wait for it now."""
        return self.known in READY and self.busy is not Busy.REMOVING

    @property
    def is_needed(self) -> bool:
        """Whether a rollout will need it, or somebody waits for it."""
        return bool(self.pending or self.waiters)

    @property
    def is_ours(self) -> bool:
        """Whether it may be removed at all."""
        return self.brought > 0

    @property
    def is_removable(self) -> bool:
        """Whether it can be removed now: it is ours, it is there, and nobody uses it."""
        return self.is_ours and self.known is Known.PRESENT and self.busy is Busy.NO and not self.leases

    @property
    def is_fetchable(self) -> bool:
        """Whether it is to be delivered as soon as a worker, a source and the disk allow it."""
        if self.known is not Known.ABSENT or self.busy is not Busy.NO or not self.is_needed:
            return False
        return not self.trial.is_cooling

    @property
    def urgency(self) -> Urgency:
        """How early it is served."""
        for waiter in self.waiters:
            return (0, waiter)
        return (1, self.order)

    def waited_s(self, now: float) -> float:
        """For how long it has been waited for."""
        return max((now - waiter.since for waiter in itertools.islice(self.waiters.values(), 1)), default=0.0)
