"""``scavenge.open_pool``: one pool for Python programs, with the same slots, health and retries as an evaluation.

Everything that a block opened is gone when the block is left: nothing runs on behind it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import attrs
import httpx
import trio

from scavenge.app.fleet_ports import fleet_ports
from scavenge.app.pool_opening import opening_of_settings, opening_of_source
from scavenge.app.pool_watch import PoolLog, Telling, open_fleet_watch
from scavenge.config.schema import RunSettings
from scavenge.core.ledger import Ask
from scavenge.core.quiet import NO_PROGRESS
from scavenge.core.redaction import Redactor
from scavenge.core.retry import RetrySettings
from scavenge.edge.machine import raise_descriptor_limit
from scavenge.edge.model_http import HttpModelClient
from scavenge.errors import UsageError
from scavenge.events import Observer
from scavenge.runtime.dispatcher import HeldLease
from scavenge.runtime.fleet import Fleet, open_fleet
from scavenge.runtime.member import Member
from scavenge.runtime.pool import Pool
from scavenge.runtime.ports import EndpointSource, ModelClient
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import Session, SessionPorts
from scavenge.runtime.watchdog import Watchdog
from scavenge.status import FleetStatus, PoolStatus
from scavenge.types import Answer, Completion, Endpoint, Json, Messages, Ok, Outcome, Reply


@attrs.frozen(eq=False)
class ClientLease:
    """Slots on one endpoint, and an HTTP client for it: relative paths, its key; what it sees counts for its health."""

    endpoint: Endpoint
    client: httpx.AsyncClient


@attrs.frozen(eq=False)
class ModelPool:
    """A pool that is open; see :func:`open_pool`."""

    _fleet: Fleet
    _pool: Pool
    _watchdog: Watchdog
    _settings: RequestSettings
    _ports: SessionPorts
    _ages: Iterator[int] = attrs.field(factory=itertools.count)

    async def chat(self, messages: Messages, **options: object) -> Completion:
        """One request, sent elsewhere when its endpoint is lost, and retried as the pool was told.

        *options* go into the request as they are (``temperature``, ``max_tokens``, ``tools`` ...). Raises
        :class:`scavenge.RequestFailed`. Cancelled, it gives back its slot and closes its connection.
        """
        return await self._session().chat(messages, **options)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A conversation: its requests go where its prefix is, and older sessions are served first.

        Entering waits for a place; leaving gives it back and does not wait.
        """
        session = self._session()
        session.place = place = await self._pool.acquire_place(session.age)
        try:
            yield session
        finally:
            self._pool.sessions.leave(place)

    @asynccontextmanager
    async def acquire(self, slots: int = 1) -> AsyncIterator[ClientLease]:
        """Borrow *slots* slots on one endpoint for requests of your own.

        Raises :class:`scavenge.LeaseRevoked` when the endpoint was lost before the block had ended. Entering waits and
        can be cancelled; leaving does neither.
        """
        held, member = await self._acquire(slots)
        client, gate = member.client, member.gate
        with held.using(), gate.occupied(slots, trio.current_time):
            self._pool.gating.on_begun(member, slots)
            if not isinstance(client, HttpModelClient):
                raise UsageError(f"{held.url} cannot be asked with these settings: {member.health.why}")
            async with client.open_http(partial(self._observe, held, member, client)) as http:
                yield ClientLease(member.endpoint, http)

    async def _acquire(self, slots: int) -> tuple[HeldLease, Member]:
        """Slots on an endpoint that is still a member when they arrive."""
        ask = Ask((next(self._ages),), slots=slots)
        while True:
            held = await self._pool.acquire(ask)
            member = self._pool.members.get(held.url)
            if member is not None:
                return held, member
            self._pool.release(held)

    def status(self) -> PoolStatus:
        """How the pool is doing now."""
        return self._pool.status()

    def fleet_status(self) -> FleetStatus:
        """How everything behind the pool is doing now: the pool, its sources, this machine's network.

        versionadded: 0.1
        """
        return self._fleet.status(trio.current_time())

    def _session(self) -> Session:
        return Session(self._pool, next(self._ages), self._settings, self._ports)

    def _observe(
        self, held: HeldLease, member: Member, client: ModelClient, outcome: Outcome | None, since: float
    ) -> None:
        """Hear how a request of a lease's client ended that began at *since*.

        For the endpoint's health it counts as old as its lease: a server that came back proves itself with new ones.
        """
        outcome = outcome or Ok(Reply("", "stop"))
        if outcome.name not in NO_PROGRESS:
            self._watchdog.clock.on_sign(trio.current_time())
        self._pool.gating.note(member, Answer(outcome), since)
        self._pool.hearing.report(member, client, outcome, held.granted_at)


@asynccontextmanager
async def open_pool(
    source: str | os.PathLike[str] | RunSettings | EndpointSource,
    *,
    endpoint_id: str | None = None,
    elastic: bool = True,
    poll_interval: float | None = None,
    admission: str | Mapping[str, object] | None = None,
    sessions: str | Mapping[str, object] | None = None,
    sampling_args: Json | None = None,
    max_retries: int = 3,
    max_lost: int = 20,
    request_timeout: float | None = None,
    idle_timeout: float = 600.0,
    stream: bool = True,
    observers: Sequence[Observer] = (),
) -> AsyncIterator[ModelPool]:
    """Open a pool of endpoints while the block runs.

    *source* is the path of an endpoints file (or its folder), settings, or an endpoint source. Without *endpoint_id*
    there must be exactly one pool that the evals of the settings use, or that is listed. With *elastic* the source is
    asked again every *poll_interval* seconds, and endpoints may come and go. *admission* and *sessions* name a policy
    each, or are tables with ``policy`` and its keys. These three are the settings' where they are ``None``, with a
    fixed server of theirs and ``[health]``; without settings a pool asks every 10 s. *observers* hear of every event.
    Times are in seconds.

    Raises :class:`scavenge.errors.ConfigError` for wrong settings or rows, :class:`scavenge.UsageError` when the pool
    is not clear, and what the source raises when it has to say which pool there is and cannot. Leaving, also by
    cancellation, ends every task and connection.

    versionadded: 0.1
    """
    raise_descriptor_limit()
    requests = RequestSettings(
        sampling_args or {}, stream, idle_timeout, request_timeout, RetrySettings(max_retries, max_lost)
    )
    if isinstance(source, RunSettings):
        opening = await opening_of_settings(source, endpoint_id)
    else:
        opening = await opening_of_source(source, endpoint_id)
    opening = opening.changed(elastic, poll_interval, admission, sessions)
    redact = Redactor.of_environ(os.environ)
    telling = Telling([PoolLog(redact), *observers])
    ports = fleet_ports(
        opening.sources, opening.make_policy, opening.make_sessions, opening.fixed, telling.emit, redact
    )
    async with open_fleet([opening.endpoint_id], opening.settings, ports, opening.fixed) as fleet:
        pool = fleet.pools[opening.endpoint_id]
        async with open_fleet_watch(fleet, telling, ports.wall_clock) as watchdog:
            session_ports = SessionPorts(ports.emit, ports.random, ports.wall_clock)
            yield ModelPool(fleet, pool, watchdog, requests, session_ports)
