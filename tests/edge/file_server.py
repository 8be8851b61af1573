"""A small HTTP server of files for tests: GET with ranges and entity tags, PUT, and whatever may go wrong with either.

with open_file_server() as server:
    server.files["a.tar"] = b"…"
    server.cut_after = 1000             # every download breaks after so many bytes of its body
    server.script.append(Says(503))     # the next request gets this
    ...
assert server.seen[0].headers["range"] == "bytes=1000-"
"""

from __future__ import annotations

import hashlib
import re
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import attrs


@attrs.frozen
class Says:
    """An answer with a status and no file."""

    status: int
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes = b""
    read_body: bool = True
    """Whether what is uploaded is read first."""


@attrs.frozen
class HangsUp:
    """The connection is closed, or reset, without an answer."""

    reset: bool = False


@attrs.frozen
class Seen:
    """A request that came."""

    method: str
    path: str
    headers: Mapping[str, str]


@attrs.define(eq=False)
class FileServer:
    """The server, and what a test sees of it."""

    files: dict[str, bytes] = attrs.field(factory=dict)
    etags: bool = True
    ranges: bool = True
    lengths: bool = True
    """Whether the length of a file is told; without, its end is the connection's."""
    cut_after: int | None = None
    token: str | None = None
    script: deque[Says | HangsUp | None] = attrs.field(factory=deque)
    """What the next requests get; ``None``: what they should."""
    seen: list[Seen] = attrs.field(factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/store"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_version = "files"
    own: FileServer

    def do_GET(self) -> None:
        if self._scripted():
            return
        name = self.path.removeprefix("/store/")
        if (data := self.own.files.get(name)) is None:
            self._say(Says(404))
            return
        etag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        headers = {"etag": etag} if self.own.etags else {}
        start = self._start(etag)
        status = 200
        if start is not None and start >= len(data):
            self._say(Says(416, {"content-range": f"bytes */{len(data)}"}))
            return
        if start is not None:
            status, headers["content-range"] = 206, f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(status, headers, data[start or 0 :])

    def _start(self, etag: str) -> int | None:
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        if found is None or not self.own.ranges or self.headers.get("if-range", etag) != etag:
            return None
        return int(found[1])

    def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        length = {"content-length": str(len(data))} if self.own.lengths else {"connection": "close"}
        for name, value in {**headers, **length}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = not self.own.lengths
        cut = self.own.cut_after
        self.wfile.write(data if cut is None else data[:cut])
        if cut is not None and cut < len(data):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def do_PUT(self) -> None:
        if self._scripted():
            return
        data = self.rfile.read(int(self.headers["content-length"]))
        if len(data) == int(self.headers["content-length"]):
            self.own.files[self.path.removeprefix("/store/")] = data
            self._say(Says(201))

    def do_POST(self) -> None:
        self.do_PUT()

    def _scripted(self) -> bool:
        own = self.own
        own.seen.append(Seen(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
        answer = own.script.popleft() if own.script else None
        if answer is None and own.token and self.headers.get("authorization") != f"Bearer {own.token}":
            answer = Says(401)
        if isinstance(answer, Says):
            if answer.read_body:
                self.rfile.read(int(self.headers.get("content-length", 0)))
            else:
                self.close_connection = True
            self._say(answer)
        if isinstance(answer, HangsUp):
            if answer.reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            else:
                self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        return answer is not None

    def _say(self, answer: Says) -> None:
        self.send_response(answer.status)
        for name, value in {**answer.headers, "content-length": str(len(answer.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *arguments: object) -> None:
        """Nothing is printed."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


@contextmanager
def open_file_server() -> Iterator[FileServer]:
    """The server, on a free port of the loopback."""
    own = FileServer()
    with _Server(("127.0.0.1", 0), type("_OwnHandler", (_Handler,), {"own": own})) as server:
        own.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield own
        finally:
            server.shutdown()
            thread.join()
