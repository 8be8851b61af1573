"""Opens and owns everything that serves the work: pollers, pools, minding tasks. The one place that orders a shutdown.

Services outside, work inside: the body of :func:`open_fleet` does the work; when it is left, for whatever reason, the
services are cancelled, then every client is closed. The body's leases are given back synchronously while it unwinds, so
nothing that serves is missed by then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import attrs
import trio

from scavenge.core.health_settings import HealthSettings
from scavenge.core.roster import Added, Change, Changed, Removed, never_listed, not_listed
from scavenge.core.sessions.table import DEFAULT_SESSIONS, MakeSessions
from scavenge.errors import ConfigError, single_error
from scavenge.events import Observer, PoolWaiting
from scavenge.runtime.accounts import Accounts, Demand
from scavenge.runtime.member import Member
from scavenge.runtime.network import NetworkJudge
from scavenge.runtime.poller import CheckListing, Poller
from scavenge.runtime.pool import Pool
from scavenge.runtime.ports import AdmissionPolicy, ModelTransport
from scavenge.runtime.session_gate import run_session_gate
from scavenge.runtime.sources import NamedSource
from scavenge.status import FleetStatus
from scavenge.types import Busy, Endpoint, EndpointId, Failed, Lost, LostCause, Outcome, Url

THE_SERVERS = frozenset({LostCause.SERVER, LostCause.SILENT, LostCause.NETWORK})
"""Losses that say something of the server, once they are not this machine's doing."""


@attrs.frozen
class FleetSettings:
    """What a fleet is made of, beside its sources and its transport."""

    elastic: bool = True
    poll_interval_s: float = 10.0
    health: HealthSettings = attrs.field(factory=HealthSettings)
    whatever_is_listed: bool = False
    """Whether there is a pool for every id that is listed, and not only for those that are wanted."""


@attrs.frozen
class FleetPorts:
    """What the edge and the plugins give a fleet."""

    sources: Sequence[NamedSource]
    check: CheckListing
    transport: ModelTransport
    make_policy: Callable[[], AdmissionPolicy]
    emit: Observer
    random: Random
    wall_clock: Callable[[], float]
    make_sessions: MakeSessions = DEFAULT_SESSIONS


@attrs.define(eq=False)
class Fleet:
    """The pools of a run, by endpoint id, and what they share."""

    emit: Observer = attrs.field(repr=False)
    random: Random = attrs.field(repr=False)
    pools: dict[EndpointId, Pool] = attrs.field(factory=dict)
    fixed: frozenset[EndpointId] = frozenset()
    """Pools whose endpoints are there for good; what a source lists under such an id is not theirs."""
    make_pool: Callable[[EndpointId], Pool] | None = None
    """Makes a pool for an id that is listed; ``None``: the pools are those that are wanted."""
    poller: Poller | None = None
    """Who asks the sources; ``None`` before anybody does."""
    network: NetworkJudge = attrs.field(init=False)
    accounts: Accounts = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.accounts = Accounts(self._refresh, self._demand)
        self.network = NetworkJudge(self.members, self._refresh, self.emit, self.random)

    def listed(self) -> Iterator[Endpoint]:
        """Every endpoint that the sources list."""
        return iter(() if self.poller is None else self.poller.roster)

    def members(self) -> list[Member]:
        """The endpoints of all pools, those included that were removed and still have leases."""
        return [one for pool in self.pools.values() for one in (*pool.members.values(), *pool.departing.values())]

    def _refresh(self, member: Member) -> None:
        self.pools[member.endpoint.endpoint_id].refresh(member)

    def _demand(self, member: Member) -> Demand:
        ledger = self.pools[member.endpoint.endpoint_id].dispatcher.ledger
        return Demand(ledger.lent(member.url), ledger.waiting)

    def apply(self, changes: Sequence[Change]) -> None:
        """Carry what changed in the listings into the pools; which endpoints there are is told once."""
        changed = dict[EndpointId, Pool]()
        for change in changes:
            pool = self._pool_of(change.endpoint.endpoint_id)
            if pool is None or pool.endpoint_id in self.fixed:
                continue
            changed[pool.endpoint_id] = pool
            match change:
                case Added(endpoint):
                    pool.add(endpoint)
                case Changed(endpoint, keys):
                    pool.change(endpoint, keys)
                case Removed(endpoint):
                    pool.remove(endpoint.url)
        for pool in changed.values():
            pool.gating.tell_capacity()

    def _pool_of(self, endpoint_id: EndpointId) -> Pool | None:
        pool = self.pools.get(endpoint_id)
        if pool is None and self.make_pool is not None:
            pool = self.pools[endpoint_id] = self.make_pool(endpoint_id)
        return pool

    def share(self, teller: Pool, url: Url, outcome: Outcome, since: float) -> None:
        """Let the other pools hear what one learnt of a server they share: that it is lost, busy or failing."""
        if not isinstance(outcome, Busy | Failed) and not (isinstance(outcome, Lost) and outcome.cause in THE_SERVERS):
            return
        for pool in self.pools.values():
            if pool is not teller and (member := pool.members.get(url)) is not None:
                pool.hearing.hear(member, outcome, since)

    def status(self, now: float) -> FleetStatus:
        """How everything is doing at the instant *now*."""
        down_since = self.network.down_since
        return FleetStatus(
            tuple(pool.status() for pool in self.pools.values()),
            () if self.poller is None else self.poller.status(now),
            None if down_since is None else now - down_since,
        )


