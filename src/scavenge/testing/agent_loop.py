"""Runs multi-turn sessions against one simulated engine, under a session policy and an admission policy. Pure.

It does what a pool does with its session gate and its dispatcher, on numbers instead of tasks: a session comes in at
the door, calls, rests while its tool works, asks for its next call, and ends. There is always one more at the door. It
decides nothing but the order: the doorkeeper says which sessions may go on, the admission policy how many requests.

Invariants: a live session is in exactly one place: its tool works, it is paused, it is queued for a slot, or its
request is in flight; whatever happens, as many sessions have started as have finished or are live.

versionadded: 0.1
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from random import Random

import attrs

from scavenge.core.sessions.book import LiveSession
from scavenge.core.sessions.doorkeeper import Doorkeeper
from scavenge.core.sessions.policy import Capacity, SessionPolicy
from scavenge.runtime.ports import AdmissionPolicy
from scavenge.signals import Ending, ServerLoad
from scavenge.testing.agent_report import AgentReport, Moment
from scavenge.testing.agents import AgentWorkload, Turn
from scavenge.testing.batching import BatchingEngine, BatchingSettings
from scavenge.testing.closed_loop_case import Change, Tells
from scavenge.testing.closed_loop_client import LoopClient, LoopRequest
from scavenge.testing.closed_loop_report import LoopReport
from scavenge.testing.engine import Progress
from scavenge.types import CapChanged, Url, Usage

LOAD_EVERY_S = 5.0
"""How often the engine's own figures are read."""
_URL = Url("engine")


@attrs.frozen
class AgentCase:
    """A server, the sessions it is to serve, and what happens to it."""

    server: BatchingSettings
    workload: AgentWorkload
    seconds: float
    changes: Sequence[Change] = ()
    tells: Tells = Tells.VLLM
    """What the server tells of itself."""
    tells_cached: bool = True
    """Whether a reply says how much of its prompt was in the cache."""
    oldest_first: bool = True
    """Whether an older session's request goes before a younger one's; else first come, first served."""
    sessions: float = math.inf
    """How many there are to begin."""
    sample_s: float = 30.0
    """The distance of the report's moments."""

    def __attrs_post_init__(self) -> None:
        if self.server.max_waiting is not None or self.server.max_in_flight is not None:
            raise ValueError("server: expected one that turns nobody away")
        if any(change.workload is not None for change in self.changes):
            raise ValueError("changes: the workload is that of independent requests")


@attrs.define(eq=False)
class _Session:
    live: LiveSession
    turns: tuple[Turn, ...]
    done: int = 0
    """Turns that are over."""

    @property
    def turn(self) -> Turn:
        return self.turns[self.done]


@attrs.define
class _Sums:
    finished: int = 0
    turns: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0


