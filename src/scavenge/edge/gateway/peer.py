"""The client at the other end of a connection: bytes to and from it, and when it is gone. Knows no HTTP.

Once the client is gone, in whatever way, :attr:`Peer.gone` is true for good and what is sent goes nowhere; nothing
raises. A client that closes only its own direction counts as gone: it cannot be told from one that hung up. So does one
to which something was sent by half, when whoever sent it was cancelled: what came after that would be misread.
"""

from __future__ import annotations

import trio

from scavenge.edge.gateway.line import Line


class Peer:
    """One client. Whoever makes it closes it."""

    __slots__ = ("_line", "_write_s", "gone")

    def __init__(self, line: Line, write_s: float) -> None:
        self._line = line
        self._write_s = write_s
        self.gone = False

    async def receive(self) -> bytes:
        """What has come, at least one byte; nothing once it is gone. Cancelled, it loses nothing."""
        if self.gone:
            await trio.lowlevel.checkpoint()
            return b""
        try:
            data = await self._line.receive()
        except (OSError, trio.ClosedResourceError):
            await trio.lowlevel.checkpoint()
            data = b""
        if not data:
            self.gone = True
        return data

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Send what the client takes at once, and say how much; all of it counts once the client is gone."""
        if not self.gone:
            try:
                return self._line.send_nowait(data)
            except OSError:
                self.gone = True
        return len(data)

    async def send(self, data: bytes) -> None:
        """Send all of it. A client that takes nothing of it for ``write_s`` is given up.

        Cancelled before all has gone, the client counts as gone.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if (sent := self.send_nowait(data)) < len(data):
            await self.send_rest(data, sent)

    async def send_rest(self, data: bytes, sent: int) -> None:
        """The same, where so many bytes have gone already, but not all."""
        with memoryview(data) as view:
            while sent < len(data):
                try:
                    await self._wait_writable()
                except BaseException:
                    self.gone = True
                    raise
                sent += self.send_nowait(view[sent:])

    async def _wait_writable(self) -> None:
        """Wait until the client takes something, or is gone."""
        with trio.move_on_after(self._write_s) as patience:
            try:
                await self._line.wait_writable()
            except (OSError, trio.ClosedResourceError):
                await trio.lowlevel.checkpoint()
                self.gone = True
        if patience.cancelled_caught:
            self.gone = True

    def is_quiet(self) -> bool:
        """Whether nothing has come that was not read, not even its end."""
        try:
            return self.gone or self._line.is_quiet()
        except OSError:
            return True

    def end(self) -> None:
        """Say that nothing more will be sent."""
        try:
            self._line.end()
        except OSError:
            self.gone = True

    def close(self) -> None:
        """Close the connection at once. Never waits."""
        self.gone = True
        self._line.close()
