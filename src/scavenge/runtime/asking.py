"""Turns askers away where nothing will ever serve them, instead of letting them wait for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio

from scavenge.types import Misrouted, RequestFailed

T = TypeVar("T")


@attrs.define(eq=False)
class Asking:
    """Everybody who asks a pool that is not elastic. ``hopeless`` tells whether to turn them away, ``why`` says why."""

    elastic: bool
    hopeless: Callable[[], bool]
    why: Callable[[], str]
    _scopes: set[trio.CancelScope] = attrs.field(factory=set)

    async def wait(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Wait for what *ask* waits for.

        Raises :class:`RequestFailed` when it will never be there. Cancelled, it leaves the queue.
        """
        if self.elastic:
            return await ask()
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                self.look()
                return await ask()
            finally:
                self._scopes.discard(scope)
        raise RequestFailed(Misrouted(self.why()), ())

    def look(self) -> None:
        """Turn away everybody who waits, if it is hopeless."""
        if self._scopes and self.hopeless():
            for scope in self._scopes:
                scope.cancel()
