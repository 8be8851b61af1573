"""The session policy that never moves: one number of live sessions, none of which is ever paused."""

from __future__ import annotations

from typing import ClassVar

import attrs

from scavenge.core.sessions.book import LiveSession, SessionBook
from scavenge.core.sessions.policy import MOST_LIVE, SessionEvent, SessionsView, check_number


@attrs.frozen
class FixedSessionsSettings:
    """``[sessions]`` with ``policy = "fixed"``. ``limit`` is in sessions of the pool."""

    limit: int = attrs.field(validator=check_number(1, MOST_LIVE, whole=True))


class FixedSessions:
    """So many sessions may be live."""

    wants_load: ClassVar[bool] = False

    def __init__(self, settings: FixedSessionsSettings) -> None:
        self._limit = settings.limit

    def observe(self, event: SessionEvent, now: float) -> None:
        """Nothing that happens changes it."""

    def may_start(self, book: SessionBook, now: float) -> bool:
        """Whether fewer are live."""
        return book.live < self._limit

    def may_continue(self, session: LiveSession, book: SessionBook, now: float) -> bool:
        """Always."""
        return True

    def view(self) -> SessionsView:
        """The limit."""
        return SessionsView(limit=self._limit, reason="fixed")
