"""The session policy that holds nobody: as many sessions as one process is built for."""

from __future__ import annotations

from typing import ClassVar

import attrs

from scavenge.core.sessions.book import LiveSession, SessionBook
from scavenge.core.sessions.policy import MOST_LIVE, SessionEvent, SessionsView


@attrs.frozen
class OffSettings:
    """``[sessions]`` with ``policy = "off"``: no keys."""


class Off:
    """Every session may start and go on."""

    wants_load: ClassVar[bool] = False

    def __init__(self, settings: OffSettings) -> None:
        del settings

    def observe(self, event: SessionEvent, now: float) -> None:
        """Nothing that happens changes it."""

    def may_start(self, book: SessionBook, now: float) -> bool:
        """Always."""
        return True

    def may_continue(self, session: LiveSession, book: SessionBook, now: float) -> bool:
        """Always."""
        return True

    def view(self) -> SessionsView:
        """What one process is built for."""
        return SessionsView(limit=MOST_LIVE, reason="off")
