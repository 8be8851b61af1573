"""Small images that run, pushed to a registry for tests: a shell, and a layer of their own that tells them apart."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import http.client
import io
import json
import random
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs
from real_engine import PATH
from real_registry import PASSWORD, USER

from real_parts import real

SHELL = shutil.which("busybox", path=PATH)
PROGRAMS = ("sh", "ls", "cat", "sleep", "echo", "true", "false", "env", "sha256sum")
BASE = "tests/base"
OWN_BYTES = 20_000
"""How large the layer of its own is."""

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
BYTES = "application/octet-stream"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def _is_static() -> bool:
    """Whether busybox brings all that it needs; the other one would not run in an image of its own."""
    return SHELL is not None and b"/ld-linux" not in Path(SHELL).read_bytes()[:8192]


needs_shell = real(
    "a shell for images",
    _is_static(),
    "apt-get install --no-install-recommends busybox-static, as requirements/README.md says",
)


def verified_images() -> list[str]:
    """The names of the 500 images of SWE-bench Verified."""
    ids = Path(__file__).with_name("swe_bench_verified.txt").read_text(encoding="ascii").split()
    return [f"swebench/sweb.eval.x86_64.{name.replace('__', '_1776_')}:latest" for name in ids]


@functools.cache
def own_architecture() -> str:
    """What this machine's images are for."""
    machine = subprocess.run(["uname", "-m"], capture_output=True, check=True, text=True).stdout.strip()
    return _ARCHITECTURES.get(machine, machine)


def digest(data: bytes) -> str:
    """What registries call it by."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@attrs.frozen
class Layer:
    """A layer, packed, and the digest of what it unpacks to."""

    packed: bytes = attrs.field(repr=False)
    diff_id: str


def make_layer(files: Mapping[str, bytes | str]) -> Layer:
    """A layer with files that may be run, and symbolic links (texts)."""
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size, entry.mode = len(content), 0o755
                tar.addfile(entry, io.BytesIO(content))
    return Layer(gzip.compress(unpacked.getvalue(), 1, mtime=0), digest(unpacked.getvalue()))


@functools.cache
def shell_layer() -> Layer:
    """The layer that all these images share."""
    assert SHELL is not None
    return make_layer({"bin/busybox": Path(SHELL).read_bytes(), **{f"bin/{name}": "busybox" for name in PROGRAMS}})


@attrs.frozen
class Image:
    """An image as it is pushed: its layers, the lowest first, and its configuration."""

    layers: tuple[Layer, ...]
    architecture: str

    @property
    def config(self) -> bytes:
        """The configuration, as JSON."""
        return json.dumps(
            {
                "architecture": self.architecture,
                "os": "linux",
                "created": "2026-01-01T00:00:00Z",
                "config": {"Cmd": ["sh"], "Env": ["PATH=/bin"]},
                "rootfs": {"type": "layers", "diff_ids": self.diff_ids},
                "history": [{"created_by": "tests"} for _ in self.layers],
            }
        ).encode()

    @property
    def diff_ids(self) -> list[str]:
        """The digests of its layers, unpacked."""
        return [layer.diff_id for layer in self.layers]

    @property
    def own_digest(self) -> str:
        """What a registry calls the layer that no other image has."""
        return digest(self.layers[-1].packed)

    @property
    def manifest(self) -> bytes:
        """The manifest, as JSON."""
        layers = [{"mediaType": LAYER, **_descriptor(layer.packed)} for layer in self.layers]
        config = {"mediaType": CONFIG, **_descriptor(self.config)}
        return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}).encode()


def make_archive(image: Image, names: Iterable[str]) -> bytes:
    """A Docker archive with an image that has all these names, for an engine to load."""
    layers = {f"{layer.diff_id.partition(':')[2]}.tar": gzip.decompress(layer.packed) for layer in image.layers}
    manifest = [{"Config": "config.json", "RepoTags": list(names), "Layers": list(layers)}]
    files = {**layers, "config.json": image.config, "manifest.json": json.dumps(manifest).encode()}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def _descriptor(data: bytes) -> dict[str, object]:
    return {"size": len(data), "digest": digest(data)}


def make_image(name: str, *, own_bytes: int = OWN_BYTES, architecture: str = "") -> Image:
    """The image of that name: always the same, and no other's."""
    own = {"own/name": name.encode(), "own/bytes": random.Random(name).randbytes(own_bytes)}
    return Image((shell_layer(), make_layer(own)), architecture or own_architecture())


@attrs.define(eq=False)
class Pusher:
    """Pushes images to the registry at an address, over one connection."""

    address: str
    password: bool = False
    _connection: http.client.HTTPConnection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._connection = http.client.HTTPConnection(self.address, timeout=30)

    def push(self, names: Iterable[str], **options: object) -> dict[str, Image]:
        """Push images ``path:tag``, made by :func:`make_image`."""
        images = {name: make_image(name, **options) for name in names}  # type: ignore[arg-type]
        for name, image in images.items():
            self.put(name, image)
        self._connection.close()
        return images

    def put(self, name: str, image: Image) -> None:
        """Push one image."""
        path, _, tag = name.rpartition(":")
        for layer in image.layers:
            self._put_blob(path, layer.packed)
        self._put_blob(path, image.config)
        self._ask("PUT", f"/v2/{path}/manifests/{tag}", image.manifest, MANIFEST)

    def _put_blob(self, path: str, data: bytes) -> None:
        mount = f"?mount={digest(data)}&from={BASE}" if data is shell_layer().packed and path != BASE else ""
        status, place = self._ask("POST", f"/v2/{path}/blobs/uploads/{mount}")
        if status == http.client.CREATED:
            return
        joint = "&" if "?" in place else "?"
        self._ask("PUT", f"{place.partition(self.address)[2]}{joint}digest={digest(data)}", data)
        if mount:
            self._put_blob(BASE, data)

    def _ask(self, method: str, target: str, body: bytes = b"", kind: str = BYTES) -> tuple[int, str]:
        headers = {"Content-Type": kind, "Content-Length": str(len(body))}
        if self.password:
            headers["Authorization"] = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"
        self._connection.request(method, target, body, headers)
        response = self._connection.getresponse()
        said = response.read()
        assert response.status < http.client.BAD_REQUEST, f"{method} {target}: {response.status} {said[:500]!r}"
        return response.status, response.headers.get("Location", "")
