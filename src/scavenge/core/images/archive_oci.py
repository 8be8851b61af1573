"""The images of an OCI layout in an archive, by its ``index.json``. Pure.

Source: the OCI image specification, "Image Layout" and "Image Index". An image's name is in an annotation of its
descriptor: in full in ``io.containerd.image.name``, or in ``org.opencontainers.image.ref.name``, which other tools use
for a bare tag; that names no image. An index inside of the index is an image for several platforms, under its names.
Indexes tell also of what is no image (attestations), and of images for platforms that were not packed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from scavenge.core.images.archive_image import BLOBS, MOST_LAYERS, Contents, entry_of, items, names_of, table
from scavenge.core.images.archive_values import Archive, ArchiveEntry, BadArchive, Member

INDEX = "index.json"
MOST_DESCRIPTORS = 20_000
DEEPEST = 4

_FULL_NAME, _REF_NAME = "io.containerd.image.name", "org.opencontainers.image.ref.name"
_KIND_OF_REFERENCE = "vnd.docker.reference.type"
_SHA256 = "sha256:"


@attrs.define
class _Found:
    entries: list[ArchiveEntry] = attrs.field(factory=list)
    troubles: list[str] = attrs.field(factory=list)
    seen: int = 0


def oci_images(contents: Contents) -> Archive:
    """The images that ``index.json`` tells of. Raises :class:`BadArchive` where it is no index."""
    found = _Found()
    _, _, document = contents.json(INDEX, "the document")
    _read_index(contents, document, [], found, 1)
    return Archive(tuple(found.entries), tuple(found.troubles))


def _read_index(contents: Contents, document: object, names: Sequence[str], found: _Found, depth: int) -> None:
    manifests = items(table(document, "an index").get("manifests"), "manifests", MOST_DESCRIPTORS)
    for descriptor in manifests:
        found.seen += 1
        if found.seen > MOST_DESCRIPTORS:
            raise BadArchive(f"it tells of more than {MOST_DESCRIPTORS} images")
        try:
            _read_descriptor(contents, table(descriptor, "a descriptor"), names, found, depth)
        except BadArchive as exc:
            found.troubles.append(f"image {', '.join(names) or f'number {found.seen}'}: {exc}")


def _read_descriptor(
    contents: Contents, descriptor: Mapping[str, Any], names: Sequence[str], found: _Found, depth: int
) -> None:
    annotations = descriptor.get("annotations") or {}
    annotations = table(annotations, "the annotations of a descriptor")
    if _KIND_OF_REFERENCE in annotations:
        return
    own = [*names, *names_of(_names(annotations), found.troubles)]
    blob = _blob(descriptor)
    if contents.find(blob) is None and names:
        return  # for another platform, and not in this archive
    document = table(_document(contents, blob, descriptor), "a manifest")
    if "manifests" in document:
        if depth == DEEPEST:
            raise BadArchive("an index in an index in an index")
        _read_index(contents, document, own, found, depth + 1)
        return
    layers = items(document.get("layers"), "the layers of a manifest", MOST_LAYERS)
    config = table(document.get("config"), "the configuration of a manifest")
    blobs = [_sized(contents, table(layer, "a layer of a manifest")) for layer in layers]
    found.entries.append(entry_of(contents, own, _sized(contents, config), blobs))


def _names(annotations: Mapping[str, Any]) -> Iterator[object]:
    full, ref = annotations.get(_FULL_NAME), annotations.get(_REF_NAME)
    if full is not None:
        yield full
    elif isinstance(ref, str) and ("/" in ref or ":" in ref):
        yield ref


def _blob(descriptor: Mapping[str, Any]) -> str:
    digest = descriptor.get("digest")
    if not isinstance(digest, str) or not digest.startswith(_SHA256):
        raise BadArchive("a descriptor has no sha256 digest")
    return BLOBS + digest.removeprefix(_SHA256)


def _sized(contents: Contents, descriptor: Mapping[str, Any]) -> str:
    """The name of a blob that has the size that its descriptor tells."""
    name = _blob(descriptor)
    _check_size(contents.at(name, "the blob"), descriptor)
    return name


def _check_size(member: Member, descriptor: Mapping[str, Any]) -> None:
    size = descriptor.get("size")
    if isinstance(size, int) and size != member.size:
        raise BadArchive(f"the blob {member.name} has {member.size} bytes instead of {size}")


def _document(contents: Contents, name: str, descriptor: Mapping[str, Any]) -> object:
    member, _, document = contents.json(name, "the manifest")
    _check_size(member, descriptor)
    return document
