"""Frozen values about container images that every ring shares: names, facts, how a delivery ended. No decisions here.

An image's *canonical name* is a text with everything said: ``docker.io/library/python:3.12``, or with ``@sha256:…``
instead of the tag. It is what images are told apart by, everywhere but in what users write and engines answer;
:mod:`scavenge.core.images.reference` makes it. Sizes are in bytes.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs


@attrs.frozen
class Platform:
    """What an image's programs run on, in the words of OCI: ``linux``, ``amd64``, perhaps a variant such as ``v8``."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        """``linux/amd64`` or ``linux/arm64/v8``."""
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


@attrs.frozen
class LocalImage:
    """An image that an engine has. ``names`` are canonical, of its tags and of its digests."""

    image_id: str
    names: tuple[str, ...]
    size_bytes: int


@attrs.frozen
class ImageFacts:
    """What an engine says of one image. ``diff_ids`` are the digests of its layers, uncompressed, the lowest first."""

    image_id: str
    platform: Platform
    diff_ids: tuple[str, ...]
    digests: tuple[str, ...]
    """Canonical names with a digest, of the registries that it came from."""
    size_bytes: int


@attrs.frozen
class EngineInfo:
    """What a container engine says of itself. ``engine_id`` tells it from every other one on this machine."""

    product: str
    """``docker`` or ``podman``."""
    version: str
    engine_id: str
    platform: Platform
    root_dir: str
    """The folder with its images, as it is called where the engine runs."""


@attrs.frozen
class DiskRoom:
    """How much room a disk has for us, and how large it is."""

    free_bytes: int
    total_bytes: int


@attrs.frozen
class Transferred:
    """How far a delivery is. ``total_bytes`` is what is known of the whole so far, and may grow."""

    done_bytes: int
    total_bytes: int | None = None


@attrs.frozen
class ImageRecord:
    """What is written beside the archive of one image: enough to find it, to load it and to prove that it is whole.

    ``sha256`` and ``size_bytes`` are those of the archive's file as it is stored, ``created`` is ISO 8601 in UTC.
    """

    image: str
    platform: Platform
    config_digest: str
    diff_ids: tuple[str, ...]
    archive: str
    """The name of the file, beside the record."""
    size_bytes: int
    sha256: str
    created: str
    made_by: str


# --- how a delivery ended


@attrs.frozen
class Delivered:
    """The image is in the engine and is what it should be. ``size_bytes`` is what the engine says of it."""

    size_bytes: int = 0


@attrs.frozen
class Missing:
    """The source does not have the image, and will not have it."""

    why: str


@attrs.frozen
class Denied:
    """The source does not give the image to us: no credentials, or wrong ones. Trying again is of no use."""

    why: str


@attrs.frozen
class Throttled:
    """The source's lane is to be left alone for a while: ``retry_after_s`` where it says so itself."""

    why: str
    retry_after_s: float | None = None


@attrs.frozen
class Unfit:
    """What the source has under this name is not the image: another platform, a wrong digest, a broken archive."""

    why: str


@attrs.frozen
class Broken:
    """The delivery broke on the way: a connection that was cut, a server that failed, a lock. Again later."""

    why: str


@attrs.frozen
class DiskFull:
    """There was no room for the image. No fault of the source."""

    why: str


@attrs.frozen
class EngineSilent:
    """The engine did not answer, or not in time. No fault of the source."""

    why: str


DeliveryEnd: TypeAlias = "Delivered | Missing | Denied | Throttled | Unfit | Broken | DiskFull | EngineSilent"


# --- how a removal ended


@attrs.frozen
class Removed:
    """The name is gone; the engine frees the layers that nothing else has."""


@attrs.frozen
class InUse:
    """A container has the image: it is left."""

    why: str


@attrs.frozen
class NotRemoved:
    """It could not be removed now."""

    why: str


RemovalEnd: TypeAlias = "Removed | InUse | NotRemoved"
