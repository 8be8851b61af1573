"""The desk where calls from outside are handed to the pool that they name: the door of a gateway that serves whoever.

Data flow: a call names a model → the pool that has it → a session (one that the call names, made on first use, or one
of its own) → the session's requests. Knows no slots and no HTTP.

A foreign session mostly does not say when it is over. So one without a call under way gives its place in the pool to
another one that waits for it, once it has been idle for a while; its next call waits for a place again, before those of
younger sessions.

Invariants: a session whose call is at an endpoint has its place in the pool; while a call of it is under way it is not
idle; with its end, by a client, by idleness or with the desk, it has none. A call waits for what is not there no longer
than ``stall_timeout``, and no call ends while an endpoint works on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import trio

from scavenge.calls import Call, ModelCard, Relayed
from scavenge.core.sessions.doorkeeper import COLD_AFTER_S
from scavenge.errors import NoEndpointsError, PoisonRequest, UnknownSession
from scavenge.events import CallEnded, Event
from scavenge.runtime.desk import CallsUnderWay
from scavenge.runtime.fleet import Fleet
from scavenge.runtime.patience import Patience
from scavenge.runtime.pool import Pool
from scavenge.runtime.pool_finder import PoolFinder
from scavenge.runtime.ports import ReplySink
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import Session, SessionPorts
from scavenge.types import EndpointId, RequestFailed

LOOK_EVERY_S = 1.0
"""How often sessions are looked at for idleness, and calls for waiting in vain."""

ONCE_AFTER_S = 5.0
"""How long a session that had one call keeps its place from others: many never have another one, and little is cached.

One that had more keeps it until what it has in the cache counts as lost.
"""


@attrs.frozen
class DeskSettings:
    """How calls are served. Times are in seconds."""

    requests: RequestSettings = attrs.field(factory=RequestSettings)
    stall_timeout_s: float = 600.0
    """0: calls wait for ever."""
    session_idle_s: float = 600.0


@attrs.define(eq=False)
class _Guest:
    """A session that calls name, in one pool."""

    session: Session
    calls: CallsUnderWay = attrs.field(factory=CallsUnderWay)
    entering: trio.Lock = attrs.field(factory=trio.Lock)
    """Held by the call that waits for the session's place; others of the session wait for it."""
    answered: int = 0
    idle_since: float = 0.0
    ended: bool = False

    def end(self) -> None:
        """End its calls and give its place back. Never waits."""
        self.ended = True
        self.calls.end()
        self.rest()

    def may_rest(self, now: float) -> bool:
        """Whether it has a place that others need more."""
        patience_s = COLD_AFTER_S if self.answered > 1 else ONCE_AFTER_S
        return self.session.place is not None and not self.calls and now - self.idle_since >= patience_s

    def rest(self) -> None:
        """Give its place back, until its next call. Never waits."""
        if self.session.place is not None:
            self.session.pool.sessions.leave(self.session.place)
            self.session.place = None

    async def relay(
        self, call: Call, sink: ReplySink | None, patience: Patience, on_sent: Callable[[], None]
    ) -> Relayed:
        """Have a call answered, once the session has its place."""
        await self._enter(patience)
        try:
            relayed = await self.session.relay(call, sink, patience, on_sent)
            self.answered += 1
            return relayed
        finally:  # only a record of a rollout would need it, and a session may live long and say much
            self.session.prompt = None
            self.session.attempts.clear()

    async def _enter(self, patience: Patience) -> None:
        """Wait for the session's place, if it has none yet."""
        async with self.entering:
            if self.session.place is None:
                self.session.place = await patience.wait(lambda: self.session.pool.acquire_place(self.session.age))
                if self.ended:  # in the very moment in which the place was granted
                    self.end()


