"""Manifests of images in a registry: what is read out of them, and how they are written. Pure.

OCI's kinds are known and those of Docker's second schema. What a registry has is untrusted: what is not as it should be
is a :class:`BadManifest`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

import attrs
import orjson

from scavenge.core.images.distribution import json_object
from scavenge.core.naming import shown
from scavenge.images import Platform

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
ACCEPTED = ", ".join((OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX))
"""What is asked for; a registry turns nothing into what is not named here."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class BadManifest(ValueError):
    """What a registry has under a name is no manifest of an image; the message says what it is."""


@attrs.frozen
class Blob:
    """What a manifest says of one piece: a config, a layer, or another manifest."""

    digest: str
    size_bytes: int
    media_type: str = ""
    annotations: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Manifest:
    """The manifest of one image. ``data`` is what its digest is of."""

    digest: str
    media_type: str
    config: Blob
    layers: tuple[Blob, ...]
    data: bytes = attrs.field(repr=False)


@attrs.frozen
class Listed:
    """A manifest in an index, and the platform that it is for, where it says so."""

    blob: Blob
    platform: Platform | None


@attrs.frozen
class Index:
    """The manifests of one image for several platforms."""

    digest: str
    manifests: tuple[Listed, ...]

    def choose(self, platform: Platform) -> Blob | None:
        """The manifest for a platform; ``None``: there is none."""
        fitting = [one for one in self.manifests if one.platform is not None and fits(one.platform, platform)]
        exact = [one for one in fitting if one.platform == platform]
        return (exact or fitting)[0].blob if fitting else None


def is_digest(text: object) -> bool:
    """Whether a text is a digest that can be checked here."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def digest_of(data: bytes) -> str:
    """The digest of some bytes."""
    return f"sha256:{sha256(data).hexdigest()}"


def fits(has: Platform, wanted: Platform) -> bool:
    """Whether an image for one platform is one for another; a variant that one of them does not say matches."""
    if (has.os, has.architecture) != (wanted.os, wanted.architecture):
        return False
    return not has.variant or not wanted.variant or has.variant == wanted.variant


def parse_manifest(data: bytes, media_type: str) -> Manifest | Index:
    """What a registry has under a name, of OCI's kinds and of Docker's second schema. Raises :class:`BadManifest`.

    *media_type* is that of the reply; the document's own one counts more.
    """
    document = json_object(data)
    if not document:
        raise BadManifest("it is no manifest: no JSON object")
    kind = document.get("mediaType") or media_type.partition(";")[0].strip()
    if document.get("schemaVersion") == 1:
        raise BadManifest("its manifest is of the old schema 1, which no longer can be pulled; push the image again")
    if isinstance(document.get("manifests"), list):
        return Index(digest_of(data), tuple(_listed(one) for one in document["manifests"]))
    if "config" not in document or not isinstance(document.get("layers"), list):
        raise BadManifest(f"it is no image: a document of type {shown(kind)}")
    layers = tuple(_blob(one, "layers") for one in document["layers"])
    return Manifest(digest_of(data), str(kind), _blob(document["config"], "config"), layers, data)


@attrs.frozen
class Config:
    """What the config of an image says."""

    platform: Platform
    diff_ids: tuple[str, ...]
    created: str = ""


def parse_config(data: bytes) -> Config:
    """The config of an image. Raises :class:`BadManifest`."""
    document = json_object(data)
    rootfs = document.get("rootfs")
    diff_ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    platform = _platform(document)
    if platform is None or not isinstance(diff_ids, list) or not all(map(is_digest, diff_ids)):
        raise BadManifest("its config is not that of an image")
    created = document.get("created")
    return Config(platform, tuple(diff_ids), created if isinstance(created, str) else "")


def manifest_json(config: Blob, layers: Iterable[Blob], annotations: Mapping[str, str] | None = None) -> bytes:
    """The manifest of an image in OCI's form; the same for the same image."""
    document: dict[str, object] = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": _descriptor(config),
        "layers": [_descriptor(layer) for layer in layers],
    }
    if annotations:
        document["annotations"] = dict(annotations)
    return orjson.dumps(document)


def index_json(manifests: Iterable[Listed]) -> bytes:
    """An index of images for several platforms, in OCI's form."""
    listed = [_descriptor(one.blob) | _platform_json(one.platform) for one in manifests]
    return orjson.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed})


def _descriptor(blob: Blob) -> dict[str, object]:
    known = {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size_bytes}
    return known | ({"annotations": dict(blob.annotations)} if blob.annotations else {})


def _platform_json(platform: Platform | None) -> dict[str, object]:
    return {} if platform is None else {"platform": attrs.asdict(platform, filter=lambda _, value: bool(value))}


def _blob(value: object, where: str) -> Blob:
    if not isinstance(value, dict):
        raise BadManifest(f"its manifest is broken: {where}: expected a table, got {shown(value)}")
    digest, size, kind = (value.get(key) for key in ("digest", "size", "mediaType"))
    if not is_digest(digest):
        raise BadManifest(f"its manifest is broken: {where}: expected a sha256 digest, got {shown(digest)}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise BadManifest(f"its manifest is broken: {where}: expected a size, got {shown(size)}")
    notes = value.get("annotations")
    annotations = {k: v for k, v in notes.items() if isinstance(v, str)} if isinstance(notes, dict) else {}
    return Blob(str(digest), size, kind if isinstance(kind, str) else "", annotations)


def _listed(value: object) -> Listed:
    platform = value.get("platform") if isinstance(value, dict) else None
    return Listed(_blob(value, "manifests"), _platform(platform) if isinstance(platform, dict) else None)


def _platform(value: Mapping[str, object]) -> Platform | None:
    os, architecture, variant = (value.get(key) or "" for key in ("os", "architecture", "variant"))
    if not isinstance(os, str) or not isinstance(architecture, str) or not isinstance(variant, str):
        return None
    return Platform(os, architecture, variant) if os and architecture else None
