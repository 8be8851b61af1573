"""The admission policy that never moves: one number of requests in flight per endpoint.

It knows nothing of what happens on the endpoint, and needs no clock.
"""

from __future__ import annotations

import attrs


def _positive(settings: object, field: attrs.Attribute[int], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"expected an integer ≥ 1, got {value!r}")


@attrs.frozen
class FixedSettings:
    """``[admission]`` with ``policy = "fixed"``. ``limit`` is in requests per endpoint."""

    limit: int = attrs.field(default=64, validator=_positive)


class Fixed:
    """A limit that stays where the settings put it; an endpoint's own ``max_concurrent`` may still be below it."""

    def __init__(self, settings: FixedSettings) -> None:
        self._limit = settings.limit

    def observe(self, event: object, now: float) -> None:
        """Hear of something that happened on the endpoint; nothing follows from it."""

    def limit(self, now: float) -> int:
        """The number of requests that may be in flight."""
        return self._limit

    def next_wake_at(self, now: float) -> None:
        """Never: the limit does not change by itself."""
