"""What an archive of container images is made of, as values. Pure; decides nothing.

Places (``offset``, ``size``) are in bytes of the *uncompressed* archive, also where the file is compressed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from scavenge.errors import InfrastructureError
from scavenge.images import Platform

ReadAt: TypeAlias = Callable[[int, int], bytes]
"""``read(offset, size)``: that many bytes from there on, fewer only at the end of the archive.

It is called forwards only: never with a smaller offset than the time before.
"""


class BadArchive(InfrastructureError):
    """A file is no archive of images, or a broken one; the message says why, without the file's name."""


@attrs.frozen
class Member:
    """A file in an archive, or (``link``) another name of one. Names are relative and plain: no ``.``, no ``..``."""

    name: str
    offset: int
    size: int
    link: str | None = None
    """The name of the member that it stands for."""


@attrs.frozen
class ArchiveLayer:
    """Where a layer lies. ``digest`` is that of the bytes that lie there, where the archive tells it."""

    offset: int
    size: int
    diff_id: str
    compression: str = ""
    """``gzip``, ``zstd``, …; empty: a plain tar, whose digest is the diff id."""
    digest: str = ""


@attrs.frozen
class ArchiveEntry:
    """An image in an archive. ``names`` are canonical; an image that was saved without a name has none."""

    names: tuple[str, ...]
    platform: Platform
    config_digest: str
    config_offset: int
    config_size: int
    layers: tuple[ArchiveLayer, ...]

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """The digests of its layers, uncompressed, the lowest first."""
        return tuple(layer.diff_id for layer in self.layers)


@attrs.frozen
class Archive:
    """The images in an archive, and what is wrong with those that it names and cannot give."""

    entries: tuple[ArchiveEntry, ...]
    troubles: tuple[str, ...] = ()
