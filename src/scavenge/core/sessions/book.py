"""The sessions of a pool in the order of their age, and what their contexts come to. Decides nothing, knows no policy.

A session that knocks is at the door; admitted, it is live until it leaves. Between two calls it is idle (its tools run)
or paused (it asked for its next call and waits). Its context counts from its second call on. It stops counting while it
is cold, when nothing of it is taken to be in a server's cache any more, and counts again with its next call.

Invariants: a session is at the door, live or gone; only live sessions are paused or idle, and none is both; the sums
have exactly the live sessions, each with its ``counted_tokens``.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_left, insort
from collections.abc import Collection

import attrs

from scavenge.core.sessions.recency import Recency
from scavenge.core.sessions.sums import Key, PrefixSums
from scavenge.types import Url


class Stage(enum.Enum):
    """Where a session stands."""

    DOOR = "door"
    LIVE = "live"
    GONE = "gone"


@attrs.define(eq=False)
class Call:
    """A call that a session asked for."""

    session: LiveSession = attrs.field(repr=False)
    may_go: bool = False
    """Whether it may be sent; while false, it is paused."""


@attrs.define(eq=False)
class LiveSession:
    """One session and its place in the order. The book changes it; others only read."""

    age: int
    """The lower, the older, the earlier served."""
    number: int
    """Which one to knock it was, for sessions of the same age."""
    stage: Stage = Stage.DOOR
    calls: int = 0
    """How many calls it has asked for."""
    working: int = 0
    """How many are under way."""
    context_tokens: int = 0
    """Its last prompt and reply, or the prompt that is to be sent next."""
    prompt_tokens: int = 0
    """Its last prompt as the server counted it; what comes after it, a client may leave out the next time."""
    shared_tokens: int = 0
    """How much of it a server had before its first reply, and so has once for many sessions."""
    counted_tokens: int = 0
    """What it weighs in the sums."""
    expected_tokens: int = 0
    """How much of the prompt under way should be in its server's cache; 0 where that is not clear."""
    answers: int = 0
    cold: bool = True
    """Whether nothing of it is taken to be in a cache, so that it counts only once it goes on."""
    distance_tokens: int = 0
    """What was used since its last use, its own context included, when the call under way went out."""
    home: Url | None = None
    """The endpoint that answered last."""
    prompt_estimate: float = 0.0
    """Our estimate of its last prompt."""
    unseen_tokens: float = 0.0
    """By how much the server counted more than that: pictures, templates, another language."""
    paused: list[Call] = attrs.field(factory=list, repr=False)

    @property
    def key(self) -> Key:
        """Its place in the order."""
        return (self.age, self.number)

    @property
    def own_tokens(self) -> int:
        """What of its context is its own."""
        return max(1, self.context_tokens - self.shared_tokens)

    @property
    def is_fresh(self) -> bool:
        """Whether it has asked for no second call yet, with which it shows that its context is needed again."""
        return self.calls < 2


