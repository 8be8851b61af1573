"""Requests to the run's gateway over connections that are kept: one HTTP/1.1 exchange at a time on each. No deadlines.

Written once for Trio, asyncio and blocking sockets, which differ in their :class:`Stream` only; on a blocking one no
step ever suspends (:func:`at_once`). How long a request takes is the run's to decide: it waits here for as long as it
is not cancelled, and then its connection is closed, so that the gateway gives up too.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import attrs

from scavenge.core.doorwords import DETAIL, DETAIL_FIELD
from scavenge.edge.http.request import Request, RequestKind
from scavenge.edge.http.wire import Wire, WireError
from scavenge.errors import InfrastructureError
from scavenge.types import ModelAddress

READ_BYTES = 64 * 1024
KEPT_IDLE_S = 60.0
"""How long an idle connection is used again; the gateway closes one after minutes."""
T = TypeVar("T")
S = TypeVar("S", bound="Stream")


class Stream(Protocol):
    """A connection. What goes wrong with it is an :class:`OSError`."""

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        ...

    async def receive(self) -> bytes:
        """What has come; nothing: the other side has closed."""
        ...

    def close(self) -> None:
        """Close it at once. Never waits."""
        ...


@attrs.define(eq=False)
class _Line(Generic[S]):
    stream: S
    wire: Wire = attrs.field(factory=Wire)
    idle_since: float = 0.0
    used: bool = False


class _Stale(Exception):
    """A connection that had been used before was closed before anything of a reply came."""


@attrs.define(eq=False)
class GatewayClient(Generic[S]):
    """Asks the gateway. ``connect(host, port)`` makes a connection."""

    connect: Callable[[str, int], Awaitable[S]]
    _idle: dict[tuple[int, str, int], deque[_Line[S]]] = attrs.field(factory=dict, init=False)
    """By process and place: a copy that foreign code forks has connections of its own."""

    async def post(
        self, address: ModelAddress, body: bytes, taken: Callable[[S], None] = lambda stream: None
    ) -> tuple[int, bytes]:
        """Ask for a chat completion: the status and the body of the reply.

        *taken* is told each connection that is about to be used. Raises :class:`scavenge.InfrastructureError` when the
        gateway cannot be reached or breaks off. Cancelled, it closes the connection.
        """
        place, request = _request(address, body)
        try:
            if (line := self._take_idle(place)) is not None:
                try:
                    return await self._exchange(place, line, request, taken)
                except _Stale:
                    pass
            return await self._exchange(place, _Line(await self.connect(*place)), request, taken)
        except (OSError, WireError) as exc:
            host, port = place
            raise InfrastructureError(f"the run's gateway at {host}:{port} cannot be asked: {exc}") from exc

    async def _exchange(
        self, place: tuple[str, int], line: _Line[S], request: Request, taken: Callable[[S], None]
    ) -> tuple[int, bytes]:
        heard = False
        pieces: list[bytes] = []
        try:
            taken(line.stream)
            await line.stream.send(line.wire.start(request))
            while not line.wire.complete:
                data = await line.stream.receive()
                heard = heard or data != b""
                pieces.append(line.wire.feed(data))
        except BaseException as exc:
            line.stream.close()
            if line.used and not heard and isinstance(exc, OSError | WireError):
                raise _Stale from exc
            raise
        self._keep(place, line)
        return (0 if line.wire.head is None else line.wire.head.status), b"".join(pieces)

    def close(self) -> None:
        """Close the idle connections. Never waits."""
        for lines in self._idle.values():
            for line in lines:
                line.stream.close()
        self._idle.clear()

    def _take_idle(self, place: tuple[str, int]) -> _Line[S] | None:
        """The connection that was used last. Once that has been idle for long, so have the others: all are closed."""
        lines = self._idle.get((os.getpid(), *place))
        with suppress(IndexError):  # another thread was first
            while lines:
                line = lines.pop()
                if time.monotonic() - line.idle_since <= KEPT_IDLE_S:
                    return line
                line.stream.close()
        return None

    def _keep(self, place: tuple[str, int], line: _Line[S]) -> None:
        if not line.wire.reusable:
            line.stream.close()
            return
        line.idle_since, line.used = time.monotonic(), True
        self._idle.setdefault((os.getpid(), *place), deque()).append(line)


def _request(address: ModelAddress, body: bytes) -> tuple[tuple[str, int], Request]:
    parts = urlsplit(f"{address.base_url}/chat/completions")
    fields = (
        (b"host", parts.netloc.encode()),
        (b"authorization", f"Bearer {address.api_key}".encode()),
        (b"content-type", b"application/json"),
        (DETAIL_FIELD.encode(), DETAIL.encode()),
    )
    kind = RequestKind(b"POST", parts.path.encode(), fields)
    return (parts.hostname or "", parts.port or 80), kind.request(body)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a step that blocks has suspended")
