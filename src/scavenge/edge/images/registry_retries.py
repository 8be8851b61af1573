"""When a transfer that was cut is taken up again, and when it is given up."""

from __future__ import annotations

from random import Random

import attrs
import trio

from scavenge.core.backoff import full_jitter_s
from scavenge.edge.images.registry_wire import RegistryFault
from scavenge.images import Broken

RETRIED_MOST = 5
"""How often in a row a transfer is taken up again."""
PROGRESS_BYTES = 8 * 2**20
"""So much since the last cut makes the next one the first in a row."""
PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 8.0

_PASSING = frozenset({404, 408, 416})
"""What a registry says of an upload that it has lost, or has otherwise than we think: that is looked up."""


@attrs.define
class Retries:
    """The cuts of one transfer."""

    random: Random
    pause_first_s: float = PAUSE_FIRST_S
    _in_a_row: int = 0
    _since: int = 0
    """Bytes since the last cut."""

    def brought(self, count: int) -> None:
        """Note that so many bytes went over."""
        self._since += count
        if self._since >= PROGRESS_BYTES:
            self._in_a_row = 0

    async def wait(self, fault: RegistryFault) -> None:
        """Wait as long as is right before the next try. Raises *fault* where there is none."""
        await trio.lowlevel.checkpoint()
        refused = fault.status is not None and 400 <= fault.status < 500 and fault.status not in _PASSING
        if not isinstance(fault.end, Broken) or refused:
            raise fault
        if self._in_a_row == RETRIED_MOST:
            raise RegistryFault(Broken(f"{fault} ({self._in_a_row + 1} times in a row)"), fault.status)
        pause_s = full_jitter_s(self._in_a_row, self.pause_first_s, PAUSE_MAX_S, self.random)
        self._in_a_row += 1
        self._since = 0
        await trio.sleep(pause_s)