@attrs.define(eq=False)
class SessionBook:
    """All sessions of a pool."""

    fresh: int = 0
    """Live sessions that have asked for no second call yet."""
    knocked: int = 0
    """How many sessions ever came to the door."""
    _live: dict[Key, LiveSession] = attrs.field(factory=dict, init=False)
    _sums: PrefixSums = attrs.field(factory=PrefixSums, init=False)
    _recency: Recency = attrs.field(factory=Recency, init=False)
    _door: list[LiveSession] = attrs.field(factory=list, init=False)
    _paused: list[LiveSession] = attrs.field(factory=list, init=False)
    _idle: dict[LiveSession, float] = attrs.field(factory=dict, init=False)
    """Since when those are idle that are not cold, in the order in which they fell idle."""

    @property
    def live(self) -> int:
        """How many sessions have their place."""
        return len(self._live)

    @property
    def waiting(self) -> int:
        """How many wait at the door."""
        return len(self._door)

    @property
    def paused(self) -> int:
        """How many sessions wait between two calls."""
        return len(self._paused)

    @property
    def counted(self) -> int:
        """How many sessions have a context that counts."""
        return self._sums.count

    @property
    def counted_tokens(self) -> int:
        """All contexts that count."""
        return self._sums.weight

    @property
    def first_at_door(self) -> LiveSession | None:
        """The oldest of those at the door."""
        return self._door[0] if self._door else None

    @property
    def first_paused(self) -> LiveSession | None:
        """The oldest of those that are paused."""
        return self._paused[0] if self._paused else None

    def older(self, session: LiveSession) -> tuple[int, int]:
        """How many sessions older than a live one have contexts that count, and how many tokens these have."""
        return self._sums.before(session.key)

    # --- places

    def knock(self, age: int) -> LiveSession:
        """A session comes to the door."""
        self.knocked += 1
        session = LiveSession(age, self.knocked)
        insort(self._door, session, key=_key)
        return session

    def withdraw(self, session: LiveSession) -> None:
        """A session goes away from the door."""
        session.stage = Stage.GONE
        _take_out(self._door, session)

    def admit(self, session: LiveSession) -> None:
        """A session comes in from the door."""
        _take_out(self._door, session)
        session.stage = Stage.LIVE
        self._live[session.key] = session
        self._sums.add(session.key)
        self.fresh += 1

    def leave(self, session: LiveSession) -> list[Call]:
        """A live session ends; its paused calls, which are withdrawn, are returned."""
        session.stage = Stage.GONE
        self._idle.pop(session, None)
        withdrawn, session.paused = session.paused, []
        if withdrawn:
            _take_out(self._paused, session)
        self._sums.remove(session.key)
        del self._live[session.key]
        self.fresh -= session.is_fresh
        if not session.working:
            self._recency.leave(session.number)
        return withdrawn

    # --- calls

    def ask(self, session: LiveSession, prompt_estimate: float) -> Call:
        """A live session asks for a call; it is neither paused nor under way yet."""
        self._idle.pop(session, None)
        was_fresh = session.is_fresh
        session.calls += 1
        self.fresh -= was_fresh and not session.is_fresh
        session.prompt_estimate = max(0.0, prompt_estimate)
        session.expected_tokens = 0 if session.working else session.prompt_tokens
        self._set_context(session, session.prompt_estimate + session.unseen_tokens)
        return Call(session)

    def pause(self, call: Call) -> None:
        """A call has to wait."""
        session = call.session
        session.paused.append(call)
        if len(session.paused) == 1:
            insort(self._paused, session, key=_key)

    def drop(self, call: Call, now: float) -> None:
        """A paused call is given up."""
        session = call.session
        session.paused.remove(call)
        if not session.paused:
            _take_out(self._paused, session)
            self._idle[session] = now

    def begin(self, call: Call) -> None:
        """A call that is not paused goes out."""
        session = call.session
        call.may_go = True
        session.working += 1
        session.distance_tokens = self._recency.begin(session.number, session.own_tokens)

    def resume(self, session: LiveSession) -> list[Call]:
        """A paused session goes on: its paused calls go out, and are returned."""
        _take_out(self._paused, session)
        calls, session.paused = session.paused, []
        for call in calls:
            self.begin(call)
        return calls

    def end(self, session: LiveSession, now: float) -> None:
        """A call of a session is over, which may have left."""
        session.working -= 1
        if session.working:
            return
        self._recency.end(session.number, session.own_tokens)
        if session.stage is Stage.LIVE:
            self._idle[session] = now
        else:
            self._recency.leave(session.number)

    def answered(self, session: LiveSession, prompt_tokens: int, reply_tokens: int, cached_tokens: int | None) -> None:
        """A call of a live session was answered: what the server counted takes the place of what was estimated."""
        if prompt_tokens:
            session.unseen_tokens = prompt_tokens - session.prompt_estimate
        if not session.answers:
            session.shared_tokens = cached_tokens or 0
        session.answers += 1
        session.prompt_tokens = prompt_tokens
        session.cold = False
        self._set_context(session, prompt_tokens + reply_tokens)

    # --- what is not in any cache

    def lose_at(self, urls: Collection[Url]) -> None:
        """What sessions had in the caches of these endpoints is gone."""
        for session in self._live.values():
            if session.home in urls:
                self._lose(session)

    def _lose(self, session: LiveSession) -> None:
        session.prompt_tokens = session.expected_tokens = 0
        self._recency.forget(session.number)
        self.cool(session)

    def restart(self, session: LiveSession) -> None:
        """A live session begins another conversation; nothing of the old one is used again."""
        self._lose(session)
        self.fresh += not session.is_fresh
        session.calls = session.answers = session.context_tokens = session.shared_tokens = 0
        self._weigh(session, 0)

    def cool(self, session: LiveSession) -> None:
        """Take a session to have nothing in a cache; one that is at work or paused counts all the same."""
        session.cold = True
        if self._idle.pop(session, None) is not None:
            self._weigh(session, 0)

    def cool_idle(self, now: float, after_s: float) -> None:
        """Cool the sessions that have been idle for *after_s* seconds."""
        while self._idle and self.idle_since() + after_s <= now:
            self.cool(next(iter(self._idle)))

    def idle_since(self) -> float:
        """Since when the first of those is idle that are not cold; infinity: there is none."""
        return next(iter(self._idle.values()), math.inf)

    def _set_context(self, session: LiveSession, tokens: float) -> None:
        session.context_tokens = max(0, round(tokens))
        if not session.is_fresh:
            self._weigh(session, session.own_tokens)

    def _weigh(self, session: LiveSession, tokens: int) -> None:
        session.counted_tokens = tokens
        self._sums.set_weight(session.key, tokens)


def _key(session: LiveSession) -> Key:
    return session.key


def _take_out(queue: list[LiveSession], session: LiveSession) -> None:
    del queue[bisect_left(queue, session.key, key=_key)]
