"""``scavenge.open_pool``: one pool for Python programs, with the same slots, health and retries as an evaluation.

Everything that a block opened is gone when the block is left: nothing runs on behind it.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import attrs
import httpx
import trio

from scavenge.app.parts import make_parts, named_sources, policy_maker
from scavenge.config.endpoint_rows import check_listing, pool_modes
from scavenge.config.problems import Where
from scavenge.config.schema import PolicySettings, RunSettings
from scavenge.core.ledger import Ask
from scavenge.core.retry import RetrySettings
from scavenge.edge.machine import raise_descriptor_limit
from scavenge.edge.model_http import HttpModelClient, HttpModelTransport
from scavenge.edge.sources.file import FileSource
from scavenge.errors import UsageError, single_error
from scavenge.events import Event
from scavenge.plugins.manager import load_plugins
from scavenge.runtime.dispatcher import HeldLease
from scavenge.runtime.fleet import FleetPorts, FleetSettings, open_fleet
from scavenge.runtime.member import Member
from scavenge.runtime.pool import Pool
from scavenge.runtime.ports import AdmissionPolicy, EndpointSource, ModelClient
from scavenge.runtime.session import RequestSettings, Session, SessionPorts
from scavenge.runtime.sources import NamedSource, lent
from scavenge.status import PoolStatus
from scavenge.types import Completion, Endpoint, EndpointId, Json, Messages, Ok, Outcome, Reply


@attrs.frozen(eq=False)
class ClientLease:
    """Slots on one endpoint, and an HTTP client for it: relative paths, its key; what it sees counts for its health."""

    endpoint: Endpoint
    client: httpx.AsyncClient


@attrs.frozen(eq=False)
class ModelPool:
    """A pool that is open; see :func:`open_pool`."""

    _pool: Pool
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
        held = await self._pool.acquire_place(session.age)
        with held.using():
            yield session

    @asynccontextmanager
    async def acquire(self, slots: int = 1) -> AsyncIterator[ClientLease]:
        """Borrow *slots* slots on one endpoint for requests of your own.

        Raises :class:`scavenge.LeaseRevoked` when the endpoint was lost before the block had ended. Entering waits and
        can be cancelled; leaving does neither.
        """
        held, member = await self._acquire(slots)
        client = member.client
        with held.using():
            if not isinstance(client, HttpModelClient):
                raise UsageError(f"{held.url} cannot be asked with these settings: {member.health.why}")
            async with client.open_http(partial(self._observe, member, client)) as http:
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

    def _session(self) -> Session:
        return Session(self._pool, next(self._ages), self._settings, self._ports)

    def _observe(self, member: Member, client: ModelClient, outcome: Outcome | None) -> None:
        self._pool.hearing.report(member, client, outcome or Ok(Reply("", "stop")), trio.current_time())


@asynccontextmanager
async def open_pool(
    source: str | os.PathLike[str] | RunSettings | EndpointSource,
    *,
    endpoint_id: str | None = None,
    elastic: bool = True,
    poll_interval: float = 10.0,
    admission: str | Mapping[str, object] | None = None,
    sampling_args: Json | None = None,
    max_retries: int = 3,
    max_lost: int = 20,
    request_timeout: float | None = None,
    idle_timeout: float = 600.0,
    stream: bool = True,
) -> AsyncIterator[ModelPool]:
    """Open a pool of endpoints while the block runs.

    *source* is the path of an endpoints file (or its folder), settings, or an endpoint source. Without *endpoint_id*
    there must be exactly one pool listed. With *elastic* the source is asked again every *poll_interval* seconds, and
    endpoints may come and go. *admission* names a policy, or is a table with ``policy`` and its keys. Times are in
    seconds.

    Raises :class:`scavenge.errors.ConfigError` for wrong settings or rows, :class:`scavenge.UsageError` when the pool
    is not clear, and what the source raises when it has to say which pool there is and cannot. Leaving, also by
    cancellation, ends every task and connection.

    versionadded: 0.1
    """
    raise_descriptor_limit()
    requests = RequestSettings(
        sampling_args or {}, stream, idle_timeout, request_timeout, RetrySettings(max_retries, max_lost)
    )
    ports = _ports(_named(source), _make_policy(admission))
    wanted = EndpointId(endpoint_id) if endpoint_id is not None else await _only_pool(ports)
    settings = FleetSettings(elastic, poll_interval)
    async with open_fleet([wanted], settings, ports) as fleet:
        yield ModelPool(fleet.pools[wanted], requests, SessionPorts(ports.emit, ports.random, ports.wall_clock))


def _named(source: str | os.PathLike[str] | RunSettings | EndpointSource) -> Sequence[NamedSource]:
    if isinstance(source, RunSettings):
        return named_sources(make_parts(source))
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        file = path / "endpoints.toml" if path.is_dir() else path
        return [lent(str(file), FileSource(file))]
    return [lent(type(source).__name__, source)]


def _make_policy(admission: str | Mapping[str, object] | None) -> Callable[[], AdmissionPolicy]:
    keys = {"policy": admission} if isinstance(admission, str) else dict(admission or {})
    name = keys.pop("policy", None)
    if name is not None and not isinstance(name, str):
        raise UsageError(f"admission: policy must be a name, got {name!r}")
    return policy_maker(PolicySettings(name, keys), load_plugins(), Where("open_pool", ("admission",)), Path.cwd())


def _ports(sources: Sequence[NamedSource], make_policy: Callable[[], AdmissionPolicy]) -> FleetPorts:
    return FleetPorts(
        sources=sources,
        check=lambda listing, present: check_listing(listing, os.environ, present=pool_modes(present)),
        transport=HttpModelTransport(),
        make_policy=make_policy,
        emit=_unheard,
        random=Random(),  # noqa: S311 - jitter, not a secret
        wall_clock=time.time,
    )


def _unheard(event: Event) -> None:
    """Nobody observes a pool; its status tells how it is."""


async def _only_pool(ports: FleetPorts) -> EndpointId:
    """The one pool that the sources list."""
    found: set[EndpointId] = set()
    for named in ports.sources:
        with single_error():
            async with named.open() as source:
                listing = await source.list_endpoints()
        found.update(endpoint.endpoint_id for endpoint in ports.check(listing, ()).endpoints)
    if len(found) != 1:
        listed = ", ".join(sorted(found)) or "none"
        raise UsageError(f"name the pool with endpoint_id: listed are {listed}")
    return found.pop()
