"""What a container engine's answers say, as values. Pure.

Docker and Podman differ: Podman makes up an ``ID`` anew for each answer, names processors as Go does, and has ``null``
where Docker has an empty list, or the other way round. What is not as it should be raises :class:`BadAnswer`; a name
that is no reference, such as ``<none>:<none>``, is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

import attrs

from scavenge.core.images.reference import BadReference, canonical
from scavenge.core.naming import one_line, shown
from scavenge.images import EngineInfo, ImageFacts, LocalImage, Platform

_PROCESSORS = {
    "x86_64": ("amd64", ""),
    "aarch64": ("arm64", ""),
    "armv8l": ("arm64", ""),
    "armv7l": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "i386": ("386", ""),
    "i686": ("386", ""),
    "loongarch64": ("loong64", ""),
}
"""What Linux calls a processor, and what images call it, with its variant where that matters."""


class BadAnswer(ValueError):
    """An answer is not what the engine's API says; the message tells what it lacks."""


@attrs.frozen
class About:
    """What ``GET /info`` says. ``kernel`` is that of the machine that the engine runs on."""

    info: EngineInfo
    kernel: str


def about_of(body: bytes, *, is_podman: bool) -> About:
    """What an engine says of itself. Raises :class:`BadAnswer`."""
    said = _table(_json(body))
    product = "podman" if is_podman else "docker"
    root_dir = _text(said, "DockerRootDir")
    architecture = _text(said, "Architecture")
    platform = Platform(_text(said, "OSType").lower(), *_PROCESSORS.get(architecture, (architecture, "")))
    if not platform.os or not architecture:
        raise BadAnswer(f"no platform in {_shown(body)}")
    own_id = "" if is_podman else _text(said, "ID")
    place = f"{product} {_text(said, 'Name')} {root_dir}"
    engine_id = own_id or sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return About(
        EngineInfo(product, _text(said, "ServerVersion"), engine_id, platform, root_dir), _text(said, "KernelVersion")
    )


def images_of(body: bytes) -> list[LocalImage]:
    """All images of a listing. Raises :class:`BadAnswer`."""
    rows = _json(body)
    if rows is None:  # Go's empty list
        return []
    if not isinstance(rows, list):
        raise BadAnswer(f"no list in {_shown(body)}")
    return [_local_image(_table(row)) for row in rows]


def _local_image(row: dict[str, object]) -> LocalImage:
    names = (*_names(row.get("RepoTags")), *_names(row.get("RepoDigests")))
    return LocalImage(_text(row, "Id"), tuple(dict.fromkeys(names)), _size(row))


def facts_of(body: bytes) -> ImageFacts:
    """What an engine says of one image. Raises :class:`BadAnswer`."""
    said = _table(_json(body))
    platform = Platform(_text(said, "Os"), _text(said, "Architecture"), _text(said, "Variant"))
    rootfs = said.get("RootFS")
    layers = rootfs.get("Layers") if isinstance(rootfs, dict) else None
    diff_ids = tuple(layer for layer in layers if isinstance(layer, str)) if isinstance(layers, list) else ()
    return ImageFacts(_text(said, "Id"), platform, diff_ids, tuple(_names(said.get("RepoDigests"))), _size(said))


def _names(said: object) -> Iterator[str]:
    """The canonical form of those in a list that are names."""
    for text in said if isinstance(said, list) else ():
        try:
            yield canonical(text if isinstance(text, str) else "")
        except BadReference:
            continue


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise BadAnswer(f"no JSON: {_shown(body)}") from None


def _table(said: object) -> dict[str, object]:
    if not isinstance(said, dict):
        raise BadAnswer(f"no table, but {shown(said)}")
    return said


def _text(said: dict[str, object], key: str) -> str:
    found = said.get(key)
    return found if isinstance(found, str) else ""


def _size(said: dict[str, object]) -> int:
    found = said.get("Size")
    return found if isinstance(found, int) and found > 0 else 0


def _shown(body: bytes) -> str:
    return one_line(body[:200].decode("utf-8", "replace"), 100)
