"""The images of a Docker archive, by its ``manifest.json``: a list of ``{Config, RepoTags, Layers}``. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from scavenge.core.images.archive_image import MOST_LAYERS, Contents, entry_of, items, names_of, table
from scavenge.core.images.archive_values import Archive, ArchiveEntry, BadArchive

MANIFEST = "manifest.json"
MOST_IMAGES = 20_000
MOST_NAMES = 1_000


def docker_images(contents: Contents) -> Archive:
    """The images that ``manifest.json`` tells of. Raises :class:`BadArchive` where it is no such list."""
    entries: list[ArchiveEntry] = []
    troubles: list[str] = []
    _, _, document = contents.json(MANIFEST, "the document")
    for number, image in enumerate(items(document, MANIFEST, MOST_IMAGES)):
        try:
            entries.append(_image(contents, table(image, "its entry"), troubles))
        except BadArchive as exc:
            troubles.append(f"image {_named(image, number)}: {exc}")
    return Archive(tuple(entries), tuple(troubles))


def _image(contents: Contents, said: Mapping[str, object], troubles: list[str]) -> ArchiveEntry:
    names = names_of(items(said.get("RepoTags"), "RepoTags", MOST_NAMES), troubles)
    return entry_of(contents, names, said.get("Config"), items(said.get("Layers"), "Layers", MOST_LAYERS))


def _named(image: object, number: int) -> str:
    tags = image.get("RepoTags") if isinstance(image, dict) else None
    first = tags[0] if isinstance(tags, list) and tags else None
    return first[:300] if isinstance(first, str) else f"number {number + 1}"