@asynccontextmanager
async def open_fleet(
    wanted: Sequence[EndpointId], settings: FleetSettings, ports: FleetPorts, fixed: Sequence[Endpoint] = ()
) -> AsyncIterator[Fleet]:
    """Serve the pools in *wanted* while the body runs; *fixed* endpoints are there for good and are not asked for.

    Raises :class:`ConfigError` when what is listed at the start is wrong, and :class:`PluginError` when a source cannot
    be opened then. Cancelled or left by an error, it stops its tasks and closes its clients before the error goes on.
    """
    with single_error():
        async with trio.open_nursery() as services:
            fleet = Fleet(ports.emit, ports.random, fixed=frozenset(endpoint.endpoint_id for endpoint in fixed))
            make_pool = partial(_make_pool, settings, ports, services, fleet)
            for endpoint_id in wanted:
                fleet.pools[endpoint_id] = make_pool(endpoint_id)
            if settings.whatever_is_listed:
                fleet.make_pool = make_pool
            fleet.poller = poller = Poller(
                ports.sources,
                ports.check,
                fleet.apply,
                ports.emit,
                settings.poll_interval_s,
                settings.elastic,
                ports.random,
            )
            try:
                for endpoint in fixed:
                    fleet.pools[endpoint.endpoint_id].add(endpoint)
                for pool in fleet.pools.values():
                    pool.gating.tell_capacity()
                services.start_soon(fleet.accounts.run_accounts)
                await services.start(poller.run_poller)
                _look_for_unlisted(fleet, tuple(poller.roster), settings, ports)
                yield fleet
            finally:
                services.cancel_scope.cancel()
                for pool in fleet.pools.values():
                    pool.close()


def _make_pool(
    settings: FleetSettings, ports: FleetPorts, services: trio.Nursery, fleet: Fleet, endpoint_id: EndpointId
) -> Pool:
    pool = Pool(
        endpoint_id=endpoint_id,
        elastic=settings.elastic and endpoint_id not in fleet.fixed,
        transport=ports.transport,
        make_policy=ports.make_policy,
        make_sessions=ports.make_sessions,
        health_settings=settings.health,
        random=ports.random,
        emit=ports.emit,
        wall_clock=ports.wall_clock,
        minders_nursery=services,
        share=fleet.share,
        accounts=fleet.accounts,
        network=fleet.network,
        listed=fleet.listed,
    )
    services.start_soon(run_session_gate, pool.sessions, name=f"sessions of {endpoint_id}")
    return pool


def _look_for_unlisted(fleet: Fleet, listed: Sequence[Endpoint], settings: FleetSettings, ports: FleetPorts) -> None:
    """Tell of the pools that nothing is listed for; refuse to start when nothing ever will be."""
    unlisted = {
        pool.endpoint_id: not_listed(pool.endpoint_id, listed) for pool in fleet.pools.values() if not pool.members
    }
    if unlisted and not settings.elastic:
        raise ConfigError(never_listed(endpoint_id, why) for endpoint_id, why in unlisted.items())
    if not fleet.pools and not settings.elastic:
        raise ConfigError([never_listed(None, "no endpoint is listed")])
    for endpoint_id, why in unlisted.items():
        ports.emit(PoolWaiting(endpoint_id, ports.wall_clock(), why))