@attrs.define(eq=False)
class PoolDesk:
    """The pools of a fleet, as a :class:`scavenge.runtime.ports.ModelDoor`; it observes the fleet's events, too."""

    fleet: Fleet
    settings: DeskSettings
    ports: SessionPorts = attrs.field(repr=False)
    _ages: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _guests: dict[tuple[str, EndpointId], _Guest] = attrs.field(factory=dict, init=False)
    _waits: dict[EndpointId, dict[Patience, None]] = attrs.field(factory=dict, init=False)
    """The patience of the calls under way, by pool."""
    _finder: PoolFinder = attrs.field(init=False)
    _calls: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._finder = PoolFinder(self.fleet, self.settings.stall_timeout_s, self.ports.emit)

    @property
    def calls(self) -> int:
        """How many calls are under way, those included that wait for a pool to be listed."""
        return self._calls

    @property
    def sessions(self) -> int:
        """How many sessions are open."""
        return len(self._guests)

    def __call__(self, event: Event) -> None:
        """Hear of an event."""
        self._finder.hear(event)

    def models(self) -> Sequence[ModelCard]:
        """The names by which calls find a pool."""
        return self._finder.models()

    def end_session(self, session_id: str) -> bool:
        """End a session, in whatever pools it has calls. Never waits."""
        keys = [(session_id, endpoint_id) for endpoint_id in self.fleet.pools]
        guests = [self._guests.pop(key) for key in keys if key in self._guests]
        for guest in guests:
            guest.end()
        return bool(guests)

    def close(self) -> None:
        """End every session. Never waits."""
        while self._guests:
            self._guests.popitem()[1].end()

    async def answer(self, call: Call, sink: ReplySink | None) -> Relayed:
        """Have a call answered by the pool that it names.

        Raises :class:`scavenge.errors.UnknownModel`, :class:`scavenge.errors.NoEndpointsError` when nothing serves it
        within ``stall_timeout``, :class:`scavenge.errors.UnknownSession` when its session is ended meanwhile, and what
        :meth:`scavenge.runtime.session.Session.relay` raises. Cancelled, it gives back its slot.
        """
        self._calls += 1
        try:
            return await self._served(call, sink)
        finally:
            self._calls -= 1

    async def _served(self, call: Call, sink: ReplySink | None) -> Relayed:
        came_at, came_time = trio.current_time(), self.ports.wall_clock()
        pool = await self._finder.find(call.model, came_at)
        patience = Patience(pool, self.settings.stall_timeout_s, came_at)
        waits = self._waits.setdefault(pool.endpoint_id, {})
        waits[patience] = None
        told = _Told(pool.endpoint_id, call.streamed, came_at, came_time)
        try:
            told.relayed = await self._answer(pool, call, sink, patience, told.sent)
            told.outcome = "ok"
            return told.relayed
        except Exception as exc:
            told.outcome = _end_of(exc)
            raise
        finally:
            del waits[patience]
            self.ports.emit(told.event(trio.current_time()))

    async def _answer(
        self, pool: Pool, call: Call, sink: ReplySink | None, patience: Patience, on_sent: Callable[[], None]
    ) -> Relayed:
        if call.session_id is None:
            return await self._session(pool).relay(call, sink, patience, on_sent)
        key = (call.session_id, pool.endpoint_id)
        guest = self._guests.get(key)
        if guest is None:
            guest = self._guests[key] = _Guest(self._session(pool))
        try:
            return await guest.calls.answered(call.session_id, guest.relay(call, sink, patience, on_sent))
        finally:
            guest.idle_since = trio.current_time()

    def _session(self, pool: Pool) -> Session:
        return Session(pool, next(self._ages), self.settings.requests, self.ports)

    # --- what time brings

    async def run_pool_desk(self) -> None:
        """End sessions that are idle or let them rest, and end waits that are in vain, until it is cancelled."""
        while True:
            await trio.sleep(LOOK_EVERY_S)
            now = trio.current_time()
            for key, guest in list(self._guests.items()):
                if not guest.calls and now - guest.idle_since >= self.settings.session_idle_s:
                    self._guests.pop(key).end()
            for pool in self.fleet.pools.values():
                if pool.sessions.waiting and pool.slots:  # else it is no place that they wait for
                    self._make_room(pool, now)
                if pool.stalled_s() >= self.settings.stall_timeout_s:
                    for patience in list(self._waits.get(pool.endpoint_id, ())):
                        patience.look(now)
            self._finder.look(now)

    def _make_room(self, pool: Pool, now: float) -> None:
        """Let the sessions that have been idle the longest give their places to those that wait."""
        idle = [guest for guest in self._guests.values() if guest.session.pool is pool and guest.may_rest(now)]
        for guest in sorted(idle, key=lambda guest: guest.idle_since)[: pool.sessions.waiting]:
            guest.rest()


_ENDS: Mapping[type[Exception], str] = {PoisonRequest: "lost", NoEndpointsError: "stalled", UnknownSession: "ended"}


def _end_of(error: Exception) -> str:
    return error.outcome.name if isinstance(error, RequestFailed) else _ENDS.get(type(error), "failed")


@attrs.define
class _Told:
    """How a call went, for those who observe."""

    endpoint_id: EndpointId
    streamed: bool
    came_at: float
    came_time: float
    outcome: str = "hung up"
    relayed: Relayed | None = None
    attempts: int = 0

    def sent(self) -> None:
        self.attempts += 1

    def event(self, now: float) -> CallEnded:
        told = CallEnded(self.endpoint_id, self.outcome, self.streamed, now - self.came_at, self.attempts)
        if self.relayed is None:
            return told
        last = self.relayed.attempts[-1] if self.relayed.attempts else None
        if last is not None and last.first_byte_s is not None:
            until_sent_s = max(0.0, last.started_time - self.came_time)  # by a clock that may be set
            told = attrs.evolve(told, first_byte_s=until_sent_s + last.first_byte_s)
        return attrs.evolve(told, usage=self.relayed.reply.usage)
