"""How long a foreign client's request waits where nothing can serve it: ``stall_timeout``, and then no more.

A run gives its evaluations up by the pool; a gateway serves whoever comes, so each request has a patience of its own.
It is over once the pool has been getting nowhere for that long, and the request has been here for that long. Only waits
are ended, never an exchange with an endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio

from scavenge.core.naming import shown
from scavenge.errors import NoEndpointsError
from scavenge.runtime.pool import Pool

T = TypeVar("T")


@attrs.define(eq=False)
class Patience:
    """The patience of one request that came at ``began_at``. ``timeout_s``: 0 waits for ever."""

    pool: Pool
    timeout_s: float
    began_at: float
    _wait: trio.CancelScope | None = None

    async def wait(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Wait for what *ask* waits for.

        Raises :class:`NoEndpointsError` when it takes too long. Cancelled or given up, it leaves what *ask* leaves.
        """
        self.check(trio.current_time())
        with trio.CancelScope() as self._wait:
            try:
                return await ask()
            finally:
                self._wait = None
        raise self._over()

    def look(self, now: float) -> None:
        """End the wait that is under way, if there is one and it is over."""
        if self._wait is not None and self.is_over(now):
            self._wait.cancel()

    def check(self, now: float) -> None:
        """Raise :class:`NoEndpointsError` when it is over."""
        if self.is_over(now):
            raise self._over()

    def is_over(self, now: float) -> bool:
        """Whether both the pool and the request have waited long enough."""
        return 0 < self.timeout_s <= min(now - self.began_at, self.pool.stalled_s())

    def _over(self) -> NoEndpointsError:
        return NoEndpointsError(
            f"pool {shown(self.pool.endpoint_id)} has had no usable endpoint for {self.pool.stalled_s():.0f} s "
            f"(stall_timeout = {self.timeout_s:g} s): {self.pool.why_waiting()}"
        )
