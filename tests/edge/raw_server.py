"""A server for tests that does with its sockets exactly what a script says: bytes, silence, cuts, resets."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio


class Conn:
    """One accepted connection."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, plain: trio.SocketStream, number: int) -> None:
        self.stream = stream
        self.plain = plain
        self.number = number
        self._rest = bytearray()

    async def request(self) -> tuple[bytes, bytes]:
        """The next request's head and body; :class:`EOFError` when the client has gone."""
        while b"\r\n\r\n" not in self._rest:
            await self._more()
        end = self._rest.index(b"\r\n\r\n")
        head = bytes(self._rest[:end])
        del self._rest[: end + 4]
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = int(lengths[0].split(b":")[1]) if lengths else 0
        while len(self._rest) < length:
            await self._more()
        body = bytes(self._rest[:length])
        del self._rest[:length]
        return head, body

    async def _more(self) -> None:
        data = await self.stream.receive_some()
        if not data:
            raise EOFError
        self._rest += data

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    def cut(self) -> None:
        """End the connection as a process does that exits."""
        self.plain.socket.close()

    def reset(self) -> None:
        """End the connection as a machine does that forgot it."""
        self.plain.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.plain.socket.close()

    async def until_gone(self) -> None:
        """Wait until the client closes."""
        while await self.stream.receive_some():
            pass


@attrs.define
class RawServer:
    port: int
    accepted: int = 0
    gone: int = 0
    """Connections whose script has ended: the client left, or the script did."""
    scheme: str = "http"
    changed: trio.Event = attrs.field(factory=trio.Event)
    """Set, and replaced, when ``gone`` grows."""

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"

    async def wait_gone(self, number: int) -> None:
        """Wait until so many connections have gone."""
        with trio.fail_after(5):
            while self.gone < number:
                await self.changed.wait()


Script = Callable[[Conn], Awaitable[object]]


@asynccontextmanager
async def raw_server(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """Serve *script* on a free port of the loopback interface."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server = RawServer(listeners[0].socket.getsockname()[1], scheme="https" if tls else "http")

        async def accept(plain: trio.SocketStream) -> None:
            server.accepted += 1
            stream = trio.SSLStream(plain, tls, server_side=True) if tls else plain
            conn = Conn(stream, plain, server.accepted)
            try:
                await script(conn)
            except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            finally:
                plain.socket.close()
                server.gone += 1
                server.changed.set()
                server.changed = trio.Event()

        nursery.start_soon(trio.serve_listeners, accept, listeners)
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def reply(body: bytes, status: str = "200 OK", headers: str = "content-type: application/json") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def document(text: str = "hello", finish: str | None = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}).encode()


def delta(text: str | None = None, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def script_of(*steps: object) -> Script:
    """For each request on a connection: send the bytes, call the callables with the connection, in this order."""

    async def script(conn: Conn) -> None:
        while True:
            await conn.request()
            for step in steps:
                if isinstance(step, bytes):
                    await conn.send(step)
                elif callable(step):
                    waits = step(conn)
                    if waits is not None:
                        await waits

    return script
