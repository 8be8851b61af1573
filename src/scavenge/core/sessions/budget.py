"""The default session policy: the contexts of live sessions together are to fit into the servers' caches.

Servers keep the prefixes of idle sessions in what running requests leave free, and drop the one that was used longest
ago. Where sessions take turns that is a cliff: a quarter more contexts than fit, and nearly every call reads its whole
history again. We know every context, so we can stay below: a newcomer comes in while the sum leaves room for it, and
between two calls a session goes on while it and those older than it fit. So what is too much is paused, the youngest
first; nothing is cancelled.

The budget is ``fill`` of the capacity that the servers tell, or a start value for each endpoint where they tell none,
times a scale that is learnt from returning turns: what these found and lost shows how much the caches hold (see
:mod:`.hits`). Until that is known, the budget grows while it keeps somebody waiting and nothing is lost, though not far
beyond what was seen to be found. Capacity that was told is not exceeded, and corrected only where far less is seen.
What the servers share between sessions (a common beginning, as their first calls show) counts once. Where nothing is
kept from turn to turn, however little is used in between, no budget can help, and the slots bound the sessions.

A session counts from its second call on, and before it only in so far as sessions are known to have made one: sessions
that call the model once are never held. The number of those that have made no second call is bounded by the slots.

Source: own simulations (a batching server with an LRU prefix cache), of which the constants are; pauses between two
calls, and the cliff that they avoid, are those of CONCUR, arXiv:2601.22705.

Invariant: the scale is positive, and at most 1 where the capacity was told.
"""

from __future__ import annotations

import math
from typing import ClassVar

import attrs

from scavenge.core.sessions.book import LiveSession, SessionBook
from scavenge.core.sessions.hits import Edge, HitMeter
from scavenge.core.sessions.policy import (
    START_AHEAD,
    Capacity,
    SessionEnded,
    SessionEvent,
    SessionsView,
    SlotsChanged,
    TurnEnded,
    check_number,
)

RESERVE = 0.5
"""The part of the context that a session has in the end for which a newcomer finds room: about its mean."""
LOOK_EVERY_S, LOOK_TURNS = 10.0, 10
"""At least so far apart, and after so many returning turns, the budget is looked at."""
RAMP, CREEP = 1.15, 1.02
"""Growth while the budget keeps somebody waiting and nothing is lost: before the first loss, and after it."""
GROUND = 0.8
"""It grows only where prefixes were found at a distance of this part of it: short tools try little of the caches."""
TRUST = 0.75
"""A capacity that was told is believed unless less than this part of it is seen."""
RECENT = 0.1
"""The weight of one more session in what is known of sessions."""


@attrs.frozen
class BudgetSettings:
    """``[sessions]`` with ``policy = "budget"``. Sizes are in tokens."""

    tokens: int | None = attrs.field(default=None, validator=check_number(1, 10**12, whole=True))
    """The budget of the whole pool; ``None``: what the servers tell, else what is learnt."""
    fill: float = attrs.field(default=0.9, validator=check_number(0.01, 10))
    """The part of the servers' caches that contexts may fill."""
    start_tokens: int = attrs.field(default=60_000, validator=check_number(1, 10**12, whole=True))
    """What to begin with for each endpoint of a pool that tells no capacity."""


