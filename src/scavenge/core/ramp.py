"""How an endpoint that is new or back opens up: from a few requests to no bound. Pure; knows no slots and no health.

A cold cache, a storm of connections or a server that swallows what it is given cost a few requests this way, not a
whole limit of them. The bound grows by one with each request that is served, which doubles it every round trip (slow
start, RFC 5681, section 3.1), and doubles by time as well, for generations that take minutes (Envoy's slow start
window). What fails puts the next doubling off, so that a server that fails some of what it is given opens up only as
fast as it serves, and no burst of new requests makes it look worse than it is; it also takes one away, unless others
fail as much. An endpoint that has still to
prove itself is ``careful``: it begins with one request, and time alone opens nothing.

Invariants: the bound is at least 1 and shrinks only by what fails; a bound that has ended stays so.
"""

from __future__ import annotations

import attrs

FIRST_ROOM = 4
"""How many requests an endpoint may have in flight when it begins to take work."""
FULL_ROOM = 512
"""A bound above this is none."""
DOUBLES_EVERY_S = 5.0


@attrs.define
class Ramp:
    """The growing bound of one endpoint: ``slots`` in flight until ``doubles_at``, and then twice as many."""

    doubles_at: float
    careful: bool = False
    """Whether it begins with one request, and opens up by serving only."""
    slots: int = attrs.field(default=attrs.Factory(lambda self: 1 if self.careful else FIRST_ROOM, takes_self=True))

    @classmethod
    def begun(cls, now: float, *, careful: bool = False) -> Ramp:
        """A ramp at its foot."""
        return cls(now + DOUBLES_EVERY_S, careful)

    @property
    def ended(self) -> bool:
        """Whether there is no bound any more."""
        return self.slots > FULL_ROOM

    def room(self, now: float) -> int | None:
        """How many requests may be in flight; ``None``: no bound."""
        slots = self.slots << self._doublings(now)
        return None if slots > FULL_ROOM else slots

    def next_wake_at(self) -> float | None:
        """When the bound doubles next; ``None`` where time does not open it."""
        return None if self.ended or self.careful else self.doubles_at

    def wake(self, now: float) -> None:
        """Double as often as is due by *now*."""
        doublings = self._doublings(now)
        self.slots <<= doublings
        self.doubles_at += doublings * DOUBLES_EVERY_S

    def on_served(self) -> None:
        """Grow by a request that was served."""
        self.slots += 1

    def on_failed(self, now: float, *, allowed: bool = False) -> None:
        """Let the next doubling be a whole while away; shrink by a request that failed, unless that is *allowed*."""
        self.wake(now)
        if not (allowed or self.ended):
            self.slots = max(1, self.slots - 1)
        self.resume(now)

    def resume(self, now: float) -> None:
        """Go on after a while in which nothing was given: it does not count as time."""
        self.doubles_at = now + DOUBLES_EVERY_S

    def relax(self, now: float) -> None:
        """Let time open it from now on, if it does not yet."""
        if self.careful:
            self.careful = False
            self.resume(now)

    def _doublings(self, now: float) -> int:
        due_at = self.next_wake_at()
        if due_at is None or now < due_at:
            return 0
        doublings = 1.0 + (now - due_at) // DOUBLES_EVERY_S
        if due_at + doublings * DOUBLES_EVERY_S <= now:  # it was rounded, and would be due again at once
            doublings += 1.0
        return int(min(doublings, FULL_ROOM.bit_length()))
