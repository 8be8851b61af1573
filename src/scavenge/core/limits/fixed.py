"""The admission policy that never moves by itself: one number of requests in flight per endpoint.

It needs no clock, and hears of nothing but the endpoint's own cap.
"""

from __future__ import annotations

import attrs

from scavenge.signals import GateView
from scavenge.types import CapChanged

UNCAPPED_LIMIT = 64
"""Where neither the settings nor the endpoint say how many: fills a batching server and does not bury a small one."""


def _positive(settings: object, field: attrs.Attribute[int | None], value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"limit: expected an integer ≥ 1, got {value!r}")


@attrs.frozen
class FixedSettings:
    """``[admission]`` with ``policy = "fixed"``. ``limit`` is in requests per endpoint.

    ``None``: the endpoint's ``max_concurrent``, or :data:`UNCAPPED_LIMIT` for one that has none.
    """

    limit: int | None = attrs.field(default=None, validator=_positive)


class Fixed:
    """A limit that stays where the settings put it, or at the endpoint's own ``max_concurrent`` where that is lower."""

    def __init__(self, settings: FixedSettings) -> None:
        self._set_limit = settings.limit
        self._cap: int | None = None

    def observe(self, event: object, now: float) -> None:
        """Hear of something that happened on the endpoint."""
        if isinstance(event, CapChanged):
            self._cap = event.max_concurrent

    def limit(self, now: float) -> int:
        """The number of requests that may be in flight."""
        limit = self._set_limit or self._cap or UNCAPPED_LIMIT
        return limit if self._cap is None else min(limit, self._cap)

    def next_wake_at(self, now: float) -> None:
        """Never: the limit does not change by itself."""

    def view(self, now: float) -> GateView:
        """The limit, and where it comes from."""
        limit = self.limit(now)
        return GateView(limit, "cap" if limit == self._cap else "fixed")
