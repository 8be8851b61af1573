"""An endpoint's health (placeholder while being written)."""

from __future__ import annotations

import attrs


@attrs.frozen
class HealthSettings:
    """``[health]`` of an evaluation file."""

    probe: bool = True
    path: str = "/models"
    interval: float = 30.0
    eject_after: int = 1
    backoff_max: float = 60.0
