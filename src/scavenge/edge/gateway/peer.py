"""The client at the other end of a connection: bytes to and from it, and when it is gone. Knows no HTTP.

Once the client is gone, in whatever way, :attr:`Peer.gone` is true for good and what is sent goes nowhere; nothing
raises. A client that closes only its own direction counts as gone: it cannot be told from one that hung up.
"""

from __future__ import annotations

import socket

import trio

_READ_BYTES = 65536
_PROGRESS_BYTES = 65536


class Peer:
    """One client. Whoever makes it closes it."""

    __slots__ = ("_stream", "_write_s", "gone")

    def __init__(self, stream: trio.SocketStream, write_s: float) -> None:
        self._stream = stream
        self._write_s = write_s
        self.gone = False

    async def receive(self) -> bytes:
        """What has come, at least one byte; nothing once it is gone. Cancelled, it loses nothing."""
        if self.gone:
            await trio.lowlevel.checkpoint()
            return b""
        try:
            data = bytes(await self._stream.receive_some(_READ_BYTES))
        except trio.BrokenResourceError:
            await trio.lowlevel.checkpoint()
            data = b""
        if not data:
            self.gone = True
        return data

    async def send(self, data: bytes) -> None:
        """Send all of it. A client that takes nothing of it for ``write_s`` is given up. Cancelled, some has gone."""
        await trio.lowlevel.checkpoint_if_cancelled()
        with memoryview(data) as view:
            sent = 0
            while sent < len(data) and not self.gone:
                sent += await self._send_some(view[sent : sent + _PROGRESS_BYTES])

    async def _send_some(self, data: memoryview) -> int:
        sent = 0
        with trio.move_on_after(self._write_s) as patience:
            try:
                sent = await self._stream.socket.send(data)
            except OSError:
                self.gone = True
        if patience.cancelled_caught:
            self.gone = True
        return sent

    async def part(self, linger_s: float) -> None:
        """Send nothing more, and throw away what still comes until the client has read the rest and closes.

        Closing at once would reset the connection where the client is still sending, and the answer would be lost with
        what it has not read.
        """
        with trio.move_on_after(linger_s):
            try:
                self._stream.socket.shutdown(socket.SHUT_WR)
            except OSError:
                self.gone = True
            while await self.receive():
                pass

    def close(self) -> None:
        """Close the connection at once. Never waits."""
        self._stream.socket.close()
