"""How a fake registry answers: the distribution API, and the token service of its own."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import attrs
from fake_registry_answers import Answer, Cut, Forget, Redirect, Refuse, Silent, Swallow, Whole, Wrong

from fake_images import digest_of

if TYPE_CHECKING:
    from fake_registry import FakeRegistry


@attrs.frozen
class Call:
    """A request that came. Names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up as they like."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    told: FakeRegistry

    def log_message(self, *args: Any) -> None:
        """Nobody reads it."""

    def handle(self) -> None:
        with suppress(OSError):
            if self.connection.gettimeout() is None and self.rfile.peek(1)[:1] == b"\x16":  # type: ignore[attr-defined]
                return  # a TLS handshake: whoever speaks plain http does not wait for the rest of it
            super().handle()

    def answer(self) -> None:
        registry = self.told
        url = urlsplit(self.path)
        registry.calls.append(Call(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
        self.query = {key: values[0] for key, values in parse_qs(url.query).items()}
        scripted = registry.next_answer(self.command, self.path)
        if isinstance(scripted, Cut) and self.command in ("PUT", "PATCH", "POST"):
            return self._cut_request(url.path, scripted.after)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if url.path == "/token":
            return self._token(body, scripted)
        if isinstance(scripted, Refuse):
            return self._send(scripted.status, scripted.body, scripted.headers)
        if isinstance(scripted, Redirect):
            return self._send(307, b"", {"location": scripted.to})
        if isinstance(scripted, Silent):
            registry.stopped.wait()
            self.close_connection = True
            return None
        if not self._is_let_in(url.path):
            return None
        self._scripted = scripted
        return self._route(url.path, body)

    def _route(self, path: str, body: bytes) -> None:
        if found := re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", path):
            return (
                self._put_manifest(found[1], found[2], body)
                if self.command == "PUT"
                else self._manifest(*found.groups())
            )
        if found := re.fullmatch(r"/v2/(.+)/blobs/uploads/([^/]*)", path):
            return self._upload(found[1], found[2], body)
        if found := re.fullmatch(r"/(?:v2|elsewhere)/(.+)/blobs/(sha256:[0-9a-f]+)", path):
            return self._blob(found[1], found[2])
        if found := re.fullmatch(r"/v2/(.+)/tags/list", path):
            return self._tags(found[1])
        return self._send(200 if path == "/v2/" else 404, b"{}")

    # --- who may

    def _is_let_in(self, path: str) -> bool:
        registry = self.told
        said = self.headers.get("authorization", "")
        if not registry.auth or path.startswith("/elsewhere/"):
            return True
        if registry.auth == "basic":
            if said.startswith("Basic ") and self._user(said):
                return True
            return self._refuse_entry('Basic realm="fake"')
        need = self._scope(path)
        if need in registry.tokens.get(said.removeprefix("Bearer "), []):
            return True
        realm = registry.realm or f"{'https' if hasattr(self.connection, 'cipher') else 'http'}://{registry.host}/token"
        return self._refuse_entry(f'Bearer realm="{realm}",service="fake, or so",scope="{need}"')

    def _refuse_entry(self, challenge: str) -> bool:
        self._send(401, Refuse(401, "UNAUTHORIZED", "authentication required").body, {"www-authenticate": challenge})
        return False

    def _scope(self, path: str) -> str:
        repository = re.sub(r"^/v2/(.+)/(manifests|blobs|tags)/.*$", r"\1", path)
        reads = self.command in ("GET", "HEAD") and "/uploads/" not in path
        return f"repository:{repository}:{'pull' if reads else 'pull,push'}"

    def _user(self, said: str) -> str:
        name, _, password = base64.b64decode(said.removeprefix("Basic ")).decode().partition(":")
        return name if name and self.told.users.get(name) == password else ""

    def _token(self, body: bytes, scripted: Answer | None) -> None:
        registry = self.told
        if isinstance(scripted, Refuse):
            return self._send(scripted.status, scripted.body, scripted.headers)
        if isinstance(scripted, Wrong):
            return self._send(200, scripted.data)
        asked = parse_qs(body.decode()) if self.command == "POST" else parse_qs(urlsplit(self.path).query)
        if self.command == "POST":
            scopes, user = asked["scope"][0].split(), asked["refresh_token"][0] == "refresh" and "u"
        else:
            scopes, user = asked.get("scope", []), self._user(self.headers.get("authorization", ""))
        if registry.users and not user:
            return self._send(401, Refuse(401, "UNAUTHORIZED", "incorrect username or password").body)
        token = f"token-{len(registry.calls)}"
        registry.tokens[token] = scopes
        return self._send(200, json.dumps({"token": token, "expires_in": registry.expires_in}).encode())

    # --- what there is

    def _manifest(self, path: str, reference: str) -> None:
        held = self.told.manifests.get((path, reference))
        if held is None:
            return self._send(404, Refuse(404, "MANIFEST_UNKNOWN", "manifest unknown").body)
        kind, data = held
        digest = digest_of(data)
        if isinstance(self._scripted, Wrong):
            data = self._scripted.data
        return self._send(200, data, {"content-type": kind, "docker-content-digest": digest})

    def _put_manifest(self, path: str, reference: str, body: bytes) -> None:
        document = json.loads(body)
        for held in (document.get("config"), *document.get("layers", ())):
            if held and held["digest"] not in self.told.blobs.get(path, {}):
                return self._send(400, Refuse(400, "MANIFEST_BLOB_UNKNOWN", held["digest"]).body)
        digest = self.told.manifest(path, reference, self.headers["content-type"], body)
        return self._send(201, b"", {"docker-content-digest": digest})

    def _tags(self, path: str) -> None:
        tags = sorted({tag for repository, tag in self.told.manifests if repository == path and ":" not in tag})
        if not tags:
            return self._send(404, Refuse(404, "NAME_UNKNOWN", "repository name not known to registry").body)
        page = self.told.page or len(tags)
        first = int(self.query.get("from", 0))
        more = {"link": f'</v2/{path}/tags/list?from={first + page}>; rel="next"'} if first + page < len(tags) else {}
        return self._send(200, json.dumps({"name": path, "tags": tags[first : first + page]}).encode(), more)

    def _blob(self, path: str, digest: str) -> None:
        data = self.told.blobs.get(path, {}).get(digest)
        if data is None:
            return self._send(404, Refuse(404, "BLOB_UNKNOWN", "blob unknown to registry").body)
        if isinstance(self._scripted, Wrong):
            data = self._scripted.data
        first = int(self.headers.get("range", "bytes=0-")[6:].split("-")[0])
        if first and not isinstance(self._scripted, Whole):
            if first >= len(data):
                return self._send(416, b"")
            headers = {"content-range": f"bytes {first}-{len(data) - 1}/{len(data)}"}
            return self._send(206, data[first:], headers, self._cut())
        return self._send(200, data, {}, self._cut())

    def _cut(self) -> int | None:
        return self._scripted.after if isinstance(self._scripted, Cut) else None

    # --- what is put there

    def _upload(self, path: str, upload: str, body: bytes) -> None:
        registry = self.told
        if self.command == "POST":
            return self._begin(path)
        if isinstance(self._scripted, Forget):
            registry.uploads.pop(upload, None)
        held = registry.uploads.get(upload)
        if held is None:
            return self._send(404, Refuse(404, "BLOB_UPLOAD_UNKNOWN", "blob upload unknown to registry").body)
        if self.command == "PATCH" and not self._fits(held):
            return self._send(416, b"", self._progress(path, upload))
        held += body
        if isinstance(self._scripted, Swallow):
            self._finish(path, upload)
            self.close_connection = True
            return None
        if self.command == "PUT":
            done = self._finish(path, upload)
            return self._send(201, b"") if done else self._send(400, Refuse(400, "DIGEST_INVALID", "not it").body)
        return self._send(202 if self.command == "PATCH" else 204, b"", self._progress(path, upload))

    def _begin(self, path: str) -> None:
        registry = self.told
        mount, source = self.query.get("mount", ""), self.query.get("from", "")
        if mount and mount in registry.blobs.get(source, {}):
            registry.blob(path, registry.blobs[source][mount])
            return self._send(201, b"")
        upload = f"upload-{len(registry.calls)}"
        registry.uploads[upload] = bytearray()
        return self._send(202, b"", self._progress(path, upload))

    def _fits(self, held: bytearray) -> bool:
        said = self.headers.get("content-range")
        return said is None or int(said.split("-")[0]) == len(held)

    def _progress(self, path: str, upload: str) -> dict[str, str]:
        last = max(0, len(self.told.uploads[upload]) - 1)
        return {"location": f"{self.told.absolute}/v2/{path}/blobs/uploads/{upload}?state=a%2Fb", "range": f"0-{last}"}

    def _finish(self, path: str, upload: str) -> bool:
        if self.command != "PUT":
            return False
        data = bytes(self.told.uploads.pop(upload))
        if digest_of(data) != self.query.get("digest"):
            return False
        self.told.blob(path, data)
        return True

    def _cut_request(self, path: str, after: int) -> None:
        """Take so many bytes of a request into its upload, and hang up."""
        held = self.told.uploads.get(path.rpartition("/")[2])
        data = self.rfile.read(min(after, int(self.headers.get("content-length", 0))))
        if held is not None:
            held += data
        self.close_connection = True

    # --- answers

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None, cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in {**self.told.headers, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body if cut is None else body[:cut])
        if cut is not None and cut < len(body):
            self.close_connection = True


for _method in ("GET", "HEAD", "POST", "PUT", "PATCH"):
    setattr(Handler, f"do_{_method}", Handler.answer)
