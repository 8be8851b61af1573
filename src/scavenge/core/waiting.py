"""Who waits for slots and in which order. Knows nothing of endpoints beyond their keys, and nothing of time.

A *line* holds the waiting tickets that ask for the same number of slots. Lists of keys that stay sorted serve better
than heaps here: every list of those who avoid one endpoint is a part of the whole line in the same order, and so a
binary search finds the first who does not avoid it, however many avoid sets there are (:meth:`Line.first_on`).
Nothing dead is ever in them; entering and leaving cost a bisection and one ``memmove``.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import TypeAlias

import attrs

from scavenge.errors import UsageError
from scavenge.types import Url

Key: TypeAlias = "tuple[tuple[int, ...], int]"
"""The place in the queue: the ask's order, then a serial number that is unique in the ledger."""

NOBODY: frozenset[Url] = frozenset()


def _check_slots(_: object, field: attrs.Attribute[int], value: int) -> None:
    if value < 1:
        raise UsageError(f"{field.name}: expected an integer ≥ 1, got {value!r}")


@attrs.frozen
class Ask:
    """What somebody waits for: ``slots`` at once on one endpoint.

    Asks are served in the order of ``order`` (the age of the session, then the number of the request), equal ones in
    the order they came; a request that is sent again asks with its old ``order`` and so keeps its place. ``avoid``
    binds as long as another open endpoint can hold the slots; ``prefer`` is taken whenever it fits.
    """

    order: tuple[int, ...]
    slots: int = attrs.field(default=1, validator=_check_slots)
    avoid: frozenset[Url] = NOBODY
    prefer: Url | None = None


@attrs.define(eq=False)
class Ticket:
    """A place in the queue. ``bound`` tells whether its avoid set binds at present."""

    ask: Ask
    key: Key
    bound: bool

    @property
    def barred(self) -> frozenset[Url]:
        """The endpoints it may not be given at present."""
        return self.ask.avoid if self.bound else NOBODY


@attrs.define(eq=False)
class Line:
    """The waiting tickets for the same number of slots.

    Invariants: ``keys`` is sorted; ``avoiding[url]`` has the keys of exactly those whose binding avoid set names the
    url, sorted too, and is never empty; ``fresh`` (a heap) has at least the waiting keys that no search has refused
    since they came or became unbound.
    """

    slots: int
    keys: list[Key] = attrs.field(factory=list)
    avoiding: dict[Url, list[Key]] = attrs.field(factory=dict)
    fresh: list[Key] = attrs.field(factory=list)
    longest_avoid: int = 0
    """No avoid set in the line is larger."""
    stuck_at: int = -1
    """The state of the ledger in which nobody in the line can start."""

    def add(self, ticket: Ticket) -> None:
        """Let a ticket in at its place."""
        _put(self.keys, ticket.key)
        self.longest_avoid = max(self.longest_avoid, len(ticket.ask.avoid))
        self._note_avoided(ticket)
        self.freshen(ticket)

    def remove(self, ticket: Ticket) -> None:
        """Let a ticket out, from wherever it stands."""
        _take(self.keys, ticket.key)
        self._forget_avoided(ticket)

    def rebind(self, ticket: Ticket, bound: bool) -> None:
        """Note that a ticket's avoid set binds from now on, or no longer."""
        self._forget_avoided(ticket)
        ticket.bound = bound
        self._note_avoided(ticket)
        if not bound:
            self.freshen(ticket)

    def freshen(self, ticket: Ticket) -> None:
        """Have a ticket looked at everywhere, not only where slots came free."""
        heapq.heappush(self.fresh, ticket.key)
        self.stuck_at = -1

    def first_on(self, url: Url) -> Key | None:
        """The first whom nothing keeps from using an endpoint.

        As long as everybody so far avoids it, the k-th of those who avoid it is the k-th of the whole line; from the
        first who does not, it never is. So the first who does not is found by bisection.
        """
        avoiders = self.avoiding.get(url, ())
        low, high = 0, len(avoiders)
        while low < high:
            middle = (low + high) // 2
            if avoiders[middle] is self.keys[middle]:
                low = middle + 1
            else:
                high = middle
        return self.keys[low] if low < len(self.keys) else None

    def _note_avoided(self, ticket: Ticket) -> None:
        for url in ticket.barred:
            _put(self.avoiding.setdefault(url, []), ticket.key)

    def _forget_avoided(self, ticket: Ticket) -> None:
        for url in ticket.barred:
            avoiders = self.avoiding[url]
            _take(avoiders, ticket.key)
            if not avoiders:
                del self.avoiding[url]


def _put(keys: list[Key], key: Key) -> None:
    if keys and key < keys[-1]:
        insort(keys, key)
    else:
        keys.append(key)


def _take(keys: list[Key], key: Key) -> None:
    del keys[0 if keys[0] is key else bisect_left(keys, key)]


@attrs.define(eq=False)
class Queue:
    """Everybody who waits. Lines are never empty."""

    lines: dict[int, Line] = attrs.field(factory=dict)
    """By number of slots."""
    _tickets: dict[int, Ticket] = attrs.field(factory=dict)
    _asks: int = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, ticket: object) -> bool:
        return isinstance(ticket, Ticket) and self._tickets.get(ticket.key[1]) is ticket

    def add(self, ask: Ask, bound: bool) -> Ticket:
        """Let somebody in; ``bound`` tells whether the ask's avoid set binds."""
        self._asks += 1
        ticket = Ticket(ask, (ask.order, self._asks), bound)
        self._tickets[self._asks] = ticket
        line = self.lines.get(ask.slots)
        if line is None:
            line = self.lines[ask.slots] = Line(ask.slots)
        line.add(ticket)
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """Let somebody out."""
        del self._tickets[ticket.key[1]]
        line = self.lines[ticket.ask.slots]
        line.remove(ticket)
        if not line.keys:
            del self.lines[line.slots]

    def at(self, key: Key) -> Ticket | None:
        """Who waits at a place."""
        return self._tickets.get(key[1])

    def head(self, line: Line) -> Ticket:
        """The first of a line."""
        return self._tickets[line.keys[0][1]]

    def in_order(self, line: Line | None = None) -> list[Ticket]:
        """The tickets of one line, or all, the first first."""
        if line is not None:
            return [self._tickets[key[1]] for key in line.keys]
        return sorted(self._tickets.values(), key=lambda ticket: ticket.key)
