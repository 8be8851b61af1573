"""A registry for tests: the distribution API of OCI on loopback, in threads of its own. Small, and as wrong as a test
wants it.

    with open_fake_registry() as registry:
        digest = registry.add("library/x:1", FakeImage())          # what it has
        registry.users["u"] = "p"; registry.auth = "bearer"        # or "basic": who may
        registry.script("GET", "/blobs/", Cut(100), Cut(100))      # the next two; then as usual
        ...
        assert registry.count("GET", "/blobs/") == 3

``registry.host`` is what it is called in the names of images. What may be scripted, for requests of a method whose
path contains a text, is below: ``Refuse``, ``Cut``, ``Wrong``, ``Silent``, ``Redirect``, ``Whole``, ``Swallow``,
``Forget``. Tokens are given out at ``/token`` and are good until ``registry.tokens.clear()``.
"""

from __future__ import annotations

import gzip
import json
import ssl
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from fake_registry_answers import Answer, Cut, Forget, Redirect, Refuse, Silent, Swallow, Whole, Wrong
from fake_registry_http import Call, Handler, Server

from fake_images import FakeImage, digest_of
from scavenge.core.images.manifests import DOCKER_MANIFEST, OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_MANIFEST

__all__ = [
    "Cut",
    "FakeRegistry",
    "Forget",
    "Redirect",
    "Refuse",
    "Silent",
    "Swallow",
    "Whole",
    "Wrong",
    "open_fake_registry",
]


@attrs.define
class FakeRegistry:
    """What it has and how it behaves; changed by tests at any time."""

    host: str = ""
    blobs: dict[str, dict[str, bytes]] = attrs.field(factory=dict)
    """By repository and digest."""
    manifests: dict[tuple[str, str], tuple[str, bytes]] = attrs.field(factory=dict)
    """The type and the document, by repository and tag or digest."""
    users: dict[str, str] = attrs.field(factory=dict)
    auth: str = ""
    realm: str = ""
    """Where tokens are to be had, if not here."""
    tokens: dict[str, list[str]] = attrs.field(factory=dict)
    """The scopes of those that were given out."""
    expires_in: object = 300
    calls: list[Call] = attrs.field(factory=list)
    uploads: dict[str, bytearray] = attrs.field(factory=dict)
    headers: dict[str, str] = attrs.field(factory=dict)
    """Sent with every answer."""
    absolute: str = ""
    """A scheme and host that go before the address of an upload."""
    page: int = 0
    """How many tags a page has; 0: all."""
    stopped: threading.Event = attrs.field(factory=threading.Event)
    _scripts: list[tuple[str, str, deque[Answer]]] = attrs.field(factory=list)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def script(self, method: str, contains: str, *answers: Answer) -> None:
        """Answer the next requests of that kind like this, one each."""
        self._scripts.append((method, contains, deque(answers)))

    def behave(self) -> None:
        """Forget what is scripted."""
        self._scripts.clear()

    def count(self, method: str, contains: str = "") -> int:
        """How many requests of that kind came."""
        return sum(call.method == method and contains in call.path for call in self.calls)

    def add(self, name: str, image: FakeImage, *, kind: str = "oci", packed: bool = True) -> str:
        """Have an image under ``path:tag``; the digest of its manifest. ``packed``: layers are compressed by gzip."""
        path, _, tag = name.rpartition(":")
        layers = [gzip.compress(layer, mtime=0) if packed else layer for layer in image.layers]
        types = (OCI_MANIFEST, OCI_CONFIG, OCI_LAYER + ("+gzip" if packed else ""))
        if kind == "docker":
            stem = "application/vnd.docker"
            types = (DOCKER_MANIFEST, f"{stem}.container.image.v1+json", f"{stem}.image.rootfs.diff.tar.gzip")
        held = [(self.blob(path, data), len(data)) for data in (image.config, *layers)]
        told = [{"mediaType": types[min(n, 1) + 1], "digest": d, "size": s} for n, (d, s) in enumerate(held)]
        document = {"schemaVersion": 2, "mediaType": types[0], "config": told[0], "layers": told[1:]}
        return self.manifest(path, tag, types[0], json.dumps(document).encode())

    def add_index(self, name: str, *images: FakeImage) -> str:
        """Have images for several platforms under one name."""
        path, _, tag = name.rpartition(":")
        listed = []
        for number, image in enumerate(images):
            digest = self.add(f"{path}:only-{number}", image)
            size = len(self.manifests[path, digest][1])
            del self.manifests[path, f"only-{number}"]
            where = {"os": image.platform.os, "architecture": image.platform.architecture}
            where |= {"variant": image.platform.variant} if image.platform.variant else {}
            listed.append({"mediaType": OCI_MANIFEST, "digest": digest, "size": size, "platform": where})
        document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}
        return self.manifest(path, tag, OCI_INDEX, json.dumps(document).encode())

    def blob(self, path: str, data: bytes) -> str:
        digest = digest_of(data)
        self.blobs.setdefault(path, {})[digest] = data
        return digest

    def manifest(self, path: str, reference: str, kind: str, data: bytes) -> str:
        digest = digest_of(data)
        self.manifests[path, reference] = self.manifests[path, digest] = (kind, data)
        return digest

    def next_answer(self, method: str, path: str) -> Answer | None:
        with self._lock:
            for wanted, contains, answers in self._scripts:
                if wanted == method and contains in path and answers:
                    return answers.popleft()
        return None


@contextmanager
def open_fake_registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """A registry that listens while the block runs; *tls*: by https."""
    registry = FakeRegistry()

    class Bound(Handler):
        told = registry

    server = Server(("127.0.0.1", 0), Bound)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    registry.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.002})
    thread.start()
    try:
        yield registry
    finally:
        registry.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()
