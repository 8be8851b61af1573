"""What a session policy is, and what it hears: frozen values. No decisions here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

import attrs

from scavenge.core.sessions.book import LiveSession, SessionBook
from scavenge.signals import ServerLoad
from scavenge.types import Url

START_AHEAD = 5
"""Sessions that may be under way beyond the slots, so that one that comes free finds a request (Inspect's figure)."""
MOST_LIVE = 10_000
"""Sessions that one process is built for."""


@attrs.frozen
class TurnEnded:
    """A call of a session was answered. What the server did not say is ``None``."""

    first: bool
    """Whether it is the first answer of its session."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    expected_tokens: int = 0
    """How many of the prompt's tokens a cache that forgets nothing would have had at least; 0: that cannot be said."""
    shared_tokens: int = 0
    """How many of these other sessions begin with as well."""
    distance_tokens: int = 0
    """What all sessions used since this one's last use, its own context included: a cache of that size had it."""
    first_token_s: float | None = None
    """From when it was sent to the first token."""


@attrs.frozen
class SessionEnded:
    """A live session left."""

    calls: int
    counted_tokens: int
    """What its context weighed at the end."""


@attrs.frozen
class Capacity:
    """The endpoints that there are now, and what each tells of itself."""

    loads: Mapping[Url, ServerLoad]


@attrs.frozen
class SlotsChanged:
    """The sum of the endpoints' limits is another."""

    slots: int


SessionEvent: TypeAlias = "TurnEnded | SessionEnded | Capacity | SlotsChanged"


@attrs.frozen
class SessionsView:
    """What a policy says of itself."""

    limit: int | None = None
    """How many sessions may be live; ``None``: it is not their number that is bounded."""
    budget_tokens: float | None = None
    """How many tokens their contexts may have together; ``None``: no bound."""
    reason: str = ""
    """Why it is what it is, in a word or two."""


class SessionPolicy(Protocol):
    """Decides for one pool who may start a session and who may go on. Pure; who waits is somebody else's.

    Its answers are monotone: where a session may not go on, no younger one may; and they change only with the book and
    with what is observed. It is not asked about a first call, a call beside another of the same session, and a session
    while none that is older counts.
    """

    wants_load: ClassVar[bool]
    """Whether it goes by the servers' own figures, so that they are read while sessions are live."""

    def observe(self, event: SessionEvent, now: float) -> None:
        """Hear of something that happened."""
        ...

    def may_start(self, book: SessionBook, now: float) -> bool:
        """Whether the oldest at the door may come in."""
        ...

    def may_continue(self, session: LiveSession, book: SessionBook, now: float) -> bool:
        """Whether a session may send its next call; the book has the call's prompt as its context."""
        ...

    def view(self) -> SessionsView:
        """What it allows now, for people."""
        ...


def check_number(
    low: float, high: float, *, whole: bool = False
) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    """A validator for a setting that is a number from *low* to *high*, or ``None`` where that is the default."""

    def check(settings: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value is None and field.default is None:
            return
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or (whole and not isinstance(value, int)) or not low <= value <= high:
            kind = "an integer" if whole else "a number"
            raise ValueError(f"{field.name}: expected {kind} from {low:g} to {high:g}, got {value!r}")

    return check
