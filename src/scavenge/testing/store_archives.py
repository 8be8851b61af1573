"""Small archives of container images, made for checks of stores, and what is in one that comes back.

The archives are of the kind that ``docker save`` writes. What a store gives may be put together anew, as long as it is
the same image: the same configuration and the same layers, which may be compressed by gzip.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from random import Random

import attrs
import orjson

from scavenge.core.images.layout import archive_name
from scavenge.images import ImageRecord, Platform

PLATFORM = Platform("linux", "amd64")
CREATED = "2026-01-31T12:00:00Z"


@attrs.frozen
class SmallArchive:
    """An archive on disk and its record. ``config_digest`` and ``diff_ids`` of the record are what is compared."""

    record: ImageRecord
    path: Path


def make_archive(folder: Path, image: str, size_bytes: int, seed: int = 0) -> SmallArchive:
    """Write an archive of one image with one layer, in which a file of that size lies. Blocks."""
    layer = _tar({"data": Random(seed).randbytes(size_bytes), "seed": str(seed).encode()})  # noqa: S311 - no secret
    diff_id = hashlib.sha256(layer).hexdigest()
    config = orjson.dumps(
        {
            "architecture": PLATFORM.architecture,
            "os": PLATFORM.os,
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff_id}"]},
        }
    )
    digest = hashlib.sha256(config).hexdigest()
    manifest = [{"Config": f"{digest}.json", "RepoTags": [image], "Layers": [f"{diff_id}.tar"]}]
    members = {f"{digest}.json": config, f"{diff_id}.tar": layer, "manifest.json": orjson.dumps(manifest)}
    data = _tar(members)
    sha256 = hashlib.sha256(data).hexdigest()
    record = ImageRecord(
        image=image,
        platform=PLATFORM,
        config_digest=f"sha256:{digest}",
        diff_ids=(f"sha256:{diff_id}",),
        archive=archive_name(image, PLATFORM, sha256),
        size_bytes=len(data),
        sha256=sha256,
        created=CREATED,
        made_by="scavenge.testing",
    )
    path = folder / f"{sha256[:16]}-{seed}.tar"
    path.write_bytes(data)
    return SmallArchive(record, path)


def contents_of(data: bytes) -> tuple[str, tuple[str, ...]]:
    """The digest of the configuration and the diff ids of the layers in an archive with one image.

    Raises ``ValueError``, ``KeyError``, ``OSError`` or ``tarfile.TarError`` for what is no such archive.
    """
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:

        def read(name: str) -> bytes:
            file = archive.extractfile(name)
            if file is None:
                raise ValueError(f"{name} is no file")
            return file.read()

        (entry,) = orjson.loads(read("manifest.json"))
        config = read(entry["Config"])
        layers = [read(name) for name in entry["Layers"]]
    plain = [gzip.decompress(layer) if layer.startswith(b"\x1f\x8b") else layer for layer in layers]
    return _digest(config), tuple(map(_digest, plain))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _tar(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
