"""The session policy of CONCUR: a window of active sessions by AIMD on the servers' own figures.

Source: "CONCUR", arXiv:2601.22705 (ICML 2026). Known from there: whole sessions are admitted, paused and resumed, and
paused only between two calls; the window grows by addition while the key-value cache is underused, shrinks by a factor
when its usage is high *and* the prefix hit rate falls, and stays in between; a usage below 0.2 counts as underused, one
above 0.5 as high (0.8 instead is said to cost a factor of 4 to 5 in latency). **Not known** from there: the two step
sizes, the hit rate that counts as low, and the interval; ``step`` 2, ``cut`` 0.5, ``low_hits`` 0.7 and 10 s are
guesses, with which it was simulated. Servers' gauges count only what running requests use, so the usage at which idle
sessions lose their prefixes depends on how long tools run: the thresholds fit one workload.

Where the servers tell no usage the window stays where it starts; without counters of the prefix cache, the hit rate is
that of the replies' ``cached_tokens``, and without these the usage alone moves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from scavenge.core.sessions.book import LiveSession, SessionBook
from scavenge.core.sessions.policy import (
    MOST_LIVE,
    Capacity,
    SessionEvent,
    SessionsView,
    TurnEnded,
    check_number,
)
from scavenge.signals import ServerLoad
from scavenge.types import Url


@attrs.frozen
class ConcurSettings:
    """``[sessions]`` with ``policy = "concur"``. Usage and hits are parts of 1."""

    low_usage: float = attrs.field(default=0.2, validator=check_number(0, 1))
    high_usage: float = attrs.field(default=0.5, validator=check_number(0, 1))
    low_hits: float = attrs.field(default=0.7, validator=check_number(0, 1))
    step: float = attrs.field(default=2.0, validator=check_number(0.01, MOST_LIVE))
    cut: float = attrs.field(default=0.5, validator=check_number(0.01, 0.99))
    start: int = attrs.field(default=4, validator=check_number(1, MOST_LIVE, whole=True))
    interval: float = attrs.field(default=10.0, validator=check_number(0.1, 3600))
    """Seconds from one move to the next, at least."""

    def __attrs_post_init__(self) -> None:
        if self.low_usage > self.high_usage:
            raise ValueError(f"low_usage: must not be above high_usage ({self.high_usage:g}), got {self.low_usage:g}")


@attrs.define
class _Hits:
    """Prompt tokens that were looked up, and those that were found, since the window moved last."""

    queries: float = 0.0
    hits: float = 0.0

    def rate(self) -> float | None:
        return self.hits / self.queries if self.queries else None


class Concur:
    """A window of sessions; beyond it, sessions are paused between two calls, the youngest first."""

    wants_load: ClassVar[bool] = True

    def __init__(self, settings: ConcurSettings) -> None:
        self._settings = settings
        self._window = float(settings.start)
        self._reason = "start"
        self._binds = False
        """Whether the window kept somebody waiting since it moved last; one that does not has no reason to grow."""
        self._move_at = float("-inf")
        self._loads: Mapping[Url, ServerLoad] = {}
        self._served = _Hits()
        self._replied = _Hits()

    def observe(self, event: SessionEvent, now: float) -> None:
        """Hear of the servers' figures, and of replies."""
        if isinstance(event, TurnEnded) and event.cached_tokens is not None and event.expected_tokens:
            self._replied.queries += event.prompt_tokens
            self._replied.hits += event.cached_tokens
        elif isinstance(event, Capacity):
            self._count(event.loads)
            self._loads = event.loads
            if now >= self._move_at:
                self._move(now)

    def may_start(self, book: SessionBook, now: float) -> bool:
        """Whether fewer than the window are live."""
        return book.live < int(self._window) or self._refuse()

    def may_continue(self, session: LiveSession, book: SessionBook, now: float) -> bool:
        """Whether the session is among the oldest that fill the window."""
        return book.older(session)[0] < int(self._window) or self._refuse()

    def view(self) -> SessionsView:
        """The window."""
        return SessionsView(limit=int(self._window), reason=self._reason)

    def _refuse(self) -> bool:
        self._binds = True
        return False

    def _count(self, loads: Mapping[Url, ServerLoad]) -> None:
        """Add what the counters of the prefix caches have gone on by; one that went back belongs to a new process."""
        for url, load in loads.items():
            old = self._loads.get(url, ServerLoad())
            if None in (load.prefix_queries, load.prefix_hits, old.prefix_queries, old.prefix_hits):
                continue
            queries = (load.prefix_queries or 0.0) - (old.prefix_queries or 0.0)
            hits = (load.prefix_hits or 0.0) - (old.prefix_hits or 0.0)
            if queries >= 0 <= hits:
                self._served.queries += queries
                self._served.hits += hits

    def _move(self, now: float) -> None:
        usages = [load.kv_usage for load in self._loads.values() if load.kv_usage is not None]
        if not usages:
            return
        usage, settings = sum(usages) / len(usages), self._settings
        rate = self._served.rate()
        hits = self._replied.rate() if rate is None else rate
        if usage < settings.low_usage:
            if self._binds:
                self._window, self._reason = min(self._window + settings.step, float(MOST_LIVE)), "underused"
        elif usage > settings.high_usage and (hits is None or hits < settings.low_hits):
            self._window, self._reason = max(1.0, self._window * settings.cut), "few hits"
        self._served, self._replied, self._binds = _Hits(), _Hits(), False
        self._move_at = now + settings.interval
