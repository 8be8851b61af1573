"""Which image is removed when there is no room. Pure.

Only what this run brought and nobody uses is ever removed: first what no rollout needs any more, the oldest first. Only
where nothing else helps, what is needed later than what is to be fetched: it comes again.

Invariant: whatever could be removed without harm is in the heap, or stands back until its removal may be tried again.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection

import attrs

from scavenge.core.images.plan_image import Image, Urgency
from scavenge.core.images.plan_settings import REMOVE_AGAIN_S


@attrs.define(eq=False)
class Removal:
    """The images that were brought."""

    keep: bool
    brought: dict[Image, None] = attrs.field(factory=dict, init=False)
    """All that are ours, the oldest first."""
    under_way: int = attrs.field(default=0, init=False)
    _heap: list[tuple[int, Image]] = attrs.field(factory=list, init=False)
    _in_heap: set[Image] = attrs.field(factory=set, init=False)
    _standing_back: deque[Image] = attrs.field(factory=deque, init=False)
    _count: int = attrs.field(default=0, init=False)

    def bring(self, image: Image) -> None:
        """An image is ours from now on."""
        self._count += 1
        image.brought = self._count
        self.brought.pop(image, None)
        self.brought[image] = None

    def give_up(self, image: Image) -> None:
        """An image is not ours any more, or gone."""
        image.brought = 0
        self.brought.pop(image, None)

    def note(self, image: Image) -> None:
        """See whether an image could be removed now."""
        if image.is_removable and not image.is_needed and image not in self._in_heap:
            heapq.heappush(self._heap, (image.brought, image))
            self._in_heap.add(image)

    def refused(self, image: Image, now: float) -> None:
        """An image could not be removed: it stands back for a while."""
        image.leave_until = now + REMOVE_AGAIN_S
        self._standing_back.append(image)

    def oldest(self, but: Collection[Image], now: float) -> Image | None:
        """The oldest of those that nobody needs, but for some that are leased from now on."""
        while self._standing_back and self._standing_back[0].leave_until <= now:
            self.note(self._standing_back.popleft())
        while self._heap and not self.keep:
            image = heapq.heappop(self._heap)[1]
            self._in_heap.discard(image)
            if image not in but and self._may_go(image, now) and not image.is_needed:
                return image
        return None

    def farthest(self, urgency: Urgency, but: Collection[Image], now: float) -> Image | None:
        """The one that is needed latest of those that are less urgent than that, but for some."""
        if self.keep:
            return None
        later = (image for image in self.brought if image.urgency > urgency and self._may_go(image, now))
        return max((image for image in later if image not in but), key=lambda image: image.urgency, default=None)

    def _may_go(self, image: Image, now: float) -> bool:
        return image.is_removable and image.leave_until <= now

    def leftovers(self) -> list[Image]:
        """What is removed at the end."""
        return [] if self.keep else [image for image in self.brought if image.is_ours and not image.leases]
