"""Archives of container images for tests, as ``docker save`` (old and new) and tools of the OCI write them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence

import attrs
import zstandard

AMD64: Mapping[str, str] = {"os": "linux", "architecture": "amd64"}


def hex_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_of(data: bytes) -> str:
    return f"sha256:{hex_of(data)}"


def layer_of(**files: str) -> bytes:
    """A layer: a tar with those files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            add(tar, name, text.encode())
    return out.getvalue()


@attrs.frozen
class Made:
    """An image to be packed, with the names that it has in the archive, as they are written there."""

    names: tuple[str, ...] = ("x:1",)
    layers: tuple[bytes, ...] = (b"the lowest layer" * 50, b"the layer above it" * 90)
    platform: Mapping[str, str] = AMD64

    @property
    def diff_ids(self) -> tuple[str, ...]:
        return tuple(map(digest_of, self.layers))

    @property
    def config(self) -> bytes:
        return json.dumps({**self.platform, "rootfs": {"type": "layers", "diff_ids": self.diff_ids}}).encode()

    @property
    def config_digest(self) -> str:
        return digest_of(self.config)


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def add_link(tar: tarfile.TarFile, name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    tar.addfile(member)


def tar_of(members: Mapping[str, bytes], format: int = tarfile.GNU_FORMAT) -> bytes:  # noqa: A002 - as tarfile has it
    """A tar with those members, and nothing else."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, data in members.items():
            add(tar, name, data)
    return out.getvalue()


def old_docker(images: Iterable[Made]) -> bytes:
    """``docker save`` before 25: a folder a layer, and a link where a layer comes again."""
    out, entries, where = io.BytesIO(), [], dict[str, str]()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number, image in enumerate(images):
            if f"{hex_of(image.config)}.json" not in tar.getnames():
                add(tar, f"{hex_of(image.config)}.json", image.config)
            names = []
            for level, layer in enumerate(image.layers):
                folder = hex_of(f"{number} {level}".encode())
                head = tarfile.TarInfo(f"{folder}/")
                head.type = tarfile.DIRTYPE
                tar.addfile(head)
                add(tar, f"{folder}/VERSION", b"1.0")
                add(tar, f"{folder}/json", b'{"id": "of old"}')
                names.append(f"{folder}/layer.tar")
                if digest_of(layer) in where:
                    add_link(tar, names[-1], f"../{where[digest_of(layer)]}")
                else:
                    add(tar, names[-1], layer)
                    where[digest_of(layer)] = names[-1]
            entries.append({"Config": f"{hex_of(image.config)}.json", "RepoTags": list(image.names), "Layers": names})
        add(tar, "manifest.json", json.dumps(entries).encode())
        add(tar, "repositories", b"{}")
    return out.getvalue()


def new_docker(images: Iterable[Made], pack: str = "") -> bytes:
    """``docker save`` from 25 on: blobs; with ``pack`` its layers are compressed, as the containerd store has them."""
    blobs: dict[str, bytes] = {}
    entries, descriptors = [], []
    for image in images:
        layers = [packed(layer, pack) for layer in image.layers]
        descriptors.append(_oci_image(blobs, image, layers, pack))
        names = [f"blobs/sha256/{hex_of(layer)}" for layer in layers]
        config = f"blobs/sha256/{hex_of(image.config)}"
        entries.append({"Config": config, "RepoTags": list(image.names) or None, "Layers": names})
    index = json.dumps({"schemaVersion": 2, "manifests": descriptors}).encode()
    last = {"index.json": index, "manifest.json": json.dumps(entries).encode(), "oci-layout": b"{}"}
    return tar_of(blobs | last)


def oci(images: Iterable[Made], pack: str = "gzip", annotation: str = "io.containerd.image.name") -> bytes:
    """An OCI layout without ``manifest.json``, as buildx and skopeo write it."""
    blobs: dict[str, bytes] = {}
    descriptors = []
    for image in images:
        own = _oci_image(blobs, image, [packed(layer, pack) for layer in image.layers], pack)
        descriptors += [own | {"annotations": {annotation: name}} for name in image.names] or [own]
    index = json.dumps({"schemaVersion": 2, "manifests": descriptors}).encode()
    return tar_of({"oci-layout": b"{}", "index.json": index} | blobs)


def _oci_image(blobs: dict[str, bytes], image: Made, layers: Sequence[bytes], pack: str) -> dict[str, object]:
    media = "application/vnd.oci.image.layer.v1.tar" + (f"+{pack}" if pack else "")
    config = descriptor(blobs, image.config, "application/vnd.oci.image.config.v1+json")
    own = {"schemaVersion": 2, "config": config, "layers": [descriptor(blobs, layer, media) for layer in layers]}
    return descriptor(blobs, json.dumps(own).encode(), "application/vnd.oci.image.manifest.v1+json")


def descriptor(blobs: dict[str, bytes], data: bytes, media: str) -> dict[str, object]:
    """Add a blob, and what tells of it."""
    blobs[f"blobs/sha256/{hex_of(data)}"] = data
    return {"mediaType": media, "digest": digest_of(data), "size": len(data)}


def packed(data: bytes, how: str) -> bytes:
    """The data, compressed by ``gzip``, ``zstd`` or not at all."""
    if how == "gzip":
        return gzip.compress(data, mtime=0)
    return zstandard.ZstdCompressor().compress(data) if how == "zstd" else data


def reading(data: bytes):
    """A ``ReadAt`` for bytes that must be read forwards."""
    before = 0

    def read(offset: int, size: int) -> bytes:
        nonlocal before
        assert offset >= before, f"from {before} back to {offset}"
        before = offset
        return data[offset : offset + size]

    return read
