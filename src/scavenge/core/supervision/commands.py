"""What the supervisor of worker processes is asked with, and what it asks to be done. Values only."""

from __future__ import annotations

from typing import NewType, TypeAlias

import attrs

WorkerId = NewType("WorkerId", int)
"""Numbers every start of a worker in a pool; never used again."""


@attrs.define(eq=False)
class Ticket:
    """One rollout from its first ask to its end; after a displacement it is asked again with the same ticket."""

    age: int
    """The lower, the earlier it is served."""
    name: str
    """What messages call the rollout."""
    deaths: int = 0
    """How many workers died, or hung, while it was in them unanswered."""


@attrs.frozen
class Spawn:
    """Start a worker process in a slot."""

    worker: WorkerId
    slot: int


@attrs.frozen
class Give:
    """Have a ready worker play a rollout."""

    ticket: Ticket
    worker: WorkerId


@attrs.frozen
class Abort:
    """Have a worker cancel a rollout."""

    ticket: Ticket
    worker: WorkerId


@attrs.frozen
class Look:
    """See how much processor time a silent worker has used, and tell it by ``on_cpu``."""

    worker: WorkerId


@attrs.frozen
class Kill:
    """Kill a worker's process."""

    worker: WorkerId
    why: str


@attrs.frozen
class Retire:
    """Tell a worker that has no work to stop."""

    worker: WorkerId


@attrs.frozen
class Displace:
    """A rollout's worker is gone: ask again with the same ticket, and play it from its beginning."""

    ticket: Ticket
    why: str


@attrs.frozen
class Refuse:
    """A rollout has waited too long for a ready worker; this is its end."""

    ticket: Ticket
    why: str


@attrs.frozen
class Condemn:
    """A rollout's worker died each time, at last with nothing else in it; this is its end."""

    ticket: Ticket
    why: str


@attrs.frozen
class GiveUp:
    """The environment cannot be loaded in any worker; the run ends."""

    why: str


Command: TypeAlias = "Spawn | Give | Abort | Look | Kill | Retire | Displace | Refuse | Condemn | GiveUp"
