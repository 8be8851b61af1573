"""The desk where requests from outside are handed to the session that they name: the door behind a gateway.

Decides which sessions are open, and ends the requests of one that closes. Knows no rollout, no slot and no HTTP.

Invariant: a session is open from :meth:`SessionDesk.admit` to :meth:`SessionDesk.dismiss`, and nothing of it is kept
after that; the number of a session is never given to another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs
import trio

from scavenge.errors import UnknownSession
from scavenge.types import Completion, Json, Messages, ModelAddress, Rejected, RequestFailed

_TAKEN = ("messages", "self")
"""Options that would be taken for the arguments of :meth:`Admitted.chat` themselves."""


class Admitted(Protocol):
    """What the desk needs of a session."""

    async def chat(self, messages: Messages, **options: object) -> Completion:
        """One request. Cancelled, it gives back its slot."""
        ...


@attrs.define(eq=False)
class _Open:
    """An open session: who it is, where it is found, and the requests under way."""

    session: Admitted
    session_id: str
    address: ModelAddress
    requests: set[trio.CancelScope] = attrs.field(factory=set)


class SessionDesk:
    """The open sessions of a run, as a :class:`scavenge.runtime.ports.ModelDoor`.

    *address* tells where a session with an id is found from outside; *new_id* makes an id that nobody can guess.
    """

    def __init__(self, address: Callable[[str], ModelAddress], new_id: Callable[[], str]) -> None:
        self._address = address
        self._new_id = new_id
        self._by_id: dict[str, _Open] = {}
        self._by_session: dict[int, _Open] = {}  # by identity; the entry keeps the session, so it is nobody else's

    def admit(self, session: Admitted) -> ModelAddress:
        """Open a session to requests from outside, and say where it is found; one that is open stays where it is."""
        known = self._by_session.get(id(session))
        if known is None:
            session_id = self._new_id()
            known = _Open(session, session_id, self._address(session_id))
            self._by_id[session_id] = self._by_session[id(session)] = known
        return known.address

    def dismiss(self, session: Admitted) -> None:
        """Close a session, if it is open: its requests under way are cancelled, and no other is let in. Never waits."""
        known = self._by_session.pop(id(session), None)
        if known is not None:
            del self._by_id[known.session_id]
            for scope in known.requests:
                scope.cancel()

    async def chat(self, session_id: str, messages: Messages, options: Json) -> Completion:
        """One request of the session with this id.

        Raises :class:`scavenge.errors.UnknownSession` when it is not open or closes meanwhile, and what the session
        raises; :class:`scavenge.RequestFailed` also for options that cannot be handed on. Cancelled, it gives back its
        slot.
        """
        known = self._by_id.get(session_id)
        if known is None:
            raise UnknownSession(_unknown(session_id))
        _check(options)
        scope = trio.CancelScope()
        known.requests.add(scope)
        try:
            with scope:
                return await known.session.chat(messages, **options)
        finally:
            known.requests.remove(scope)
        # only dismissal leads here, by the scope's own cancellation: one from outside goes through
        raise UnknownSession(_unknown(session_id))


def _unknown(session_id: str) -> str:
    return f"no session {session_id[:80]!r} is open: its rollout is over, or there never was one"


def _check(options: Json) -> None:
    """Raise :class:`RequestFailed` for options that no session's ``chat`` can be called with."""
    for name in _TAKEN:
        if name in options:
            raise RequestFailed(Rejected(f"{name!r} cannot be an option of a request: leave it out"), ())
