"""One image of an archive, from its configuration and the places of its layers. Pure.

The configuration decides: its layers are ``rootfs.diff_ids``, and its digest is taken here from its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import attrs
import orjson

from scavenge.core.images.archive_headers import plain_name
from scavenge.core.images.archive_values import ArchiveEntry, ArchiveLayer, BadArchive, Member
from scavenge.core.images.reference import BadReference, canonical
from scavenge.core.naming import shown
from scavenge.images import Platform

BLOBS = "blobs/sha256/"
MOST_LAYERS = 1_000
"""Docker has 127 at most."""
_MOST_LINKS = 8
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEX = re.compile(r"[0-9a-f]{64}")
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
}
_ZSTD_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)


def compression_of(head: bytes) -> str:
    """How bytes that begin like that are compressed; empty: not, as far as that is known. Six bytes are enough."""
    if _ZSTD_SKIPPABLE.match(head):
        return "zstd"
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")


@attrs.frozen
class Contents:
    """The files of an archive: where they are, what is in the documents among them, how they begin."""

    members: Mapping[str, Member]
    documents: Mapping[str, bytes]
    heads: Mapping[str, bytes]

    def find(self, name: str) -> Member | None:
        """The file of a name, which may be a link to it. Raises :class:`BadArchive` for links in a circle."""
        member = self.members.get(plain_name(name))
        for _ in range(_MOST_LINKS):
            if member is None or member.link is None:
                return member
            member = self.members.get(member.link)
        raise BadArchive(f"{shown(name)} is a link to a link to a link")

    def at(self, name: object, what: str) -> Member:
        """The file of a name that a document tells. Raises :class:`BadArchive`."""
        if not isinstance(name, str):
            raise BadArchive(f"the name of {what} is no text")
        if (member := self.find(name)) is None:
            raise BadArchive(f"{what} {shown(name)} is not in the archive")
        return member

    def json(self, name: object, what: str) -> tuple[Member, bytes, Any]:
        """A document: its place, its bytes, its value. Raises :class:`BadArchive`."""
        member = self.at(name, what)
        data = self.documents.get(member.name, b"")
        try:
            return member, data, orjson.loads(data)
        except ValueError:
            raise BadArchive(f"{what} {shown(name)} is no JSON, or too long") from None


def entry_of(contents: Contents, names: Iterable[str], config: object, layers: Sequence[object]) -> ArchiveEntry:
    """The image with that configuration and those layers, told by their names in the archive.

    Raises :class:`BadArchive`.
    """
    member, data, document = contents.json(config, "the configuration")
    digest = f"sha256:{sha256(data).hexdigest()}"
    if (told := _hex_in(str(config))) and f"sha256:{told}" != digest:
        raise BadArchive(f"the configuration {shown(config)} does not have the digest in its name")
    document = table(document, "the configuration")
    diff_ids = _diff_ids(document)
    if len(diff_ids) != len(layers):
        raise BadArchive(f"the configuration tells of {len(diff_ids)} layers, and there are {len(layers)}")
    return ArchiveEntry(
        tuple(dict.fromkeys(names)),
        _platform(document),
        digest,
        member.offset,
        member.size,
        tuple(_layer(contents, name, diff_id) for name, diff_id in zip(layers, diff_ids, strict=True)),
    )


def _layer(contents: Contents, name: object, diff_id: str) -> ArchiveLayer:
    member = contents.at(name, "the layer")
    compression = compression_of(contents.heads[member.name])
    told = member.name.removeprefix(BLOBS) if member.name.startswith(BLOBS) else ""
    digest = f"sha256:{told}" if _HEX.fullmatch(told) else ""
    if digest and not compression and digest != diff_id:
        raise BadArchive(f"the layer {shown(name)} is not the one that the configuration tells of")
    return ArchiveLayer(member.offset, member.size, diff_id, compression, digest)


def _hex_in(name: str) -> str:
    """The digest in the name of a configuration: ``HEX.json``, or ``blobs/sha256/HEX``."""
    stem = name.rpartition("/")[2].removesuffix(".json")
    return stem if _HEX.fullmatch(stem) else ""


def _diff_ids(document: Mapping[str, Any]) -> tuple[str, ...]:
    found = table(document.get("rootfs") or {}, "rootfs of the configuration").get("diff_ids") or []
    if not isinstance(found, list) or len(found) > MOST_LAYERS:
        raise BadArchive("rootfs.diff_ids of the configuration is no list of layers")
    for one in found:
        if not isinstance(one, str) or not _DIGEST.fullmatch(one):
            raise BadArchive(f"rootfs.diff_ids of the configuration has {shown(one)}, which is no digest")
    return tuple(found)


def _platform(document: Mapping[str, Any]) -> Platform:
    os, architecture, variant = (document.get(key) or "" for key in ("os", "architecture", "variant"))
    for word in (os, architecture, variant):
        if not isinstance(word, str) or len(word) > 60 or not word.isprintable():
            raise BadArchive("the configuration has a platform that is none")
    if not os or not architecture:
        raise BadArchive("the configuration does not tell its platform")
    return Platform(os, architecture, variant)


def table(value: object, what: str) -> Mapping[str, Any]:
    """A JSON object. Raises :class:`BadArchive` for anything else."""
    if not isinstance(value, dict):
        raise BadArchive(f"{what} is no JSON object")
    return value


def items(value: object, what: str, most: int) -> list[Any]:
    """A JSON list of no more than that; absent and null are an empty one. Raises :class:`BadArchive`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadArchive(f"{what} is no list")
    if len(value) > most:
        raise BadArchive(f"{what} has {len(value)} entries")
    return value


def names_of(said: Iterable[object], troubles: list[str]) -> list[str]:
    """The canonical names among those that an archive tells; the others are noted."""
    found = []
    for name in said:
        try:
            found.append(canonical(name if isinstance(name, str) else ""))
        except BadReference as exc:
            troubles.append(f"a name of an image is none: {exc}")
    return found
