"""What a user may set about worker processes, and the rest of the figures. Decides nothing."""

from __future__ import annotations

import attrs

GROW_ABOVE = (9, 10)
"""The share of the places that may be taken before another worker is wanted, as a fraction: the rest is there at once
for what is asked while the next worker loads."""
BUDGET = 6
"""After how many failures in a row a slot is exhausted: 16 s of trouble pass before that (1/4 + 1/2 + … + 8 s)."""
FIRST_BACKOFF_S = 0.25
SUSPECT_DEATHS = 2
"""A rollout that was in so many dying workers is played alone: either it kills them, or it is cleared."""
HUNG_AFTER_S = 30.0
LOOKS = 6
"""How often a worker that says nothing is looked at before it counts as hung."""
BUSY_SHARE = 0.05
"""Processor time beyond this share of the time that passes is work. Threads that wait for an interpreter which hangs
use some, too: each asks for it 200 times a second, and three of them took 1 % together (CPython 3.11)."""
STEP_S = 1.0
"""How much time of silence a stall of our own loop counts for at most."""
ABORT_GRACE_S = 5.0
"""How long a worker has to answer for a cancelled rollout before it is killed."""
STOP_GRACE_S = 5.0
"""How long a worker has to end that was told to, or said that it would."""
IDLE_AFTER_S = 30.0
"""How long a worker beyond the wanted ones stays without work."""


@attrs.frozen
class SupervisorSettings:
    """How many workers there may be, what each may hold, and how patient one is with them."""

    min: int
    max: int
    multiplex: int
    """How many rollouts a worker plays at once."""
    startup_timeout_s: float
    restart_backoff_max_s: float
    request_deadline_s: float
    """How long a rollout waits while no worker is ready."""
