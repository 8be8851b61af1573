"""The rollouts that wait for a worker, in the order of their age; suspects apart, since they are played alone. Pure.

Invariants: a parked ticket has one entry in the heap of its kind, except while it is set aside (a worker is being
emptied for it); whatever else is in a heap is stale, and no more than about half of it. Operations cost O(log n).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict

import attrs

from scavenge.core.supervision.commands import Ticket
from scavenge.core.supervision.settings import SUSPECT_DEATHS

_Entry = tuple[int, int, Ticket]
"""Its age, and which one to be parked it is. No two entries have the same number, so tickets are never compared."""
STALE_AT_LEAST = 64


def is_suspect(ticket: Ticket) -> bool:
    """Whether a rollout may be what kills workers."""
    return ticket.deaths >= SUSPECT_DEATHS


@attrs.frozen
class _Parked:
    number: int
    since_s: float


@attrs.define(eq=False)
class Parking:
    """All parked tickets. Instants are those of the caller's clock."""

    suspects: int = 0
    _parked: OrderedDict[Ticket, _Parked] = attrs.field(factory=OrderedDict, init=False)
    """In the order in which they were parked."""
    _plain: list[_Entry] = attrs.field(factory=list, init=False)
    _suspect: list[_Entry] = attrs.field(factory=list, init=False)
    _numbers: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._parked)

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._parked

    def add(self, ticket: Ticket, now_s: float) -> None:
        """Park a ticket that is not parked."""
        self._numbers += 1
        self._parked[ticket] = _Parked(self._numbers, now_s)
        self.suspects += is_suspect(ticket)
        self.put_back(ticket)

    def put_back(self, ticket: Ticket) -> None:
        """Have a ticket that was set aside in its place again."""
        heapq.heappush(self._heap(ticket), (ticket.age, self._parked[ticket].number, ticket))

    def set_aside(self) -> Ticket:
        """Take the suspect that is first in its line out of it; it stays parked."""
        return heapq.heappop(self._suspect)[2]

    def remove(self, ticket: Ticket) -> None:
        """A parked ticket waits no longer."""
        del self._parked[ticket]
        self.suspects -= is_suspect(ticket)
        heap = self._heap(ticket)
        if len(heap) > 2 * len(self._parked) + STALE_AT_LEAST:
            heap[:] = [entry for entry in heap if self._is_parked(entry)]
            heapq.heapify(heap)

    def _heap(self, ticket: Ticket) -> list[_Entry]:
        return self._suspect if is_suspect(ticket) else self._plain

    def _is_parked(self, entry: _Entry) -> bool:
        parked = self._parked.get(entry[2])
        return parked is not None and parked.number == entry[1]

    def first(self) -> Ticket | None:
        """The oldest that is no suspect."""
        return self._first(self._plain)

    def suspect_is_first(self) -> bool:
        """Whether the oldest of all that wait in line is a suspect."""
        plain, suspect = self.first(), self._first(self._suspect)
        return suspect is not None and (plain is None or self._suspect[0] < self._plain[0])

    def _first(self, heap: list[_Entry]) -> Ticket | None:
        while heap and not self._is_parked(heap[0]):
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def longest(self) -> tuple[Ticket, float] | None:
        """The ticket that has been parked longest, and since when."""
        for ticket, parked in self._parked.items():
            return ticket, parked.since_s
        return None
