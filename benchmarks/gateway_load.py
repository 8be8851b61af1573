"""Load for the gateway's benchmarks: many HTTP clients in one event loop, on bare sockets, with next to no parsing.

What is measured is wall time as a client sees it. At a fixed rate a request's time runs from when it was due, so that a
slow server cannot hide behind requests that were sent late.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gateway_fleet import KEY, asking

_SENT_AT = re.compile(rb'" w(\d+\.\d+)"')
_EVENT = b"data: "


@dataclass
class Seen:
    """What came of a load."""

    requests: int = 0
    events: int = 0
    elapsed_s: float = 0.0
    took_s: list[float] = field(default_factory=list)
    """From when each request was due, until all of its reply was there."""
    delays_s: list[float] = field(default_factory=list)
    """Of paced chunks, from when the server sent them."""

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.elapsed_s


class Client(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.whole: asyncio.Future[None] | None = None
        self.held = b""
        self.length: int | None = None
        """Of the body, once its head was read; 0: it is a stream."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    async def ask(self, request: bytes) -> None:
        """Send a request and wait for all of its reply. Raises :class:`RuntimeError` for one that is not sound."""
        self.held, self.length = b"", None
        self.whole = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        await self.whole

    def data_received(self, data: bytes) -> None:
        self.held += data
        if self.length is None and not self._read_head():
            return
        if not self.length:
            self._read_events()
        elif len(self.held) >= self.length:
            self._end()

    def _read_head(self) -> bool:
        head, blank, rest = self.held.partition(b"\r\n\r\n")
        if blank and not head.startswith(b"HTTP/1.1 200"):
            self._end(f"answered {self.held[:600]!r}")
            return False
        if blank:
            at = (head := head.lower()).find(b"content-length:")
            self.length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self.held = rest
        return bool(blank)

    def _read_events(self) -> None:
        """Count the events that are whole; the last one is kept, as it may be cut."""
        now = time.monotonic()
        last = max(self.held.rfind(_EVENT), 0)
        self.seen.events += self.held.count(_EVENT, 0, last)
        self.seen.delays_s += [now - float(sent) for sent in _SENT_AT.findall(self.held, 0, last)]
        self.held = self.held[last:]
        if self.held.endswith(b"\r\n0\r\n\r\n"):
            sound = self.held.startswith(b"data: [DONE]")
            self._end(None if sound else f"a stream without its end: {self.held[:600]!r}")

    def _end(self, problem: str | None = None) -> None:
        if self.whole is None or self.whole.done():
            return
        if problem is None:
            self.seen.requests += 1
            self.whole.set_result(None)
        else:
            self.whole.set_exception(RuntimeError(problem))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the connection ended within a reply ({exc})")


@dataclass
class Target:
    """Where a load goes: ports that take turns, one for each new connection."""

    ports: list[int]
    seen: Seen = field(default_factory=Seen)
    clients: list[Client] = field(default_factory=list)
    idle: list[Client] = field(default_factory=list)

    def request(self, body: bytes) -> bytes:
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        key = f"authorization: Bearer {KEY}\r\n"
        return f"{head}{key}content-length: {len(body)}\r\n\r\n".encode() + body

    async def connect(self) -> Client:
        port = self.ports[len(self.clients) % len(self.ports)]
        _, client = await asyncio.get_running_loop().create_connection(lambda: Client(self.seen), "127.0.0.1", port)
        self.clients.append(client)
        return client

    async def ask(self, request: bytes, due_at: float) -> None:
        """Ask on an idle connection, or on a new one."""
        client = self.idle.pop() if self.idle else await self.connect()
        while client.transport.is_closing():  # the server has had enough of it
            client = self.idle.pop() if self.idle else await self.connect()
        await client.ask(request)
        self.seen.took_s.append(time.monotonic() - due_at)
        self.idle.append(client)


@asynccontextmanager
async def open_target(ports: list[int], connections: int, warmed: Callable[[], object]) -> AsyncIterator[Target]:
    """A target with warm connections: each has had a reply before. *warmed* is called when what counts begins."""
    target = Target(ports)
    warm = target.request(asking())
    try:
        target.idle += [await target.connect() for _ in range(connections)]
        for client in target.idle:
            await client.ask(warm)
        vars(target.seen).update(vars(Seen()))
        warmed()
        yield target
    finally:
        for client in target.clients:
            client.transport.abort()


def _nothing() -> None:
    """Nobody need know."""


async def saturate(
    ports: list[int], warmed: Callable[[], object] = _nothing, *, body: bytes, connections: int, seconds: float
) -> Seen:
    """Ask on all connections without a pause."""
    async with open_target(ports, connections, warmed) as target:
        request = target.request(body)
        began_at = time.monotonic()

        async def work(client: Client) -> None:
            while (sent_at := time.monotonic()) < began_at + seconds:
                await client.ask(request)
                target.seen.took_s.append(time.monotonic() - sent_at)

        async with asyncio.TaskGroup() as group:
            for client in target.idle:
                group.create_task(work(client))
        target.seen.elapsed_s = time.monotonic() - began_at
        return target.seen


async def at_rate(
    ports: list[int], warmed: Callable[[], object] = _nothing, *, body: bytes, rate: float, requests: int, warm: int
) -> Seen:
    """Ask that many times a second, however long the replies take."""
    async with open_target(ports, warm, warmed) as target:
        request = target.request(body)
        await asyncio.sleep(0)
        began_at = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(requests):
                due_at = began_at + number / rate
                await asyncio.sleep(due_at - time.monotonic())
                group.create_task(target.ask(request, due_at))
        target.seen.elapsed_s = time.monotonic() - began_at
        return target.seen
