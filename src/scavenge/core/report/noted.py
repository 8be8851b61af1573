"""The moments of a run that are told one by one, and when its parts were. Pure.

Invariant: of the moments the first :data:`KEPT` and the last are kept, and the others counted; of the parts of a run
that was resumed again and again, :data:`MOST_PARTS` are told apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import attrs

from scavenge.core.report.sums import Bins

KEPT = 100
MOST_PARTS = 500
FAR_S = 30 * 86_400.0
"""Times that are further from all others are taken for those of a wrong clock."""


@attrs.frozen
class Noted:
    """Something that happened: when, what, and in which words."""

    time: float
    what: str
    text: str


@attrs.define(eq=False)
class Moments:
    """What is told one by one."""

    kept: int = KEPT
    first: list[Noted] = attrs.field(factory=list, init=False)
    others: int = attrs.field(default=0, init=False)
    """How many there were between the first and the last ones."""
    last: deque[Noted] = attrs.field(factory=deque, init=False)

    def add(self, noted: Noted) -> None:
        """Take in the next one."""
        if len(self.first) < self.kept:
            self.first.append(noted)
            return
        if len(self.last) == self.kept:
            self.last.popleft()
            self.others += 1
        self.last.append(noted)


@attrs.define(eq=False)
class Times:
    """When there were events at all, and the parts of the run: each from its ``RunStarted`` to the last event of it."""

    begins: list[float] = attrs.field(factory=list, init=False)
    ends: list[float] = attrs.field(factory=list, init=False)
    events: Bins = attrs.field(factory=lambda: Bins(1, 1_000), init=False)

    def met(self, time: float) -> None:
        """An event happened."""
        self.events.add(time, 0)
        if not self.begins:
            self.begins.append(time)
            self.ends.append(time)
        self.ends[-1] = max(self.ends[-1], time)

    def began(self, time: float) -> None:
        """A later part begins; its first event is yet to be met."""
        if self.begins and len(self.begins) < MOST_PARTS:
            self.begins.append(time)
            self.ends.append(time)

    def gaps(self) -> Iterator[tuple[float, float]]:
        """From when to when there was no run."""
        for end, begin in zip(self.ends, self.begins[1:], strict=False):
            if begin > end:
                yield end, begin

    def view(self) -> tuple[float, float, int]:
        """From when to when nearly all happened, and how many events are far away from there."""
        groups: list[tuple[float, float, float]] = []
        for begin, (amount,) in self.events.grid.in_order():
            end = begin + self.events.grid.width_s
            if groups and begin - groups[-1][1] <= FAR_S:
                groups[-1] = (groups[-1][0], end, groups[-1][2] + amount)
            else:
                groups.append((begin, end, amount))
        if not groups:
            return 0.0, 1.0, 0
        begin, end, amount = max(groups, key=lambda group: group[2])
        return begin, end, int(sum(group[2] for group in groups) - amount)
