"""The source: opens the SDK's client in a thread, asks it in a thread, and bounds how long that takes."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio

from scavenge.plugin import Listing, SourceError
from scavenge_ec2.config import Ec2Config
from scavenge_ec2.departures import Departures
from scavenge_ec2.rows import rows_of

if TYPE_CHECKING:
    from scavenge_ec2.api import Ec2Api

ANSWER_WITHIN_S = 50.0
"""How long a listing may take; scavenge waits for 60 seconds, and does not know for what."""

ASKED_EVERY_S = 2.0
"""The least time from one listing to the next: each counts against what the whole account may ask of EC2."""


@attrs.define(eq=False)
class Ec2Source:
    """Lists the instances of one region that pass the filters.

    Invariant: at most one thread is in the SDK. A call that is given up is left behind in it, and the next one waits
    until it is over, which the SDK's own time limits see to.
    """

    config: Ec2Config
    _api: Ec2Api
    _limiter: trio.CapacityLimiter
    _departures: Departures = attrs.field(init=False)
    _next_at: float = attrs.field(default=-math.inf, init=False)

    def __attrs_post_init__(self) -> None:
        self._departures = Departures(self.config.drain_tag)

    async def list_endpoints(self) -> Listing:
        """The servers that there are now, not sooner than :data:`ASKED_EVERY_S` after the last call began.

        Raises :class:`SourceError` when EC2 does not say, or not all. Cancelled, it leaves at most one call behind.
        """
        await trio.sleep_until(self._next_at)
        self._next_at = trio.current_time() + ASKED_EVERY_S
        with trio.move_on_after(ANSWER_WITHIN_S):
            answer = await trio.to_thread.run_sync(self._api.describe, limiter=self._limiter, abandon_on_cancel=True)
            return Listing(rows_of(answer, self.config, self._departures), where=str(self._api.place))
        raise SourceError(f"{self._api.place}: no answer within {ANSWER_WITHIN_S:g} s; it is asked again")


@asynccontextmanager
async def open_ec2(config: Ec2Config) -> AsyncIterator[Ec2Source]:
    """Find the region and the credentials, and yield the source.

    Raises :class:`SourceError` where the SDK's files or `region` are wrong. Leaving closes the connections.
    """
    limiter = trio.CapacityLimiter(1)
    api = await trio.to_thread.run_sync(_connect, config, limiter=limiter, abandon_on_cancel=True)
    try:
        yield Ec2Source(config, api, limiter)
    finally:
        api.close()


def _connect(config: Ec2Config) -> Ec2Api:
    from scavenge_ec2.api import connect  # the SDK takes a third of a second, which only who uses it is to wait for

    return connect(config)
