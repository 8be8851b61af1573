"""The desk where calls from outside are handed to the session that they name: the door behind a run's gateway.

Decides which sessions are open, and ends the calls of one that closes. Knows no rollout, no slot and no HTTP.

Invariant: a session is open from :meth:`SessionDesk.admit` to :meth:`SessionDesk.dismiss`, and nothing of it is kept
after that; the number of a session is never given to another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import attrs
import trio

from scavenge.calls import Call, ModelCard, Relayed
from scavenge.errors import UnknownSession
from scavenge.runtime.ports import ReplySink
from scavenge.types import ModelAddress


class Admitted(Protocol):
    """What the desk needs of a session."""

    @property
    def card(self) -> ModelCard:
        """The name of its model."""
        ...

    async def relay(self, call: Call, sink: ReplySink | None) -> Relayed:
        """Have a call answered. Cancelled, it gives back its slot."""
        ...


@attrs.define(eq=False)
class CallsUnderWay:
    """The calls of a session that can be ended together."""

    _scopes: set[trio.CancelScope] = attrs.field(factory=set, init=False)

    def __len__(self) -> int:
        return len(self._scopes)

    async def answered(self, session_id: str, answer: Awaitable[Relayed]) -> Relayed:
        """What *answer* comes to.

        Raises :class:`UnknownSession` when the session ends first. Cancelled from outside, so is *answer*.
        """
        scope = trio.CancelScope()
        self._scopes.add(scope)
        try:
            with scope:
                return await answer
        finally:
            self._scopes.remove(scope)
        # only the end of the session leads here, by the scope's own cancellation: one from outside goes through
        raise unknown(session_id)

    def end(self) -> None:
        """Cancel all of them. Never waits."""
        for scope in self._scopes:
            scope.cancel()


@attrs.define(eq=False)
class _Open:
    """An open session: who it is, where it is found, and its calls."""

    session: Admitted
    session_id: str
    address: ModelAddress
    calls: CallsUnderWay = attrs.field(factory=CallsUnderWay)


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
        """Open a session to calls from outside, and say where it is found; one that is open stays where it is."""
        known = self._by_session.get(id(session))
        if known is None:
            session_id = self._new_id()
            known = _Open(session, session_id, self._address(session_id))
            self._by_id[session_id] = self._by_session[id(session)] = known
        return known.address

    def dismiss(self, session: Admitted) -> None:
        """Close a session, if it is open: its calls under way are cancelled, and no other is let in. Never waits."""
        known = self._by_session.pop(id(session), None)
        if known is not None:
            del self._by_id[known.session_id]
            known.calls.end()

    async def answer(self, call: Call, sink: ReplySink | None) -> Relayed:
        """Have a call answered by the session that it names; the model that it names does not matter.

        Raises :class:`scavenge.errors.UnknownSession` when that is not open or closes meanwhile, and what the session
        raises. Cancelled, it gives back its slot.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        known = self._by_id.get(call.session_id or "")
        if known is None:
            raise unknown(call.session_id or "")
        return await known.calls.answered(known.session_id, known.session.relay(call, sink))

    def models(self) -> Sequence[ModelCard]:
        """The models of the open sessions."""
        return tuple(dict.fromkeys(known.session.card for known in self._by_id.values()))

    def end_session(self, session_id: str) -> bool:
        """Sessions here end with their rollouts: there is none that a client could end."""
        return False


def unknown(session_id: str) -> UnknownSession:
    """What is told of a session that is not open."""
    return UnknownSession(f"no session {session_id[:80]!r} is open: its rollout is over, or there never was one")
