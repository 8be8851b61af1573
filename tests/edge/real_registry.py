"""Real registries for tests, on loopback ports of their own, and a proxy that makes one of them misbehave.

A registry is the distribution project's own, as Debian's docker-registry has it: open, with a password, or a mirror
that fetches from another what it lacks. It ends with the test process, however that ends.
"""

from __future__ import annotations

import http.client
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import MSG_PEEK

import attrs
from real_engine import PATH

from real_parts import real

PROGRAM = shutil.which("docker-registry", path=PATH)
LEASH = Path(__file__).with_name("leash.py")
READY_S = 30.0
USER, PASSWORD = "visitor", "open sesame"
HTPASSWD = f"{USER}:$2b$05$scavengescavengescaveum/PFSBln8mTaENIlIDbZzAvcDt7Ld46\n"
"""The password's hash, by bcrypt: the registry knows no other."""

SETTINGS = """\
version: 0.1
log: {{level: info}}
storage:
  filesystem: {{rootdirectory: {folder}/data}}
  maintenance: {{uploadpurging: {{enabled: false}}}}
http: {{addr: "127.0.0.1:0"}}
"""
WITH_PASSWORD = 'auth: {{htpasswd: {{realm: tests, path: "{folder}/htpasswd"}}}}\n'
MIRROR = 'proxy: {{remoteurl: "http://{remote}"}}\n'
TLS_HELLO = b"\x16"

needs_registry = real(
    "a registry",
    PROGRAM is not None,
    "apt-get install --no-install-recommends docker-registry, as requirements/README.md says",
)


@attrs.define(eq=False)
class RealRegistry:
    """A registry; ``address`` is how the names of its images begin."""

    address: str
    folder: Path

    @property
    def log(self) -> str:
        """What it has printed."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")


def _listening(log: Path, process: subprocess.Popen[str]) -> str:
    """Where it says that it listens, once it does."""
    give_up_at = time.monotonic() + READY_S
    while time.monotonic() < give_up_at and process.poll() is None:
        found = re.search(r"listening on (127\.0\.0\.1:\d+)", log.read_text(encoding="utf-8", errors="replace"))
        if found:
            return found[1]
        time.sleep(0.02)
    raise AssertionError(f"the registry does not listen: {log.read_text(errors='replace')[-2000:]}")


@contextmanager
def open_registry(folder: Path, *, mirror_of: str = "", password: bool = False) -> Iterator[RealRegistry]:
    """A registry while the block runs; *mirror_of* is the address of one that is up."""
    assert PROGRAM is not None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "htpasswd").write_text(HTPASSWD, encoding="utf-8")
    text = SETTINGS + (WITH_PASSWORD if password else "") + (MIRROR if mirror_of else "")
    (folder / "settings.yml").write_text(text.format(folder=folder, remote=mirror_of), encoding="utf-8")
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-IS", str(LEASH), PROGRAM, "serve", str(folder / "settings.yml")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env={"PATH": PATH, "HOME": str(folder)},
        )
    try:
        yield RealRegistry(_listening(folder / "log", process), folder)
    finally:
        process.communicate()


@attrs.define(eq=False)
class Faults:
    """What a proxy does to requests whose path has ``where`` in it, and what it has seen. May change at any time."""

    where: str = "/blobs/"
    answer: int = 0
    """A status that it answers itself, to the next ``times`` requests."""
    retry_after: str = ""
    cut_after: int | None = None
    """How many bytes of a body it passes on before it cuts the connection, for the next ``times`` bodies."""
    hold_after: int | None = None
    """How many bytes of a body it passes on before it is silent, until :meth:`let_go`."""
    times: int = 10**9
    spoil: bool = False
    """Whether it changes a byte of each body."""

    requests: list[str] = attrs.field(factory=list)
    """Method and path of each, in order."""
    seen: Counter[str] = attrs.field(factory=Counter)
    """How often it did each of these: ``answered``, ``cut``, ``held``, ``spoiled``."""
    _holding: threading.Event = attrs.field(factory=threading.Event)
    _released: threading.Event = attrs.field(factory=threading.Event)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def concern(self, path: str) -> bool:
        """Whether it does anything to such a request."""
        return self.where in path

    def take(self, what: str) -> bool:
        """Whether it is to be done once more; it counts as done."""
        with self._lock:
            if self.times <= 0:
                return False
            self.times -= 1
            self.seen[what] += 1
            return True

    def hold(self) -> None:
        """Wait until bodies are let go."""
        self.seen["held"] += 1
        self._holding.set()
        self._released.wait()

    @property
    def holds(self) -> bool:
        """Whether a body is, or was, held."""
        return self._holding.is_set()

    def wait_held(self) -> None:
        """Block until a body is held."""
        assert self._holding.wait(READY_S), "nobody has asked for what is to be held"

    def let_go(self) -> None:
        """Let all bodies go on, those that come as well."""
        self.hold_after = None
        self._released.set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_one_request(self) -> None:
        # an engine tries TLS first, and would wait for ten seconds
        if self.connection.recv(1, MSG_PEEK) == TLS_HELLO:
            self.close_connection = True
            return
        super().handle_one_request()

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        faults = self.server.faults
        faults.requests.append(f"{self.command} {self.path}")
        concerned = faults.concern(self.path)
        if concerned and faults.answer and faults.take("answered"):
            self._answer(faults.answer, faults.retry_after)
        else:
            self._pass_on(faults if concerned else Faults())

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - called by these names

    def _answer(self, status: int, retry_after: str) -> None:
        code = "TOOMANYREQUESTS" if status == 429 else "UNAVAILABLE"
        body = b'{"errors": [{"code": "%s", "message": "so it was told"}]}' % code.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(body if self.command != "HEAD" else b"")

    def _pass_on(self, faults: Faults) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=READY_S)
        try:
            upstream.request(self.command, self.path, body, dict(self.headers))
            response = upstream.getresponse()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name not in ("Connection", "Date", "Server"):
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self._send(response.read(), faults)
        finally:
            upstream.close()

    def _send(self, body: bytes, faults: Faults) -> None:
        if faults.spoil and body and faults.take("spoiled"):
            body = bytes([body[0] ^ 0xFF]) + body[1:]
        if faults.cut_after is not None and len(body) > faults.cut_after and faults.take("cut"):
            self.wfile.write(body[: faults.cut_after])
            self.close_connection = True
        elif faults.hold_after is not None and len(body) > faults.hold_after:
            self.wfile.write(body[: faults.hold_after])
            faults.hold()
            self.wfile.write(body[faults.hold_after :])
        else:
            self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, upstream: str, faults: Faults) -> None:
        self.upstream, self.faults = upstream, faults
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever hung up did so on purpose."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def open_proxy(upstream: RealRegistry, faults: Faults) -> Iterator[str]:
    """The address of a proxy in front of a registry, while the block runs. It does what *faults* says."""
    with _Server(upstream.address, faults) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        serving.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            faults.let_go()
            server.shutdown()
            serving.join()
