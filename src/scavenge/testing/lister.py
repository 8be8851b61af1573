"""The listing of a simulated fleet: what its source says of the servers, and whether it says anything.

It decides how an outage of the source looks to whoever asks; which servers there are is told by their nodes. It must
not know who asks.

Invariant: at most one fault lasts at a time, the latest.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import assert_never

import attrs
import trio

from scavenge.errors import SourceError
from scavenge.listings import EndpointSpec, Listing
from scavenge.testing import faults
from scavenge.testing.node import Node, rows_of


@attrs.define(eq=False)
class Lister:
    """What the source of a simulated fleet says now."""

    nodes: Collection[Node]
    key: str | None = None
    """The environment variable with the bearer token, as it is listed."""
    _fault: faults.Outage | faults.Empty | faults.Hang | None = attrs.field(default=None, init=False)
    _until: float = attrs.field(default=math.inf, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def apply(self, fault: faults.ListingFault) -> None:
        """Let a fault of the listing happen now, in the place of the one that lasts."""
        match fault:
            case faults.Heal():
                self._fault, self._until = None, math.inf
            case faults.Outage(for_s) | faults.Empty(for_s) | faults.Hang(for_s):
                self._fault = fault
                self._until = math.inf if for_s is None else trio.current_time() + for_s
            case _:
                assert_never(fault)
        self._changed.set()
        self._changed = trio.Event()

    @property
    def fault(self) -> faults.Outage | faults.Empty | faults.Hang | None:
        """The fault that lasts, if any."""
        if self._fault is not None and trio.current_time() >= self._until:
            self._fault = None
        return self._fault

    def rows(self) -> list[EndpointSpec]:
        """What is listed now."""
        return [] if isinstance(self.fault, faults.Empty) else rows_of(self.nodes, self.key)

    async def list_endpoints(self) -> Listing:
        """The endpoints as they are listed now; a source that hangs answers when that is over.

        Raises :class:`scavenge.errors.SourceError` while the source is out of order.
        """
        await trio.lowlevel.checkpoint()
        while isinstance(self.fault, faults.Hang):
            with trio.move_on_at(self._until):
                await self._changed.wait()
        if isinstance(self.fault, faults.Outage):
            raise SourceError("the simulated source is out of order, as its script has it")
        return Listing(self.rows(), where="simulated fleet")
