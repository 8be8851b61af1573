"""Connected sockets, plain or TLS, behind the few calls an exchange needs. Knows nothing of HTTP.

A plain channel uses the socket itself: Trio's streams cost a trip through the scheduler for each write. Closing is
synchronous and says no goodbye (no ``close_notify``): it must work in a cancelled task.
"""

from __future__ import annotations

import select
import socket
from typing import Protocol

import trio

READ_BYTES = 65536
"""How much is read at once: all that a socket usually has."""


class Channel(Protocol):
    """One connection. A failing call raises :class:`OSError` or :class:`trio.BrokenResourceError`."""

    async def receive(self) -> bytes:
        """What has come, at least one byte; nothing at the end. Cancelled, it loses nothing. Always a checkpoint."""
        ...

    def send_nowait(self, data: bytes) -> int:
        """Send what can go without waiting, and say how much that was."""
        ...

    async def send(self, data: memoryview) -> None:
        """Send all of it. Cancelled, some of it has gone."""
        ...

    def is_quiet(self) -> bool:
        """Whether nothing has come, not even the end: the state of a connection that can carry a request."""
        ...

    def close(self) -> None:
        """Close at once, without a farewell."""
        ...


def _is_quiet(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return not poll.poll(0)


class PlainChannel:
    """A TCP connection."""

    __slots__ = ("_socket",)

    def __init__(self, stream: trio.SocketStream) -> None:
        """Take over the socket of *stream*, which is of no more use."""
        self._socket = socket.socket(fileno=stream.socket.detach())
        self._socket.setblocking(False)

    async def receive(self) -> bytes:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv(READ_BYTES)
            except BlockingIOError:
                continue

    def send_nowait(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def send(self, data: memoryview) -> None:
        while True:
            await trio.lowlevel.wait_writable(self._socket)
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                continue
            if not data:
                return

    def is_quiet(self) -> bool:
        return _is_quiet(self._socket.fileno())

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


class TlsChannel:
    """A TLS connection over a TCP connection."""

    __slots__ = ("_stream",)

    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        self._stream = stream

    async def receive(self) -> bytes:
        return bytes(await self._stream.receive_some(READ_BYTES))

    def send_nowait(self, data: bytes) -> int:
        return 0

    async def send(self, data: memoryview) -> None:
        await self._stream.send_all(data)

    def is_quiet(self) -> bool:
        return _is_quiet(self._stream.transport_stream.socket.fileno())

    def close(self) -> None:
        self._stream.transport_stream.socket.close()
