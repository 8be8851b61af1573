"""What a program's pools tell beside their answers: events to observers, log lines, waits and stalls.

Log lines go to the logger ``scavenge``, which is the program's to configure: here is neither a handler nor a level.
Their secrets are taken out; events are told whole.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from scavenge.core.redaction import Redactor
from scavenge.core.stalled_text import stalled_line
from scavenge.edge.logs import LogEvents
from scavenge.errors import single_error
from scavenge.events import (
    EndpointChanged,
    EndpointDraining,
    EndpointJoined,
    EndpointLeft,
    Event,
    HealthChanged,
    LeasesRevoked,
    NetworkBack,
    NetworkLost,
    Observer,
    PoolWaiting,
    SourceChanged,
    Stalled,
    Warned,
)
from scavenge.runtime.fleet import Fleet
from scavenge.runtime.pool import Pool
from scavenge.runtime.waits import LOOK_EVERY_S, WaitTeller
from scavenge.runtime.watchdog import Watchdog, open_watchdog
from scavenge.types import EndpointId

_LOGGED = (
    EndpointChanged,
    EndpointDraining,
    EndpointJoined,
    EndpointLeft,
    HealthChanged,
    LeasesRevoked,
    NetworkBack,
    NetworkLost,
    PoolWaiting,
    SourceChanged,
    Warned,
)

_log = logging.getLogger("scavenge")


@attrs.define(eq=False)
class PoolLog:
    """An observer that writes the log lines of a pool, as those of a run; single attempts are not told."""

    redact: Redactor = attrs.field(repr=False)
    _lines: LogEvents = attrs.field(factory=LogEvents)

    def __call__(self, event: Event) -> None:
        """Write the line of an event that is worth one."""
        if isinstance(event, Stalled):
            line = self.redact(stalled_line(event.quiet_s, event.picture))
            _log.warning("%s; the full picture is in the event Stalled, for observers", line)
        elif isinstance(event, _LOGGED):
            self._lines(_redacted(event, self.redact))


def _redacted(event: Any, redact: Redactor) -> Event:
    """The same event with its texts fit to be shown."""
    values = {field.name: getattr(event, field.name) for field in attrs.fields(type(event))}
    texts = {name: redact(value) for name, value in values.items() if isinstance(value, str)}
    changed: Event = attrs.evolve(event, **texts)
    return changed


@attrs.define(eq=False)
class Telling:
    """Tells each of the observers, who may become more."""

    observers: list[Observer]

    def emit(self, event: Event) -> None:
        """Tell every observer, in their order."""
        for observer in self.observers:
            observer(event)


@asynccontextmanager
async def open_fleet_watch(fleet: Fleet, telling: Telling, wall_clock: Callable[[], float]) -> AsyncIterator[Watchdog]:
    """Watch the pools of a fleet while the block runs: tell of their waits, and of work that nothing comes of.

    A run always owes something; a pool only while somebody wants something of it. Leaving ends the watch and does not
    wait.
    """
    with single_error():
        async with open_watchdog(fleet, telling.emit) as watchdog, trio.open_nursery() as watching:
            telling.observers.append(watchdog)
            watching.start_soon(_Looks(fleet, telling.emit, wall_clock, watchdog).run_looks, name="waits")
            try:
                yield watchdog
            finally:
                watching.cancel_scope.cancel()


@attrs.define(eq=False)
class _Looks:
    """Looks at every pool that there is by then."""

    fleet: Fleet
    emit: Observer
    wall_clock: Callable[[], float]
    watchdog: Watchdog
    _tellers: dict[EndpointId, WaitTeller] = attrs.field(factory=dict, init=False)

    async def run_looks(self) -> None:
        """Look until cancelled."""
        while True:
            for pool in self.fleet.pools.values():
                if pool.endpoint_id not in self._tellers:
                    self._tellers[pool.endpoint_id] = WaitTeller(pool, self.emit, self.wall_clock)
            await trio.sleep(LOOK_EVERY_S)
            for teller in self._tellers.values():
                if _matters(teller.pool):
                    teller.look()
            if not any(map(is_wanted, self.fleet.pools.values())):
                self.watchdog.clock.on_sign(trio.current_time())


def _matters(pool: Pool) -> bool:
    """Whether it is worth telling how a pool is: that nothing has helped so far matters to those who ask, if any do."""
    return is_wanted(pool) or not (pool.slots and pool.stalled_s())


def is_wanted(pool: Pool) -> bool:
    """Whether somebody holds slots of a pool, or waits for them, for a session's place or for its turn."""
    sessions = pool.sessions
    return bool(pool.dispatcher.held() or pool.dispatcher.ledger.waiting or sessions.waiting or sessions.paused)
