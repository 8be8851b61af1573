"""Pools of scripted servers behind a desk, on the test's clock: for what becomes of foreign clients' calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

import attrs
import trio

from scavenge.calls import Call
from scavenge.config.endpoint_rows import check_listing, pool_modes
from scavenge.core.flow import Stream
from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.retry import RetrySettings
from scavenge.core.sessions.fixed import FixedSessions, FixedSessionsSettings
from scavenge.core.sessions.table import DEFAULT_SESSIONS, MakeSessions
from scavenge.events import CallEnded, Event, Warned
from scavenge.listings import EndpointSpec, Listing
from scavenge.runtime.fleet import Fleet, FleetPorts, FleetSettings, open_fleet
from scavenge.runtime.pool_desk import DeskSettings, PoolDesk
from scavenge.runtime.ports import RelayRequest
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import SessionPorts
from scavenge.runtime.sources import lent
from scavenge.signals import ServerLoad
from scavenge.types import Answer, ApiType, ChatRequest, Endpoint, EndpointId, Healthy, Lost, Ok, Outcome, Reply, Usage

START_TIME = 1_800_000_000.0
A_LONG_TIME_S = 900.0
Asked = ChatRequest | RelayRequest
Answering = Callable[[Asked], Awaitable[Outcome]]


def ok(text: str = "hello") -> Ok:
    raw = {"choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]}
    return Ok(Reply(text, "stop", usage=Usage(3, 2), raw=raw))


def call(
    model: str = "sim",
    *,
    streamed: bool = False,
    session: str | None = None,
    api: ApiType = ApiType.CHAT_COMPLETIONS,
    **options: object,
) -> Call:
    """A call as the server hands it on."""
    asks = {"messages": [{"role": "user", "content": "hi"}]} if api is ApiType.CHAT_COMPLETIONS else {"prompt": "hi"}
    document = {"model": model, **asks, **options}
    if streamed:
        document["stream"] = True
    return Call(api, json.dumps(document).encode(), document, model, streamed, session)


@attrs.define(eq=False)
class Sink:
    """Takes what a client would get."""

    taken: list[bytes] = attrs.field(factory=list)

    @property
    def begun(self) -> bool:
        return bool(self.taken)

    async def take(self, events: bytes) -> None:
        self.taken.append(events)
        await trio.lowlevel.checkpoint()


@attrs.define(eq=False, slots=False)
class Server:
    """One server: what it answers, and what it was asked."""

    answer: Answering
    asked: list[Asked] = attrs.field(factory=list)
    under_way: int = 0
    dropped: int = 0
    heard_at: float = float("-inf")
    reached_at: float = float("-inf")
    first_byte_s: float | None = 0.25
    alive: bool = True

    async def ask(self, request: Asked, stream: Stream | None = None) -> Answer:
        self.asked.append(request)
        self.under_way += 1
        try:
            return Answer(await self.answer(request), self.first_byte_s)
        except trio.Cancelled:
            self.dropped += 1
            raise
        finally:
            self.under_way -= 1

    async def probe(self, path: str) -> Healthy | Outcome:
        await trio.lowlevel.checkpoint()
        if not self.alive:
            return Lost("connection refused")
        self.heard_at = self.reached_at = trio.current_time()
        return Healthy()

    async def read_load(self) -> ServerLoad | None:
        await trio.lowlevel.checkpoint()
        return None

    def close(self) -> None:
        """Nothing is open."""


def saying(*outcomes: Outcome, after_s: float = 1.0) -> Answering:
    """Answers with these, one after the other, and the last one for ever."""
    left = list(outcomes)

    async def answer(request: Asked) -> Outcome:
        await trio.sleep(after_s)
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


@attrs.define(eq=False)
class Desk:
    """A desk that is open, with all around it."""

    fleet: Fleet
    desk: PoolDesk
    servers: dict[str, Server]
    rows: list[EndpointSpec]
    events: list[Event]

    def ended(self) -> list[CallEnded]:
        return [event for event in self.events if isinstance(event, CallEnded)]

    def warnings(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Warned)]

    def add(self, url: str, server: Server, pool: str = "sim", model: str = "the-model", **settings: object) -> None:
        """List one more server from the next poll on."""
        self.servers[url] = server
        self.rows.append(EndpointSpec(endpoint_id=pool, model=model, url=url, **settings))

    @property
    def lent(self) -> int:
        """Slots that are held in all pools."""
        return sum(len(pool.dispatcher.held()) for pool in self.fleet.pools.values())

    @property
    def waiting(self) -> int:
        return sum(pool.dispatcher.ledger.waiting for pool in self.fleet.pools.values())

    @property
    def patient(self) -> int:
        """Calls whose patience is looked at."""
        return sum(map(len, self.desk._waits.values()))

    @property
    def places(self) -> int:
        return sum(pool.sessions.taken + pool.sessions.waiting for pool in self.fleet.pools.values())


def sessions_fixed_to(limit: int) -> MakeSessions:
    """A session gate that lets so many in at once."""
    return MakeSessions("fixed", lambda: FixedSessions(FixedSessionsSettings(limit)))


@asynccontextmanager
async def open_desk(
    servers: dict[str, Server] | None = None,
    *,
    wanted: tuple[str, ...] = (),
    limit: int = 8,
    make_sessions: MakeSessions = DEFAULT_SESSIONS,
    max_retries: int = 3,
    sampling: dict[str, object] | None = None,
    stream: bool = True,
    request_timeout: float | None = None,
    elastic: bool = True,
    **settings: float,
) -> AsyncIterator[Desk]:
    """A desk over pool ``sim`` with these servers, by URL. ``settings`` are the desk's."""
    started = trio.current_time()
    events: list[Event] = []
    rows = [EndpointSpec(endpoint_id="sim", model="the-model", url=url) for url in servers or {}]
    known = dict(servers or {})
    observers: list[Callable[[Event], None]] = [events.append]

    class Source:
        async def list_endpoints(self) -> Listing:
            await trio.lowlevel.checkpoint()
            return Listing(list(rows))

    class Transport:
        def open_client(self, endpoint: Endpoint) -> Server:
            return known[endpoint.url]

    def emit(event: Event) -> None:
        for observer in observers:
            observer(event)

    def wall_clock() -> float:
        return START_TIME + trio.current_time() - started

    ports = FleetPorts(
        sources=[lent("rows", Source())],
        check=lambda listing, present: check_listing(listing, {}, present=pool_modes(present)),
        transport=Transport(),
        make_policy=lambda: Fixed(FixedSettings(limit)),
        emit=emit,
        random=Random(7),
        wall_clock=wall_clock,
        make_sessions=make_sessions,
    )
    retry = RetrySettings(max_retries)
    requests = RequestSettings(sampling or {}, stream, request_timeout=request_timeout, retry=retry)
    fleet_settings = FleetSettings(elastic, 1.0, whatever_is_listed=True)
    async with open_fleet([EndpointId(one) for one in wanted], fleet_settings, ports) as fleet:
        desk = PoolDesk(fleet, DeskSettings(requests, **settings), SessionPorts(emit, Random(8), wall_clock))
        observers.append(desk)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.run_pool_desk)
            try:
                yield Desk(fleet, desk, known, rows, events)
            finally:
                desk.close()
                nursery.cancel_scope.cancel()
