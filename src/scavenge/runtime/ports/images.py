"""Container images: the engine, where they come from, what a run has brought."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from scavenge.images import (
    DeliveryEnd,
    DiskRoom,
    EngineInfo,
    ImageFacts,
    ImageRecord,
    LocalImage,
    Platform,
    RemovalEnd,
    Transferred,
)

Report: TypeAlias = Callable[[Transferred], None]
"""Is told now and then how far a transfer is; neither waits nor raises."""


class ImageEngine(Protocol):
    """A container engine on this machine. Names are canonical (see :mod:`scavenge.images`).

    Every call raises :class:`scavenge.errors.EngineError` when it cannot be carried out, with ``silent`` set when the
    engine is not there, or says nothing in time; cancelled, it has closed its connection, which ends a pull or a load.
    """

    async def info(self) -> EngineInfo:
        """What it is, where, and what its images have to be for."""
        ...

    async def list_images(self) -> Sequence[LocalImage]:
        """All images that it has."""
        ...

    async def inspect(self, image: str) -> ImageFacts | None:
        """One image; ``None``: it is not there."""
        ...

    async def pull(self, image: str, platform: Platform, report: Report) -> DeliveryEnd:
        """Have the engine fetch *image* from the registry in its name, with the credentials for that.

        What goes wrong is an end, never an exception. That it is there under its name is not checked here.
        """
        ...

    async def load(self, archive: AsyncIterator[bytes], platform: Platform) -> DeliveryEnd:
        """Have the engine take in a Docker archive with one image. What *archive* raises ends it, and is raised."""
        ...

    async def tag(self, image: str, name: str) -> None:
        """Give an image another name."""
        ...

    async def remove(self, image: str) -> RemovalEnd:
        """Take a name away, and with its last name the image. What is not there is removed. Never forced."""
        ...

    def save(self, image: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The image as a Docker archive, as a stream. Leaving the block early ends it."""
        ...

    def disk(self) -> DiskRoom | None:
        """The disk of its images; ``None`` where it cannot be seen from here. Known once ``info`` was read. Blocks."""
        ...


class ImageSource(Protocol):
    """A way for images to come to the engine. The pool tries them in order."""

    @property
    def label(self) -> str:
        """What it is called in messages: ``shipments``, ``mirror registry.example:5000/hub``, ``store "lab"``."""
        ...

    def lane(self, image: str) -> str:
        """What is throttled and counted together: a registry's host, a store's label."""
        ...

    async def deliver(self, image: str, report: Report) -> DeliveryEnd:
        """Bring an image into the engine under its canonical name, and check that it is what it should be.

        What goes wrong is an end, never an exception. Cancelled, it may leave layers in the engine, and no name.
        """
        ...


class ImageLedger(Protocol):
    """Keeps on disk what this process brought and what it needs, so that what it leaves behind can be removed.

    Calls block (a small write), raise nothing, and may come from any thread, one at a time.
    """

    def need(self, images: Sequence[str]) -> None:
        """Claim images, so that no other process removes them; the claims end with this process."""
        ...

    def bring(self, image: str) -> None:
        """Note that an image is not there and will be brought. On disk before it returns."""
        ...

    def let_go(self, image: str) -> None:
        """Note that an image that was brought is gone, or is not ours to remove any more."""
        ...

    def is_needed_elsewhere(self, image: str) -> bool:
        """Whether another process that lives claims it."""
        ...


class ImageStore(Protocol):
    """A place with archives of container images, each with its :class:`scavenge.images.ImageRecord`.

    Calls raise :class:`scavenge.plugin.StoreError` (or anything) when they cannot be carried out; cancelled, they leave
    nothing that :meth:`find` would find, unless it is whole. A record with an empty ``sha256`` is that of a store which
    checks what it gives; its ``archive`` is then whatever the store likes.

    versionadded: 0.1
    """

    async def find(self, image: str, platform: str) -> ImageRecord | None:
        """The record of an image for a platform such as ``linux/amd64``; ``None``: it is not there."""
        ...

    def open_archive(self, record: ImageRecord) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The archive's file, from its first byte on, as it is stored. It is checked by whoever reads it."""
        ...

    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        """Store the file at the path *archive* and its record; only when all is there is it found."""
        ...


class StoreFiles(Protocol):
    """Files by their names, such as ``astropy-1a2b3c.tar``: what a store of the usual layout is made of.

    Names have letters, digits and ``.-_/`` only. Calls raise anything when they cannot be carried out.

    versionadded: 0.1
    """

    def open_file(self, name: str, start: int = 0) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A file's bytes from *start* on. Entering raises ``FileNotFoundError`` where there is no such file."""
        ...

    async def put_file(self, name: str, file: str, report: Report) -> None:
        """Store the file at the path *file* under a name; one that is there is replaced, and never seen half."""
        ...
