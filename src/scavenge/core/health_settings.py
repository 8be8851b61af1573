"""What a user may set about the health of endpoints, and the defaults. Decides nothing."""

from __future__ import annotations

import attrs

UNDECIDED_S = 2.0
"""When a silent endpoint is probed again while nobody knows yet whose fault the silence is."""
SHORTEST_PAUSE_S = 0.25
"""A server that says it is busy and to come back at once is left alone so long: it would say the same again."""


@attrs.frozen
class HealthSettings:
    """``[health]`` of an evaluation file. Times are in seconds."""

    probe: bool = True
    path: str = attrs.field(default="/models", validator=attrs.validators.matches_re("/.*"))
    interval: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    eject_after: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    backoff_max: float = attrs.field(default=60.0, validator=attrs.validators.gt(0))
