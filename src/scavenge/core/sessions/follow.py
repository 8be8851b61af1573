"""The session policy that follows the gates: a few more sessions than requests may be in flight.

Source: Inspect AI starts samples at the limit of the model's connections and 5 more. It knows no contexts: where these
grow, the gates' limit says nothing about how many of them a cache can hold.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from scavenge.core.sessions.book import LiveSession, SessionBook
from scavenge.core.sessions.policy import (
    MOST_LIVE,
    START_AHEAD,
    SessionEvent,
    SessionsView,
    SlotsChanged,
    check_number,
)


@attrs.frozen
class FollowSettings:
    """``[sessions]`` with ``policy = "follow"``. ``ahead`` is how many sessions there may be beyond the slots."""

    ahead: int = attrs.field(default=START_AHEAD, validator=check_number(0, MOST_LIVE, whole=True))


class Follow:
    """As many live sessions as slots, and some ahead; those under way keep their place when the slots become fewer."""

    wants_load: ClassVar[bool] = False

    def __init__(self, settings: FollowSettings) -> None:
        self._ahead = settings.ahead
        self._slots = 0

    def observe(self, event: SessionEvent, now: float) -> None:
        """Only the slots matter."""
        if isinstance(event, SlotsChanged):
            self._slots = event.slots

    def may_start(self, book: SessionBook, now: float) -> bool:
        """Whether fewer are live."""
        return book.live < self._limit

    def may_continue(self, session: LiveSession, book: SessionBook, now: float) -> bool:
        """Always."""
        return True

    def view(self) -> SessionsView:
        """The limit."""
        return SessionsView(limit=self._limit, reason="follows the gates")

    @property
    def _limit(self) -> int:
        return self._slots + self._ahead if self._slots else 0
