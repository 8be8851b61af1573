"""What a user may set about container images, and the rest of the plan's figures. Decides nothing."""

from __future__ import annotations

import attrs

LEAST_TTL_S = 1.0
"""No listing is older than it was worth asking for within this, whatever is set: else one would follow the other."""
ENGINE_FIRST_S, ENGINE_LONGEST_S = 1.0, 30.0
"""How long to wait between two tries of an engine that does not answer: doubling, with full jitter."""
ASSUME_AFTER_S = 30.0
"""After how much silence of the engine images of which nothing is known count as there: their use will tell."""
LOOK_AHEAD = 16
"""How many images are fetched ahead of their use, at least."""
BROKEN_FIRST_S, BROKEN_LONGEST_S = 2.0, 120.0
"""How long a source that broke is left alone by that image: doubling, with full jitter; the longest between rounds."""
SHUT_FIRST_S, SHUT_LONGEST_S = 15 * 60.0, 2 * 3600.0
"""For how long a lane is left alone that throttles us and does not say until when: doubling each time in a row."""
SHUT_LEAST_S, SHUT_MOST_S = 1.0, 24 * 3600.0
"""The same where it says so itself: no less, and no more."""
BROKEN_IN_A_ROW = 3
"""After so many images in a row that broke on a lane it is tried by one image at a time."""
LOOK_EVERY_S = 5.0
"""How old a look at the disk may be when a delivery begins."""
SHORT_LOOK_EVERY_S = 10.0
"""The same while there is no room."""
FULL_FOR_S = 30.0
"""How long nothing is fetched after the disk was full, unless something is freed."""
SHORT_PATIENCE_S = 60.0
"""How long those who wait bear with images on the disk that are needed later than theirs, while others play."""
FLOOR_MOST_BYTES, FLOOR_SHARE = 10 * 10**9, 0.05
"""How much of the disk stays free where nothing is set: the smaller of the two."""
REMOVE_AGAIN_S = 60.0
"""After how long the removal of an image is tried again that could not be removed."""


@attrs.frozen
class PlanSettings:
    """How much is fetched at once, how patient one is, and what is left of the disk."""

    workers: int = 2
    """How many deliveries are under way at once."""
    list_ttl_s: float = 30.0
    """How old a listing of the engine's images may be when somebody waits."""
    wait_timeout_s: float = 1800.0
    """How long somebody waits for an image, not counting that others come first."""
    keep: bool = False
    """Whether what was brought is never removed."""
    min_free_bytes: int | None = None
    """How much room the engine's disk is to keep; ``None``: the smaller of 10 GB and 5 % of it."""
    attempts: int = 3
    """How often a source that breaks is tried for one image before all are given a longer pause."""
