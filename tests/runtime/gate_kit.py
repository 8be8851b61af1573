"""What hostile tests of gates share: servers in memory that do as they are told, and policies that misbehave."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import attrs
import trio

from scavenge.core.flow import Stream
from scavenge.core.health_settings import HealthSettings
from scavenge.core.limits.aimd import Aimd, AimdSettings
from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.limits.gradient2 import Gradient2, Gradient2Settings
from scavenge.core.limits.pi import Pi, PiSettings
from scavenge.core.limits.tide import Tide, TideSettings
from scavenge.core.retry import RetrySettings
from scavenge.core.sessions.table import DEFAULT_SESSIONS, MakeSessions
from scavenge.events import Event
from scavenge.runtime.fleet import Fleet, FleetPorts, FleetSettings, open_fleet
from scavenge.runtime.pool import Pool
from scavenge.runtime.ports import AdmissionPolicy, RelayRequest
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import Session, SessionPorts
from scavenge.signals import GateView, ServerLoad
from scavenge.types import Answer, ChatRequest, Endpoint, EndpointId, Healthy, Ok, Outcome, Reply, Url, Usage

A, B, C = Url("http://a.test/v1"), Url("http://b.test/v1"), Url("http://c.test/v1")
POOL = EndpointId("pool")
POLICIES: dict[str, Callable[[], AdmissionPolicy]] = {
    "tide": lambda: Tide(TideSettings()),
    "gradient2": lambda: Gradient2(Gradient2Settings()),
    "aimd": lambda: Aimd(AimdSettings()),
    "pi": lambda: Pi(PiSettings()),
    "fixed": lambda: Fixed(FixedSettings(4)),
}


async def reply_at_once(stream: Stream) -> Answer:
    """Eight tokens in a second."""
    for _ in range(8):
        await trio.sleep(0.125)
        stream.came(trio.current_time())
    return Answer(Ok(Reply("hi", "stop", usage=Usage(4, 8))))


async def no_figures() -> ServerLoad | None:
    await trio.lowlevel.checkpoint()
    return None


@attrs.define(eq=False)
class Servers:
    """A transport to servers that all reply in the same way."""

    reply: Callable[[Stream], Awaitable[Answer]] = reply_at_once
    load: Callable[[], Awaitable[ServerLoad | None]] = no_figures
    loads_read: int = 0
    in_flight: int = 0
    clients: list[Client] = attrs.field(factory=list)

    def open_client(self, endpoint: Endpoint) -> Client:
        self.clients.append(Client(self))
        return self.clients[-1]


@attrs.define(eq=False)
class Client:
    servers: Servers
    heard_at: float = float("-inf")
    reached_at: float = float("-inf")
    closed: bool = False

    async def ask(self, request: ChatRequest | RelayRequest, stream: Stream | None = None) -> Answer:
        assert stream is not None
        self.servers.in_flight += 1
        try:
            return await self.servers.reply(stream)
        finally:
            self.servers.in_flight -= 1

    async def probe(self, path: str) -> Healthy | Outcome:
        await trio.lowlevel.checkpoint()
        return Healthy()

    async def read_load(self) -> ServerLoad | None:
        self.servers.loads_read += 1
        return await self.servers.load()

    def close(self) -> None:
        self.closed = True


@attrs.define
class Told:
    """A policy that says what it is told to say, and keeps what it hears with the time."""

    now_limit: int = 4
    wake: Callable[[float], float | None] = lambda now: None
    wants_load: bool = False
    reason: str = ""
    heard: list[object] = attrs.field(factory=list)

    def observe(self, event: object, now: float) -> None:
        self.heard.append(event)

    def limit(self, now: float) -> int:
        return self.now_limit

    def next_wake_at(self, now: float) -> float | None:
        return self.wake(now)

    def view(self, now: float) -> GateView:
        return GateView(self.now_limit, self.reason)


@attrs.define(eq=False)
class Kit:
    """Open pools with what can be asked of them."""

    fleet: Fleet
    events: list[Event]
    ports: SessionPorts
    _ages: Iterator[int] = attrs.field(factory=itertools.count)

    @property
    def pools(self) -> list[Pool]:
        return list(self.fleet.pools.values())

    @property
    def pool(self) -> Pool:
        return self.pools[0]

    def session(self, pool: Pool | None = None, **retry: int) -> Session:
        settings = RequestSettings(retry=RetrySettings(**(retry or {"max_retries": 0})))
        return Session(pool or self.pool, next(self._ages), settings, self.ports)

    async def chat(self, pool: Pool | None = None) -> None:
        await self.session(pool).chat([{"role": "user", "content": "hi"}])

    async def chats(self, count: int, workers: int) -> None:
        """So many requests, one after another from each worker."""

        async def work() -> None:
            for _ in range(count):
                await self.chat()

        async with trio.open_nursery() as nursery:
            for _ in range(workers):
                nursery.start_soon(work)

    def check_conserved(self) -> None:
        """What the meters have in flight is what is lent."""
        for pool in self.pools:
            for url, member in pool.members.items():
                assert member.gate.meter.in_flight == pool.dispatcher.ledger.lent(url), url


def endpoint(url: Url = A, pool: str = POOL, model: str = "m", **more: object) -> Endpoint:
    more.setdefault("max_concurrent", None)
    return Endpoint(EndpointId(pool), model, url, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def open_gates(
    make_policy: Callable[[], AdmissionPolicy],
    servers: Servers | None = None,
    endpoints: Sequence[Endpoint] = (endpoint(),),
    *,
    health: HealthSettings | None = None,
    sessions: MakeSessions = DEFAULT_SESSIONS,
) -> AsyncIterator[Kit]:
    """Open pools over endpoints that are there for good, unless the test moves them."""
    events: list[Event] = []
    ports = FleetPorts(
        sources=[],
        check=None,  # type: ignore[arg-type]  # no source, no listing
        transport=servers or Servers(),
        make_policy=make_policy,
        emit=events.append,
        random=Random(1),
        wall_clock=lambda: 0.0,
        make_sessions=sessions,
    )
    settings = FleetSettings(health=health or HealthSettings(probe=False))
    wanted = list(dict.fromkeys(one.endpoint_id for one in endpoints))
    async with open_fleet(wanted, settings, ports, endpoints) as fleet:
        yield Kit(fleet, events, SessionPorts(events.append, Random(2), lambda: 0.0))
