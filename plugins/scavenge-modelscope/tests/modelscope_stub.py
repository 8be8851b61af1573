"""A ModelScope site for tests, as far as the SDK's calls for files go: repositories with commits, blobs, and faults.

    with open_modelscope_stub() as site:
        site.repositories["me/images"] = {}
        ...
    assert site.repositories["me/images"]["a.tar"] == b"…"

The paths and the shapes are those that ``modelscope-hub`` 0.5 asks for; the SDK itself talks to it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs

INLINE_MOST = 64 * 2**10


@attrs.frozen
class Says:
    """An answer out of order."""

    status: int
    message: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class HangsUp:
    """No answer at all."""


@attrs.define(eq=False)
class Site:
    """The site, and what a test sees of it."""

    repositories: dict[str, dict[str, bytes]] = attrs.field(factory=dict)
    private: bool = False
    """Whether reading needs the token, too."""
    token: str = "ms-0123456789abcdef"
    blobs: dict[str, bytes] = attrs.field(factory=dict)
    scripts: dict[str, deque[Says | HangsUp | None]] = attrs.field(factory=dict)
    """By the kind of a request (``read``, ``repo``, ``batch``, ``blob``, ``commit``), what the next ones get."""
    cut_after: int | None = None
    ranges: bool = True
    asked: Counter[str] = attrs.field(factory=Counter)
    tokens: set[str] = attrs.field(factory=set)
    ranged: list[str] = attrs.field(factory=list)
    port: int = 0
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def script(self, kind: str, *answers: Says | HangsUp | None) -> None:
        self.scripts.setdefault(kind, deque()).extend(answers)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    site: Site

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        found = re.fullmatch(r"/api/v1/(datasets|models)/([^/]+/[^/]+)(/repo)?", place.path)
        if found is None:
            self._say(404, {"Message": f"no such path {place.path}"})
        elif found[3]:
            self._serve("read", found[2], lambda files: self._file(files, parse_qs(place.query)))
        else:
            self._serve("repo", found[2], lambda _: self._say(200, {"Code": 200, "Data": {"Path": found[2]}}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = re.fullmatch(
            r"/api/v1/repos/(?:datasets|models)/([^/]+/[^/]+)/(?:(info/lfs/objects/batch)|commit/master)", self.path
        )
        if found is None:
            self._say(404, {"Message": f"no such path {self.path}"})
        elif found[2]:
            self._serve("batch", found[1], lambda _: self._batch(body), writes=True)
        else:
            self._serve("commit", found[1], lambda files: self._commit(files, body), writes=True)

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        self._serve("blob", "", lambda _: self._blob(size), writes=True)

    # --- what is asked for

    def _file(self, files: dict[str, bytes], query: Mapping[str, list[str]]) -> None:
        if (data := files.get(query["FilePath"][0])) is None:
            self._say(404, {"Code": 10010205001, "Message": "file not found"})
            return
        wanted = self.headers.get("Range", "")
        if wanted:
            self.site.ranged.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.site.ranges else 0
        part = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        self._send(206 if start else 200, data[start:], part)

    def _batch(self, body: Any) -> None:
        objects = []
        for one in body["objects"]:
            known = one["oid"] in self.site.blobs
            action = {} if known else {"upload": {"href": f"{self.site.url}/blobs/{one['oid']}?sig=presigned-secret"}}
            objects.append({**one, "actions": action})
        self._say(200, {"Code": 200, "Data": {"objects": objects}})

    def _blob(self, size: int) -> None:
        data = self.rfile.read(size)
        if len(data) < size:
            return
        digest = urlsplit(self.path).path.rpartition("/")[2]
        if hashlib.sha256(data).hexdigest() != digest:
            self._say(400, {"Code": 400, "Message": "digest differs"})
            return
        self.site.blobs[digest] = data
        self._say(200, {"Code": 200})

    def _commit(self, files: dict[str, bytes], body: Any) -> None:
        new = {}
        for action in body["actions"]:
            data = base64.b64decode(action["content"]) if action["type"] == "normal" else None
            if data is None:
                data = self.site.blobs.get(action["sha256"])
            if data is None or len(data) != action["size"] or (action["type"] == "normal" and len(data) > INLINE_MOST):
                self._say(400, {"Code": 400, "Message": "a blob is missing, or the size is wrong"})
                return
            new[action["path"]] = data
        with self.site.lock:
            files.update(new)
        self._say(200, {"Code": 200, "Success": True, "Data": {"Oid": "c0ffee"}})

    # --- how it is answered

    def _serve(self, kind: str, repo: str, answer: Any, *, writes: bool = False) -> None:
        site = self.site
        with site.lock:
            site.asked[kind] += 1
            script = site.scripts.get(kind)
            scripted = script.popleft() if script else None
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        site.tokens.add(bearer)
        match scripted:
            case HangsUp():
                self._hang_up()
            case Says(status, message, headers):
                if kind == "blob":
                    self.rfile.read(int(self.headers["Content-Length"]))
                self._say(status, {"Code": status, "Message": message}, headers)
            case None if (writes or site.private or bearer) and bearer != site.token:
                self._say(401, {"Code": 401, "Message": f"the token {bearer} is unknown"})
            case None if kind != "blob" and repo not in site.repositories:
                self._say(404, {"Code": 10010205001, "Message": "repository not found"})
            case _:
                answer(site.repositories.get(repo, {}))

    def _say(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _send(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        cut = self.site.cut_after
        self.wfile.write(data if cut is None else data[:cut])
        if cut is not None and cut < len(data):
            self._hang_up()

    def _hang_up(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        """Nothing is printed."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


@contextmanager
def open_modelscope_stub() -> Iterator[Site]:
    """The site, on a free port of the loopback."""
    site = Site()
    with _Server(("127.0.0.1", 0), type("_Own", (_Handler,), {"site": site})) as server:
        site.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
