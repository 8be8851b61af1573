"""The states of an endpoint's health. Decides nothing; ``core/health.py`` moves between them."""

from __future__ import annotations

import enum


class State(enum.Enum):
    """Whether an endpoint may be given work."""

    PROBING = "probing"
    """Listed, has not answered yet. An answered probe makes it live (``probation`` where no model is listed)."""
    LIVE = "live"
    """Takes work; begins with a few requests and opens up."""
    PAUSED = "paused"
    """Said that it is busy, and goes on where it was after its ``Retry-After`` or the back-off; on probation, if it was
    paused before and has served nothing since. Or it keeps failing while, as far as is known, others fail no less, and
    goes on, on probation, a little later. Or this machine could not ask it, which is tried again a little later."""
    EJECTED = "ejected"
    """``eject_after`` attempts in a row were lost, a probe was not answered, or it fails clearly more than others do.
    Probed at once, for the sake of its leases; an answer after the back-off lets it back in on probation."""
    PROBATION = "probation"
    """One request at a time, until one is answered, or has been coming for a while, which makes it live; what fails
    takes it out of work again."""
    MISCONFIGURED = "misconfigured"
    """Serves something else, or refuses our key: till new settings or, where it may pass by itself, as an ejection."""


WORKING = (State.LIVE, State.PROBATION)
"""Those that are given work."""
OPEN = (*WORKING, State.PAUSED)
"""Those in which nothing speaks against giving work, be it a moment later."""

UNANSWERED_WHY = "has not answered a probe yet"
"""Why an endpoint is in its first state."""
