"""The supervisor of an evaluation's worker processes: what it hears, and what it has done. Pure."""

from scavenge.core.supervision.commands import (
    Abort,
    Command,
    Condemn,
    Displace,
    Give,
    GiveUp,
    Kill,
    Look,
    Refuse,
    Retire,
    Spawn,
    Ticket,
    WorkerId,
)
from scavenge.core.supervision.settings import SupervisorSettings
from scavenge.core.supervision.slots import How
from scavenge.core.supervision.supervisor import Supervisor

__all__ = [
    "Abort",
    "Command",
    "Condemn",
    "Displace",
    "Give",
    "GiveUp",
    "How",
    "Kill",
    "Look",
    "Refuse",
    "Retire",
    "Spawn",
    "Supervisor",
    "SupervisorSettings",
    "Ticket",
    "WorkerId",
]
