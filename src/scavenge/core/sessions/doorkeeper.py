"""Lets sessions in and on: applies a policy to the book, the oldest first. Decides nothing by itself but what is the
same under every policy, and knows no task.

The same under every policy: nobody comes in while there are no slots; a session's first call, and a call beside another
of the same session, are never held, and neither is a session while none that is older counts. So sessions always end,
however small a budget is: the oldest goes on, and one that has done nothing for :data:`COLD_AFTER_S` holds nobody.

Invariant: after :meth:`Doorkeeper.grant` nobody waits who may go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import attrs

from scavenge.core.sessions.book import Call, LiveSession, SessionBook, Stage
from scavenge.core.sessions.policy import (
    MOST_LIVE,
    Capacity,
    SessionEnded,
    SessionPolicy,
    SlotsChanged,
    TurnEnded,
)
from scavenge.errors import UsageError
from scavenge.types import Url, Usage

COLD_AFTER_S = 60.0
"""Idle for so long, a session is cold: in a full cache, others have taken its place long before.

Tokens of other sessions would be the better clock, were it not that a cache that thrashes reads the most of them: all
would be cold then, nobody would count, and more would come in."""

LEFT = "this session has given its place back: open another one"
"""What is said of a session that is used after its end."""


@attrs.define(eq=False)
class Doorkeeper:
    """The sessions of one pool under one policy."""

    policy: SessionPolicy
    book: SessionBook = attrs.field(factory=SessionBook)
    slots: int = 0
    _urls: frozenset[Url] = attrs.field(default=frozenset(), init=False)
    """The endpoints that there were when they were told last."""

    # --- coming and going

    def knock(self, age: int) -> LiveSession:
        """A session comes to the door."""
        return self.book.knock(age)

    def withdraw(self, session: LiveSession) -> None:
        """A session that waits at the door goes away."""
        self.book.withdraw(session)

    def leave(self, session: LiveSession, now: float) -> list[Call]:
        """A live session gives its place back; its paused calls, which are withdrawn, are returned.

        Raises :class:`UsageError` when it gave it back before.
        """
        self._check_live(session)
        withdrawn = self.book.leave(session)
        self.policy.observe(SessionEnded(session.calls, session.own_tokens), now)
        return withdrawn

    def restart(self, session: LiveSession) -> None:
        """A live session begins another conversation, in its place.

        Raises :class:`UsageError` when the session has left.
        """
        self._check_live(session)
        self.book.restart(session)

    # --- calls

    def ask(self, session: LiveSession, prompt_tokens: float, now: float) -> Call:
        """A live session asks for a call with a prompt of about so many tokens, which may go at once or is paused.

        Raises :class:`UsageError` when the session has left.
        """
        self._check_live(session)
        call = self.book.ask(session, prompt_tokens)
        if session.is_fresh or session.working or (not session.paused and self._may_continue(session, now)):
            self.book.begin(call)
        else:
            self.book.pause(call)
        return call

    def drop(self, call: Call, now: float) -> None:
        """A paused call is given up."""
        self.book.drop(call, now)

    def end(
        self, session: LiveSession, usage: Usage | None, first_token_s: float | None, url: Url | None, now: float
    ) -> None:
        """A call that went out is over; *usage* is ``None`` where there was no answer, *url* is who answered."""
        if usage is not None and session.stage is Stage.LIVE:
            self._learn(session, usage, first_token_s, url, now)
        self.book.end(session, now)

    def _learn(
        self, session: LiveSession, usage: Usage, first_token_s: float | None, url: Url | None, now: float
    ) -> None:
        moved, session.home = session.home not in (None, url), url
        if usage.prompt_tokens is None:
            return
        alone = session.working == 1 and not moved
        turn = TurnEnded(
            first=not session.answers,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens or 0,
            cached_tokens=usage.cached_tokens,
            expected_tokens=min(session.expected_tokens, usage.prompt_tokens) if alone else 0,
            first_token_s=first_token_s,
            shared_tokens=session.shared_tokens,
            distance_tokens=session.distance_tokens,
        )
        self.book.answered(session, turn.prompt_tokens, turn.completion_tokens, turn.cached_tokens)
        self.policy.observe(turn, now)

    # --- what there is to work with

    def set_slots(self, slots: int, now: float) -> None:
        """Hear how many requests the pool may have in flight."""
        self.slots = slots
        self.policy.observe(SlotsChanged(slots), now)

    def set_capacity(self, capacity: Capacity, now: float) -> None:
        """Hear which endpoints there are; sessions whose endpoint is gone are cold."""
        old, self._urls = self._urls, frozenset(capacity.loads)
        if gone := old - self._urls:
            self.book.lose_at(gone)
        self.policy.observe(capacity, now)

    # --- granting

    def grant(self, now: float) -> tuple[list[LiveSession], list[Call]]:
        """Let everybody in and on who may: the sessions that came in, and the calls that may go."""
        self.book.cool_idle(now, COLD_AFTER_S)
        calls = list(self._resume(now))
        return list(self._admit(now)), calls

    def _resume(self, now: float) -> Iterable[Call]:
        while (session := self.book.first_paused) is not None and self._may_continue(session, now):
            yield from self.book.resume(session)

    def _may_continue(self, session: LiveSession, now: float) -> bool:
        return not self.book.older(session)[0] or self.policy.may_continue(session, self.book, now)

    def _admit(self, now: float) -> Iterable[LiveSession]:
        while self._may_admit(now) and (session := self.book.first_at_door) is not None:
            self.book.admit(session)
            yield session

    def _may_admit(self, now: float) -> bool:
        if not self.book.waiting or not self.slots or self.book.live >= MOST_LIVE:
            return False
        return self.policy.may_start(self.book, now)

    def next_wake_at(self) -> float | None:
        """When :meth:`grant` may let somebody go with nothing having happened; ``None``: never."""
        if not self.book.waiting and not self.book.paused:
            return None
        cold_at = self.book.idle_since() + COLD_AFTER_S
        return None if cold_at == math.inf else cold_at

    def _check_live(self, session: LiveSession) -> None:
        if session.stage is not Stage.LIVE:
            raise UsageError(LEFT)
