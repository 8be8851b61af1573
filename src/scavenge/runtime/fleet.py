"""Opens and owns everything that serves the work: pollers, pools, minding tasks. The one place that orders a shutdown.

Services outside, work inside: the body of :func:`open_fleet` does the work; when it is left, for whatever reason, the
services are cancelled, then every client is closed. The body's leases are given back synchronously while it unwinds, so
nothing that serves is missed by then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import attrs
import trio

from scavenge.core.health import HealthSettings
from scavenge.core.roster import Added, Change, Changed, Removed, never_listed, not_listed
from scavenge.errors import ConfigError, single_error
from scavenge.events import Observer, PoolWaiting
from scavenge.runtime.poller import CheckListing, Poller
from scavenge.runtime.pool import Pool
from scavenge.runtime.ports import AdmissionPolicy, EndpointSource, ModelTransport
from scavenge.types import Busy, Endpoint, EndpointId, Lost, LostCause, Outcome, Url


@attrs.frozen
class FleetSettings:
    """What a fleet is made of, beside its sources and its transport."""

    elastic: bool = True
    poll_interval_s: float = 10.0
    health: HealthSettings = attrs.field(factory=HealthSettings)


@attrs.frozen
class FleetPorts:
    """What the edge and the plugins give a fleet."""

    sources: Sequence[tuple[str, EndpointSource]]
    check: CheckListing
    transport: ModelTransport
    make_policy: Callable[[], AdmissionPolicy]
    emit: Observer
    random: Random
    wall_clock: Callable[[], float]


@attrs.define(eq=False)
class Fleet:
    """The pools of a run, by endpoint id."""

    pools: dict[EndpointId, Pool]

    def apply(self, changes: Sequence[Change]) -> None:
        """Carry what changed in the listings into the pools."""
        for change in changes:
            pool = self.pools.get(change.endpoint.endpoint_id)
            if pool is None:
                continue
            match change:
                case Added(endpoint):
                    pool.add(endpoint)
                case Changed(endpoint, keys):
                    pool.change(endpoint, keys)
                case Removed(endpoint):
                    pool.remove(endpoint.url)

    def share(self, teller: Pool, url: Url, outcome: Outcome) -> None:
        """Let the other pools hear what one learnt of a server they share: that it is lost, or busy."""
        if not isinstance(outcome, Busy) and not (isinstance(outcome, Lost) and outcome.cause is LostCause.SERVER):
            return
        for pool in self.pools.values():
            if pool is not teller and (member := pool.members.get(url)) is not None:
                pool.hear(member, outcome)


@asynccontextmanager
async def open_fleet(
    wanted: Sequence[EndpointId], settings: FleetSettings, ports: FleetPorts, fixed: Sequence[Endpoint] = ()
) -> AsyncIterator[Fleet]:
    """Serve the pools in *wanted* while the body runs; *fixed* endpoints are there for good and are not asked for.

    Raises :class:`ConfigError` when what is listed at the start is wrong. Cancelled or left by an error, it stops its
    tasks and closes its clients before the error goes on.
    """
    with single_error():
        async with trio.open_nursery() as services:
            fleet = Fleet({})
            for endpoint_id in wanted:
                elastic = settings.elastic and endpoint_id not in {endpoint.endpoint_id for endpoint in fixed}
                fleet.pools[endpoint_id] = _make_pool(endpoint_id, elastic, settings, ports, services, fleet)
            poller = Poller(
                ports.sources, ports.check, fleet.apply, ports.emit, settings.poll_interval_s, settings.elastic
            )
            try:
                fleet.apply([Added(endpoint) for endpoint in fixed])
                await poller.ask_first()
                _look_for_unlisted(fleet, tuple(poller.roster), settings, ports)
                if settings.elastic:
                    for index in range(len(ports.sources)):
                        services.start_soon(poller.run_source, index, name=f"poll {ports.sources[index][0]}")
                yield fleet
            finally:
                services.cancel_scope.cancel()
                for pool in fleet.pools.values():
                    pool.close()


def _make_pool(
    endpoint_id: EndpointId,
    elastic: bool,
    settings: FleetSettings,
    ports: FleetPorts,
    services: trio.Nursery,
    fleet: Fleet,
) -> Pool:
    return Pool(
        endpoint_id=endpoint_id,
        elastic=elastic,
        transport=ports.transport,
        make_policy=ports.make_policy,
        health_settings=settings.health,
        random=ports.random,
        emit=ports.emit,
        wall_clock=ports.wall_clock,
        minders_nursery=services,
        share=fleet.share,
    )


def _look_for_unlisted(fleet: Fleet, listed: Sequence[Endpoint], settings: FleetSettings, ports: FleetPorts) -> None:
    """Tell of the pools that nothing is listed for; refuse to start when nothing ever will be."""
    unlisted = {
        pool.endpoint_id: not_listed(pool.endpoint_id, listed) for pool in fleet.pools.values() if not pool.members
    }
    if unlisted and not settings.elastic:
        raise ConfigError(never_listed(endpoint_id, why) for endpoint_id, why in unlisted.items())
    for endpoint_id, why in unlisted.items():
        ports.emit(PoolWaiting(endpoint_id, ports.wall_clock(), why))