class Budget:
    """Bounds the sum of the contexts."""

    wants_load: ClassVar[bool] = True

    def __init__(self, settings: BudgetSettings) -> None:
        self._settings = settings
        self._slots = 0
        self._caches: int | None = None
        """How many sessions the servers can keep, where they keep one a slot."""
        self._base = float(settings.start_tokens)
        """The budget at a scale of 1."""
        self._is_told = False
        """Whether the base comes from capacity that was told."""
        self._scale = 1.0
        self._ramps = True
        """Whether no prefix was seen to be lost yet that others would have left in a larger cache."""
        self._keeps = True
        """Whether the servers keep prefixes at all."""
        self._hits = HitMeter()
        self._looked_at = -math.inf
        self._binds = False
        """Whether the budget kept somebody waiting since the hits were looked at."""
        self._ended = 0
        self._expected = 0.0
        """The context that a session is expected to count with in the end; those that make one call have none."""
        self._reason = "start"

    # --- what it hears

    def observe(self, event: SessionEvent, now: float) -> None:
        """Hear of turns, ends, capacity and slots."""
        match event:
            case TurnEnded():
                self._hits.count(event)
                if self._is_time(now):
                    self._look(now)
            case SessionEnded():
                tokens = event.counted_tokens if event.calls > 1 else 0
                self._ended += 1
                self._expected += max(RECENT, 1 / self._ended) * (tokens - self._expected)
            case Capacity():
                self._fit(event)
            case SlotsChanged():
                self._slots = event.slots

    def _fit(self, event: Capacity) -> None:
        """Take another capacity for the base; what was learnt stays on top, unless it stood for the capacity."""
        loads = event.loads.values()
        if not loads:
            return
        told = [load.kv_tokens for load in loads if load.kv_tokens]
        slots = [load.slots for load in loads if load.slots]
        self._caches = sum(slots) if len(slots) == len(loads) and not told else None
        if told and not self._is_told:
            self._is_told, self._scale, self._ramps, self._reason = True, 1.0, False, "capacity"
            self._base = 0.0
        if told:
            self._rebase(self._settings.fill * sum(told) / len(told) * len(loads))
        elif not self._is_told:
            self._rebase(float(self._settings.start_tokens) * len(loads))

    def _rebase(self, base: float) -> None:
        if self._base and base != self._base:
            self._hits.rescale(base / self._base)
        self._base = base

    def _is_time(self, now: float) -> bool:
        return self._hits.turns >= LOOK_TURNS and now >= self._looked_at + LOOK_EVERY_S

    def _look(self, now: float) -> None:
        """Bring the scale in line with where the caches are seen to end."""
        edge = self._hits.edge()
        if edge.lost < math.inf:
            self._settle_at(edge)
        elif self._is_told:
            self._scale = 1.0
        elif self._binds and edge.found >= GROUND * self._tokens:
            self._scale *= RAMP if self._ramps else CREEP
            self._reason = "hits"
        self._keeps = edge.keeps and (self._keeps or edge.found > 0)
        self._looked_at, self._binds, self._hits.turns = now, False, 0

    def _settle_at(self, edge: Edge) -> None:
        seen = self._settings.fill * edge.tokens / self._base
        if edge.found:
            self._ramps = False
        else:
            seen = min(seen, self._scale)
        self._scale = 1.0 if self._is_told and seen >= TRUST else seen
        self._reason = "misses"

    # --- what it says

    def may_start(self, book: SessionBook, now: float) -> bool:
        """Whether there is room for a newcomer beside those that count, and beside those that are new themselves."""
        if book.fresh >= self._slots + START_AHEAD:
            return False
        if not book.live:
            return True
        if self._holds_none:
            return book.live < self._slots + START_AHEAD
        if self._caches is not None and self._expected and book.counted + book.fresh >= self._caches:
            return self._refuse()
        room = book.counted_tokens + RESERVE * self._expected * (book.fresh + 1)
        return room <= self._tokens or self._refuse()

    def may_continue(self, session: LiveSession, book: SessionBook, now: float) -> bool:
        """Whether a session fits beside those older than it."""
        if self._holds_none:
            return True
        count, tokens = book.older(session)
        if self._caches is not None and count >= self._caches:
            return self._refuse()
        return tokens + session.counted_tokens <= self._tokens or self._refuse()

    def _refuse(self) -> bool:
        self._binds = True
        return False

    def view(self) -> SessionsView:
        """The budget, or the number of sessions where a budget cannot help."""
        if self._holds_none:
            return SessionsView(limit=self._slots + START_AHEAD, reason="nothing is kept")
        reason = self._reason if self._settings.tokens is None else "set"
        return SessionsView(budget_tokens=self._tokens, reason=reason)

    @property
    def _holds_none(self) -> bool:
        return not self._keeps and self._settings.tokens is None

    @property
    def _tokens(self) -> float:
        return self._base * self._scale if self._settings.tokens is None else float(self._settings.tokens)
