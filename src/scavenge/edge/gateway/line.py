"""A client's socket, behind the few calls that the gateway needs. Knows no HTTP.

A trip through the scheduler for each write would cost more than the write: what can go at once goes without one.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Protocol

import trio

READ_BYTES = 65536
SILENT_S, ASK_EVERY_S, ASK_TIMES = 60, 15, 4
"""A client of which nothing is heard is asked whether it is there, and given up when it does not say so."""
_OPTIONS = (
    (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", SILENT_S),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", ASK_EVERY_S),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", ASK_TIMES),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 1000 * (SILENT_S + ASK_EVERY_S * ASK_TIMES)),  # while it owes us an ACK
    (socket.IPPROTO_TCP, "TCP_NOTSENT_LOWAT", 16 * 1024),  # what waits, waits here, where it is counted
)


class Line(Protocol):
    """One connection. A failing call raises :class:`OSError` or :class:`trio.ClosedResourceError`."""

    async def receive(self) -> bytes:
        """What has come, at least one byte; nothing at the end. Cancelled, it loses nothing. Always a checkpoint."""
        ...

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Send what can go without waiting, and say how much that was."""
        ...

    async def wait_writable(self) -> None:
        """Wait until something can be sent."""
        ...

    def is_quiet(self) -> bool:
        """Whether nothing has come that was not read, not even the end."""
        ...

    def end(self) -> None:
        """Say that nothing more will be sent."""
        ...

    def close(self) -> None:
        """Close it at once; whoever waits for it finds it closed. Twice is allowed."""
        ...


class SocketLine:
    """A TCP connection."""

    __slots__ = ("_socket",)

    def __init__(self, stream: trio.SocketStream) -> None:
        """Take over the socket of *stream*, which is of no more use."""
        taken = stream.socket
        self._socket = socket.socket(taken.family, taken.type, taken.proto, taken.detach())
        self._socket.setblocking(False)
        for level, name, value in _OPTIONS:
            if (option := getattr(socket, name, None)) is not None:
                with suppress(OSError):  # an option that this system knows by name only
                    self._socket.setsockopt(level, option, value)

    async def receive(self) -> bytes:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv(READ_BYTES)
            except BlockingIOError:
                continue

    def send_nowait(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    def is_quiet(self) -> bool:
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        return False

    def end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
