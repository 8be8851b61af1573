"""What one client sends, taken in as it comes, and by that the moment in which it hangs up.

A task of its own reads all the time, so that no request needs one: a client that hangs up while its answer is made is
noticed at once. It stops reading while a lot has come that nobody wants yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from scavenge.edge.gateway.peer import Peer
from scavenge.edge.gateway.wire import Wire


class Inbox:
    """Reads from a client into a wire, while :meth:`run_inbox` runs."""

    def __init__(self, peer: Peer, wire: Wire, ahead_bytes: int) -> None:
        self._peer = peer
        self._wire = wire
        self._ahead_bytes = ahead_bytes
        self._came: trio.Event | None = None  # somebody waits for it
        self._room: trio.Event | None = None  # the reading waits for it
        self._parting = False
        self._watched: trio.CancelScope | None = None

    async def run_inbox(self) -> None:
        """Read until the client is gone."""
        while data := await self._peer.receive():
            if self._parting:
                continue
            self._wire.receive(data)
            if self._came is not None:
                self._came.set()
            elif self._wire.held_bytes >= self._ahead_bytes:
                self._room = trio.Event()
                await self._room.wait()
        if self._watched is not None:
            self._watched.cancel()
        if self._came is not None:
            self._came.set()

    async def wait_more(self) -> bool:
        """Wait until something has come; false when the client is gone."""
        if self._peer.gone:
            await trio.lowlevel.checkpoint()
            return False
        self._read_on()
        self._came = trio.Event()
        try:
            await self._came.wait()
        finally:
            self._came = None
        return not self._peer.gone

    async def wait_gone(self) -> None:
        """Throw away what still comes, until the client is gone."""
        self._parting = True
        while await self.wait_more():
            pass

    @contextmanager
    def watching(self) -> Iterator[trio.CancelScope]:
        """Cancel what the block does when the client hangs up, unless it has sent so much ahead that nobody reads."""
        if self._wire.held_bytes < self._ahead_bytes:
            self._read_on()
        with trio.CancelScope() as scope:
            self._watched = scope
            if self._peer.gone:
                scope.cancel()
            try:
                yield scope
            finally:
                self._watched = None

    def _read_on(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None
