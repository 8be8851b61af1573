"""Which waiting example is played next: the file's order, or the one expected to take longest. Pure; bounds nothing.

Starting long rollouts first keeps the end of a run short: the tail is what a bad order costs. How long an example will
be is learnt while running: the mean of its own earlier rollouts, else the running mean of finished rollouts whose
examples were about as large (sizes in powers of two; for a size without any, the nearest that has some), else, before
anything finished, its size. Ties go to the larger, then in the file's order, so the order is a function of what
happened and of nothing else. An operation costs O(log n) and a look at each power of two that is waiting.

Invariant: a waiting example that has rollouts left has exactly one entry that is not stale: in ``_known`` with its
newest mean once it has one, else in the heap of its size.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from scavenge.rollouts import Example

TEXT_DEPTH = 6


def example_size(data: object, depth: int = TEXT_DEPTH) -> int:
    """The number of characters in the texts of an example, nested ones too."""
    if isinstance(data, str):
        return len(data)
    if depth == 0 or not isinstance(data, Mapping | list | tuple):
        return 0
    return sum(example_size(item, depth - 1) for item in (data.values() if isinstance(data, Mapping) else data))


@attrs.define
class Mean:
    """A running mean."""

    count: int = 0
    value: float = 0.0

    def add(self, number: float) -> None:
        self.count += 1
        self.value += (number - self.value) / self.count


@attrs.define(eq=False)
class Waiting:
    """An example with rollouts that are still to be started. ``row`` counts the examples of the dataset from 1."""

    row: int
    example: Example
    size: int
    owed: Sequence[int]
    """The rollouts to start, in order; those before ``started`` are under way or done."""
    started: int = 0
    seen: Mean = attrs.field(factory=Mean)
    """The lengths of this example's finished rollouts."""

    @property
    def left(self) -> int:
        """How many rollouts are still to be started."""
        return len(self.owed) - self.started


class Order(Protocol):
    """Holds the waiting examples and knows which is next."""

    def add(self, waiting: Waiting) -> None:
        """Take in an example with at least one rollout to start."""
        ...

    def take(self) -> tuple[Waiting, int] | None:
        """The next rollout to start, with its example."""
        ...

    def learn(self, row: int, size: int, length: float) -> None:
        """Hear how long a rollout of the example in *row* was."""
        ...


def _start(waiting: Waiting) -> tuple[Waiting, int]:
    rollout = waiting.owed[waiting.started]
    waiting.started += 1
    return waiting, rollout


@attrs.define(eq=False)
class FileOrder:
    """First come, first served."""

    _queue: deque[Waiting] = attrs.field(factory=deque, init=False)

    def add(self, waiting: Waiting) -> None:
        self._queue.append(waiting)

    def take(self) -> tuple[Waiting, int] | None:
        if not self._queue:
            return None
        taken = _start(self._queue[0])
        if not taken[0].left:
            self._queue.popleft()
        return taken

    def learn(self, row: int, size: int, length: float) -> None:
        """Nothing to learn."""


_Entry = tuple[float, int, int, int, Waiting]
"""Length (negative), size (negative), row, and how many rollouts of the example had been seen."""


@attrs.define(eq=False)
class LongestFirst:
    """The longest expected first."""

    _waiting: dict[int, Waiting] = attrs.field(factory=dict, init=False)
    _sizes: dict[int, list[_Entry]] = attrs.field(factory=dict, init=False)
    """Heaps of examples of which no rollout has finished, by the power of two of their size."""
    _known: list[_Entry] = attrs.field(factory=list, init=False)
    _means: dict[int, Mean] = attrs.field(factory=dict, init=False)

    def add(self, waiting: Waiting) -> None:
        self._waiting[waiting.row] = waiting
        heap = self._sizes.setdefault(waiting.size.bit_length(), [])
        heapq.heappush(heap, (0.0, -waiting.size, waiting.row, 0, waiting))

    def take(self) -> tuple[Waiting, int] | None:
        best = min(self._heads(), default=None)
        if best is None:
            return None
        taken = _start(self._waiting[best[2]])
        if not taken[0].left:
            del self._waiting[best[2]]
        return taken

    def _heads(self) -> list[tuple[float, int, int]]:
        """The first of each heap: (length, size, row), the first two negative."""
        heads = []
        for power, heap in list(self._sizes.items()):
            if head := self._first(heap):
                heads.append((-self._expected(power, -head[1]), head[1], head[2]))
            else:
                del self._sizes[power]
        if head := self._first(self._known):
            heads.append(head[:3])
        return heads

    def _first(self, heap: list[_Entry]) -> _Entry | None:
        while heap and (not heap[0][4].left or heap[0][3] != heap[0][4].seen.count):
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _expected(self, power: int, size: int) -> float:
        if not self._means:
            return size
        nearest = power if power in self._means else min(self._means, key=lambda known: (abs(known - power), -known))
        return self._means[nearest].value

    def learn(self, row: int, size: int, length: float) -> None:
        self._means.setdefault(size.bit_length(), Mean()).add(length)
        waiting = self._waiting.get(row)
        if waiting is None:
            return
        waiting.seen.add(length)
        heapq.heappush(self._known, (-waiting.seen.value, -waiting.size, row, waiting.seen.count, waiting))
        if len(self._known) > 2 * len(self._waiting) + 64:
            self._known = [entry for entry in self._known if entry[4].left and entry[3] == entry[4].seen.count]
            heapq.heapify(self._known)
