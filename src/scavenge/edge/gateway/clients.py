"""Who is connected to a gateway, who waits and who is answered: what is closed for want of room, or when it stops.

A connection waits from its beginning, and from the end of an answer, until the whole of a request has come, or so much
that it is refused. Clients that never send one would hold descriptors for nothing, so those that have waited the
longest go first.

Invariant: ``_waiting`` and ``_answering`` have no connection in common; the first is in the order in which they came.
"""

from __future__ import annotations

from typing import Protocol

import attrs
import trio

SHED_AT_ONCE = 16


class Connected(Protocol):
    """A client's connection."""

    @property
    def is_between_requests(self) -> bool:
        """Whether it has had an answer, and nothing of another request has come."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of a request has come."""
        ...

    def drop(self) -> None:
        """Close it at once. Never waits."""
        ...


@attrs.define(eq=False)
class Clients:
    """The connections of a gateway."""

    max_waiting: int
    shed_after_s: float
    late_s: float
    held_bytes: int = 0
    """Of the bodies that are being read or answered."""
    stopping: bool = False
    _all: set[Connected] = attrs.field(factory=set, init=False)
    _waiting: dict[Connected, float] = attrs.field(factory=dict, init=False)
    """Since when they wait."""
    _answering: set[Connected] = attrs.field(factory=set, init=False)
    _left: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set and replaced when a client waits or is answered no more."""

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._all)

    @property
    def answering(self) -> int:
        """How many requests are being answered."""
        return len(self._answering)

    def enter(self, client: Connected) -> None:
        """A client has connected."""
        self._all.add(client)
        self._waiting[client] = trio.current_time()
        if self.stopping:
            self._drop_quiet()
        elif len(self._waiting) > self.max_waiting:
            self._drop(next(iter(self._waiting)))

    def asks(self, client: Connected) -> None:
        """The whole of a request has come, or one that is refused."""
        self._waiting.pop(client, None)
        self._answering.add(client)

    def answered(self, client: Connected, *, last: bool) -> None:
        """It has its answer; *last*: it may not ask again."""
        self._answering.discard(client)
        if not last:
            self._waiting[client] = trio.current_time()
        self._tell_left()

    def leave(self, client: Connected) -> None:
        """Its connection is closed."""
        self._all.discard(client)
        self._waiting.pop(client, None)
        self._answering.discard(client)
        self._tell_left()

    def shed(self) -> bool:
        """Close those that have waited the longest; false when there was none that could be closed."""
        before = trio.current_time() - self.shed_after_s
        found = [client for client, since in self._waiting.items() if client.is_between_requests or since <= before]
        for client in found[:SHED_AT_ONCE]:
            self._drop(client)
        return bool(found)

    def stop(self) -> None:
        """Close those of which nothing has come; the others get their answer, or are told that it is too late."""
        self.stopping = True
        self._drop_quiet()

    async def wait_answered(self) -> None:
        """Wait until nobody is answered; once it stops, a moment for requests that are still coming in, too."""
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(self.late_s):
            while self.stopping and self._waiting:
                await self._left.wait()
        while self._answering:
            await self._left.wait()

    def _drop_quiet(self) -> None:
        for client in list(self._waiting):
            if client.is_quiet:
                self._drop(client)

    def _drop(self, client: Connected) -> None:
        del self._waiting[client]
        client.drop()
        self._tell_left()

    def _tell_left(self) -> None:
        self._left.set()
        self._left = trio.Event()
