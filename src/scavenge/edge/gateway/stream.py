"""An answer that is a stream of events: they go to the client as they come, and its slowness back to whoever has them.

The head goes out with the first event, or with the first comment where the reply is long in coming; until then an
error has a status of its own. After that an error is one event, and the connection breaks off without an end of the
stream. A proper end says that the reply is whole, and comes with ``[DONE]`` only.

Invariant: what goes out is whole chunks, but for the last one before the connection is broken off.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from scavenge.edge.gateway.chunks import WAITING
from scavenge.edge.gateway.framing import LAST_CHUNK, chunk
from scavenge.edge.gateway.peer import Peer


class EventStream:
    """The stream to one client, as a :class:`scavenge.runtime.ports.ReplySink`.

    *scope* is cancelled once the client is gone; *head* makes the bytes before the first event. To a client of HTTP/1.0
    nothing is *chunked*.
    """

    __slots__ = ("_chunked", "_head", "_owed", "_peer", "_scope", "_sending", "_spoke_at", "begun", "opened")

    def __init__(self, peer: Peer, scope: trio.CancelScope, head: Callable[[], bytes], *, chunked: bool) -> None:
        self._peer = peer
        self._scope = scope
        self._head = head
        self._chunked = chunked
        self._owed = b""  # of a comment of which the client has taken a part
        self._sending = False
        self._spoke_at = trio.current_time()
        self.begun = False
        """Whether anything of the reply has gone to the client."""
        self.opened = False
        """Whether the head has gone, or is owed."""

    async def take(self, events: bytes) -> None:
        """Send whole events. Waits for as long as the client takes nothing."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if events:  # an empty chunk would be the end
            self.begun = True
            await self._send(self._framed(events))

    async def end(self, events: bytes) -> None:
        """Send the last events, and the proper end."""
        await trio.lowlevel.checkpoint_if_cancelled()
        await self._send(self._framed(events) + (LAST_CHUNK if self._chunked else b""))

    async def fail(self, events: bytes) -> None:
        """Send the event of an error after the beginning. The connection is to be broken off."""
        await trio.lowlevel.checkpoint_if_cancelled()
        await self._send(self._framed(events))

    async def run_comments(self, every_s: float) -> None:
        """Show the client that the connection lives, after *every_s* of silence each time."""
        while True:
            await trio.sleep_until(self._spoke_at + every_s)
            if trio.current_time() >= self._spoke_at + every_s:
                self._comment()

    def _comment(self) -> None:
        """Send a comment, as far as that can be done without waiting; a client that takes nothing is busy."""
        self._spoke_at = trio.current_time()
        if self._sending:
            return
        data = self._owed or self._framed(WAITING)
        self._owed = data[self._peer.send_nowait(data) :]
        if self._peer.gone:
            self._scope.cancel()

    def _framed(self, events: bytes) -> bytes:
        data = chunk(events) if self._chunked else events
        if not self.opened:
            self.opened = True
            data = self._head() + data
        return data

    async def _send(self, data: bytes) -> None:
        if self._owed:
            data, self._owed = self._owed + data, b""
        self._sending = True
        try:
            if (sent := self._peer.send_nowait(data)) < len(data):
                await self._peer.send_rest(data, sent)
        finally:
            self._sending = False
        self._spoke_at = trio.current_time()
        if self._peer.gone:
            self._scope.cancel()
            await trio.lowlevel.checkpoint()