@attrs.define(eq=False)
class AgentLoop:
    """One run, from an idle server at time 0. The same arguments make the same run."""

    case: AgentCase
    sessions: SessionPolicy
    admission: AdmissionPolicy
    seed: int = 0
    _engine: BatchingEngine = attrs.field(init=False)
    _client: LoopClient = attrs.field(init=False)
    _door: Doorkeeper = attrs.field(init=False)
    _changes: list[Change] = attrs.field(init=False)
    _live: dict[int, _Session] = attrs.field(factory=dict, init=False)
    """By age, which is the number of the session."""
    _knocked: int = attrs.field(default=0, init=False)
    _started: int = attrs.field(default=0, init=False)
    _tools: list[tuple[float, int]] = attrs.field(factory=list, init=False)
    """Until when whose tool works."""
    _queue: list[tuple[int, int]] = attrs.field(factory=list, init=False)
    """Who waits for a slot: the order of service, and the age."""
    _queued: int = attrs.field(default=0, init=False)
    _flying: dict[int, tuple[_Session, LoopRequest]] = attrs.field(factory=dict, init=False)
    """Whose request is in flight, by its number."""
    _up_at: float = attrs.field(default=-math.inf, init=False)
    _load_at: float = attrs.field(default=0.0, init=False)
    _sums: _Sums = attrs.field(factory=_Sums, init=False)
    _moments: list[Moment] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._engine = BatchingEngine(self.case.server, Random(self.seed))  # noqa: S311 - a simulation
        self._client = LoopClient(self._engine, self.admission, LoopReport())
        self._door = Doorkeeper(self.sessions)
        self._changes = sorted(self.case.changes, key=lambda change: change.at)

    def run(self) -> AgentReport:
        """Play the case to its end, and break off what is under way then."""
        now = 0.0
        self.admission.observe(CapChanged(None), now)
        self._play(now)
        while now < self.case.seconds:
            now = max(now, min(self.case.seconds, *self._instants(now)))
            self._play(now)
        return AgentReport(tuple(self._moments))

    def _instants(self, now: float) -> Iterator[float]:
        """When something is due."""
        yield len(self._moments) * self.case.sample_s
        yield self._load_at
        if self._tools:
            yield self._tools[0][0]
        if self._changes:
            yield self._changes[0].at
        if now < self._up_at:
            yield self._up_at
        for at in (self._engine.next_event_at(), self._client.next_wake_at(now), self._door.next_wake_at()):
            if at is not None:
                yield at

    def _play(self, now: float) -> None:
        """Let happen what is due, and everybody go who may."""
        for progress in self._engine.advance(now):
            self._hear(progress, now)
        while self._changes and self._changes[0].at <= now:
            self._change(self._changes.pop(0), now)
        if self._load_at <= now:
            self._load_at = now + LOAD_EVERY_S
            self._read_load(now)
        if (wake_at := self._client.next_wake_at(now)) is not None and wake_at <= now:
            self._client.wake(now)
        while self._tools and self._tools[0][0] <= now:
            self._ask(self._live[heapq.heappop(self._tools)[1]], now)
        self._settle(now)
        if now >= len(self._moments) * self.case.sample_s:
            self._moments.append(self._moment(now))

    # --- the server

    def _change(self, change: Change, now: float) -> None:
        if change.speed is not None:
            self._engine.set_speed(change.speed, now)
        if change.slots is not None:
            self._engine.set_slots(change.slots, now)
        if change.kv is not None:
            self._engine.set_kv(change.kv, now)
        if change.down_s is not None:
            self._die(now + change.down_s, now)
        self._read_load(now)

    def _die(self, up_at: float, now: float) -> None:
        """What is in flight is sent again, each in its place, once the server is back."""
        self._up_at = up_at
        self._engine.kill(now)
        for session, request in self._flying.values():
            self._client.end(request, Ending.DOWN, now)
            self._enqueue(session)
        self._flying.clear()

    def _read_load(self, now: float) -> None:
        """Read the server's figures; one that is down is not among the endpoints."""
        if now < self._up_at:
            self._door.set_capacity(Capacity({}), now)
            return
        load = self.case.tells.of(self._engine.load())
        if load is not None and getattr(self.admission, "wants_load", False):
            self.admission.observe(load, now)
        self._door.set_capacity(Capacity({_URL: load or ServerLoad()}), now)

    # --- the sessions

    def _hear(self, progress: Progress, now: float) -> None:
        self._client.on_progress(progress)
        if not progress.finished:
            return
        session, request = self._flying.pop(progress.request_id)
        self._answered(session, request, progress.cached_tokens, now)
        session.done += 1
        if session.done < len(session.turns):
            heapq.heappush(self._tools, (now + session.turns[session.done - 1].tool_s, session.live.age))
            return
        del self._live[session.live.age]
        self._sums.finished += 1
        self._door.leave(session.live, now)

    def _answered(self, session: _Session, request: LoopRequest, cached: int, now: float) -> None:
        turn, stream = session.turn, request.stream
        first_token_s = None if stream.first_at is None else stream.first_at - stream.began_at
        usage = Usage(turn.prompt_tokens, turn.output_tokens, cached if self.case.tells_cached else None)
        self._door.end(session.live, usage, first_token_s, _URL, now)
        self._sums.turns += 1
        self._sums.output_tokens += turn.output_tokens
        self._sums.prompt_tokens += turn.prompt_tokens
        self._sums.cached_tokens += cached

    def _ask(self, session: _Session, now: float) -> None:
        call = self._door.ask(session.live, session.turn.prompt_tokens, now)
        if call.may_go:
            self._enqueue(session)

    def _settle(self, now: float) -> None:
        """Let everybody on who may: sessions that are paused, then those at the door, then requests."""
        slots = 0 if now < self._up_at else self._client.limit(now)
        if slots != self._door.slots:
            self._door.set_slots(slots, now)
        while self._let_in(now):
            pass  # as long as somebody came, the next at the door is to be asked
        while self._queue and self._client.in_flight < slots:
            self._send(self._live[heapq.heappop(self._queue)[1]], now)

    def _let_in(self, now: float) -> bool:
        """Let those go on who may, and tell whether somebody came in."""
        if not self._door.book.waiting and self._knocked < self.case.sessions:
            self._door.knock(self._knocked)
            self._knocked += 1
        came_in, calls = self._door.grant(now)
        for call in calls:
            self._enqueue(self._live[call.session.age])
        for live in came_in:
            session = _Session(live, self.case.workload.session(self.seed, live.age))
            self._live[live.age] = session
            self._started += 1
            self._ask(session, now)
        return bool(came_in)

    def _enqueue(self, session: _Session) -> None:
        self._queued += 1
        heapq.heappush(self._queue, (session.live.age if self.case.oldest_first else self._queued, session.live.age))

    def _send(self, session: _Session, now: float) -> None:
        turn, live = session.turn, session.live
        request = self._client.begin(turn.prompt_tokens, turn.output_tokens, now)
        request.stream.prompt_tokens = turn.prompt_tokens - (0 if live.cold else turn.known_tokens)
        self._flying[request.request_id] = (session, request)
        self._engine.submit(request.request_id, turn.prompt_tokens, turn.output_tokens, now, f"session {live.age}")

    # --- what is told

    def _moment(self, now: float) -> Moment:
        return Moment(
            at=now,
            started=self._started,
            finished=self._sums.finished,
            turns=self._sums.turns,
            output_tokens=self._sums.output_tokens,
            prompt_tokens=self._sums.prompt_tokens,
            cached_tokens=self._sums.cached_tokens,
            live=len(self._live),
            paused=self._door.book.paused,
            in_flight=self._client.in_flight,
            running=self._engine.running,
            context_tokens=sum(session.turn.prompt_tokens for session in self._live.values()),
            budget_tokens=self.sessions.view().budget_tokens,
        )
