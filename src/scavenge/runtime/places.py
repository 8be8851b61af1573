"""Who may have a session under way: a few more than there are slots, so that a slot that comes free finds a request."""

from __future__ import annotations

import attrs

from scavenge.core.ledger import Ask, SlotLedger
from scavenge.runtime.dispatcher import Dispatcher
from scavenge.types import Url

START_AHEAD = 5
"""Sessions that may be under way beyond the slots (Inspect's figure)."""

_PLACES = Url("places")


def place_of(age: int) -> Ask:
    """What a session of that age asks for; the lower, the earlier served."""
    return Ask((age,))


@attrs.define(eq=False)
class Places(Dispatcher):
    """Lends the places of a pool. It is elastic: a session that finds none waits for slots."""

    ledger: SlotLedger = attrs.field(factory=SlotLedger)

    def __attrs_post_init__(self) -> None:
        self.ledger.join(_PLACES, 0, None)

    @property
    def taken(self) -> int:
        """How many sessions are under way."""
        return self.ledger.lent(_PLACES)

    @property
    def free(self) -> int:
        """How many more may start."""
        return self.ledger.free(_PLACES)

    def follow(self, slots: int) -> None:
        """Have as many places as so many slots call for."""
        self.ledger.set_limit(_PLACES, slots + START_AHEAD if slots else 0, None)
        self.settle()
