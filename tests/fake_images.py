"""Container images for tests: small, made up, and the Docker archives that they come in."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable

import attrs

from scavenge.images import Platform

AMD64 = Platform("linux", "amd64")
ARM64 = Platform("linux", "arm64")


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@attrs.frozen
class FakeImage:
    """An image. Two with other layers or another platform have other ids; ``layers`` need not be tars."""

    layers: tuple[bytes, ...] = (b"a layer",)
    platform: Platform = AMD64
    said_size: int | None = None
    """How large the engine says that it is; by default what its layers have."""
    digests: tuple[str, ...] = ()
    """Canonical names with a digest; a pull adds that of where it came from."""

    @property
    def diff_ids(self) -> tuple[str, ...]:
        return tuple(digest_of(layer) for layer in self.layers)

    @property
    def config(self) -> bytes:
        where = {"os": self.platform.os, "architecture": self.platform.architecture, "variant": self.platform.variant}
        rootfs = {"type": "layers", "diff_ids": list(self.diff_ids)}
        return json.dumps({**{key: value for key, value in where.items() if value}, "rootfs": rootfs}).encode()

    @property
    def image_id(self) -> str:
        return digest_of(self.config)

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.layers)) if self.said_size is None else self.said_size

    @property
    def manifest_digest(self) -> str:
        """What a registry would call it."""
        return digest_of(b"manifest of " + self.config)


def docker_archive(images: Iterable[tuple[str | None, FakeImage]]) -> bytes:
    """What ``docker save`` writes, for images and the names that they have in it; ``None``: no name."""
    out = io.BytesIO()
    entries = []
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, image in images:
            layers = [f"{diff_id[7:]}.tar" for diff_id in image.diff_ids]
            config = f"{image.image_id[7:]}.json"
            for member, data in [(config, image.config), *zip(layers, image.layers, strict=True)]:
                _add(tar, member, data)
            entries.append({"Config": config, "RepoTags": [name] if name else None, "Layers": layers})
        _add(tar, "manifest.json", json.dumps(entries).encode())
    return out.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def images_in(archive: bytes) -> list[tuple[tuple[str, ...], FakeImage]]:
    """The images of a Docker archive, each with the names that it has in it.

    Raises :class:`ValueError` for what an engine would not take.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            return [_entry(tar, entry) for entry in json.loads(_read(tar, "manifest.json"))]
    except (tarfile.TarError, KeyError, TypeError) as exc:
        raise ValueError(f"archive/tar: invalid tar header ({exc})") from exc


def _entry(tar: tarfile.TarFile, entry: dict[str, list[str] | str | None]) -> tuple[tuple[str, ...], FakeImage]:
    config = json.loads(_read(tar, str(entry["Config"])))
    layers = tuple(_read(tar, name) for name in entry["Layers"] or ())
    platform = Platform(config["os"], config["architecture"], config.get("variant", ""))
    image = FakeImage(layers, platform)
    if list(image.diff_ids) != config["rootfs"]["diff_ids"]:
        raise ValueError("invalid diffID for layer 0")
    return tuple(entry["RepoTags"] or ()), image


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    held = tar.extractfile(name)
    if held is None:
        raise KeyError(name)
    data = held.read()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
