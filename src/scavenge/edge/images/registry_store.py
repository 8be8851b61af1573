"""An image store that is a registry: images go there as images, so that any engine can pull them from there, too.

Decides under which names they are there, and what of a registry's answers is an image of a platform. An image is at the
place where a mirror with the same prefix would have it; one that is named by a digest has the tag ``sha256-…`` there,
unless it was put there by its digest. What others pushed is found like what was shipped.

Invariant: an image is put under its name when all of its blobs are there, so what is found is whole. Images for other
platforms under the same name stay.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import attrs
import trio

from scavenge.core.images.archive_values import ArchiveEntry, ArchiveLayer, BadArchive
from scavenge.core.images.layout import read_platform
from scavenge.core.images.manifests import (
    OCI_CONFIG,
    OCI_INDEX,
    OCI_MANIFEST,
    BadManifest,
    Blob,
    Listed,
    digest_of,
    index_json,
    manifest_json,
)
from scavenge.core.images.reference import ImageName, check_prefix, parts, under
from scavenge.core.naming import one_line
from scavenge.core.redaction import Redactor
from scavenge.edge.images.archive_file import read_file
from scavenge.edge.images.credentials import Credentials
from scavenge.edge.images.inflating import CannotInflate
from scavenge.edge.images.registry_archive import ImageArchive
from scavenge.edge.images.registry_client import Registries, Registry, open_registries
from scavenge.edge.images.registry_images import find_image, image_of, images_for_others, tag_of
from scavenge.edge.images.registry_layers import LayerFile, read_config
from scavenge.edge.images.registry_wire import CLOSE_S, RegistryFault
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import StoreError
from scavenge.images import ImageRecord, Platform, Throttled, Transferred
from scavenge.runtime.ports import Report

THREADS = 2
"""How many layers are packed at a time."""


def _check(config: object, field: attrs.Attribute[Any], prefix: str) -> None:
    check_prefix(prefix)


@attrs.frozen
class RegistryStoreConfig:
    """The keys of an ``[[images.store]]`` of type ``registry``. Credentials are those of Docker and Podman."""

    prefix: str = attrs.field(validator=_check)


@attrs.define(eq=False)
class RegistryStore:
    """The images under a prefix of a registry."""

    prefix: str
    registries: Registries
    redact: Callable[[str], str] = str
    """Takes our passwords out of what a registry says."""
    threads: LimitedThreads = attrs.field(factory=lambda: LimitedThreads(THREADS))
    _known: dict[str, tuple[Blob, str]] = attrs.field(factory=dict)
    """Layers that were put here, by their diff ids: the blob, and the repository that has it."""

    async def find(self, image: str, platform: str) -> ImageRecord | None:
        """The record of an image for a platform; ``None``: it is not there. Its archive is named by its manifest.

        Raises :class:`StoreError`.
        """
        with self._told():
            registry, place = await self._place(image)
            found = await find_image(registry, place, read_platform(platform))
            return None if found is None else found.record(image)

    @asynccontextmanager
    async def open_archive(self, record: ImageRecord) -> AsyncIterator[AsyncIterator[bytes]]:
        """The image as a Docker archive. It has no digest of its own: each of its parts is checked as it comes.

        Entering and reading raise :class:`StoreError`.
        """
        with self._told():
            registry, place = await self._place(record.image)
            found = await image_of(registry, place.path, record.archive)
            archive = ImageArchive(registry.requests, place.path, deque(found.parts(record.image)))
        try:
            yield _Told(archive, self)
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await archive.close()

    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        """Put the image of an archive there; layers that are there are not sent again.

        Raises :class:`StoreError`. Cancelled, it leaves at most blobs that nothing names.
        """
        with self._told():
            registry, place = await self._place(record.image)
            entry = await self._entry(record, Path(archive))
            progress = _Progress(report, sum(layer.size for layer in entry.layers))
            layers: dict[str, Blob] = {}
            for layer in entry.layers:
                if layer.diff_id not in layers:
                    layers[layer.diff_id] = await self._put_layer(registry, place.path, Path(archive), layer, progress)
                progress.next(layer.size)
            config = await self._put_config(registry, place.path, Path(archive), entry)
            data = manifest_json(config, (layers[layer.diff_id] for layer in entry.layers))
            await self._put_manifest(registry, place, entry.platform, data)

    async def _place(self, image: str) -> tuple[Registry, ImageName]:
        place = parts(under(self.prefix, image))
        return await self.registries.of(place.registry), place

    # --- putting

    async def _entry(self, record: ImageRecord, archive: Path) -> ArchiveEntry:
        _, found = await self.threads.run(partial(read_file, archive, trio.from_thread.check_cancelled))
        for entry in found.entries:
            if (entry.config_digest, entry.diff_ids) == (record.config_digest, record.diff_ids):
                return entry
        raise BadArchive(f"the image of its record, {record.config_digest}, is not in it; pack the image again")

    async def _put_layer(
        self, registry: Registry, path: str, archive: Path, layer: ArchiveLayer, progress: _Progress
    ) -> Blob:
        # one that is compressed already may be another blob with the same layer in it
        known, source = (None, "") if layer.compression else self._known.get(layer.diff_id, (None, ""))
        file = LayerFile(archive, layer, self.threads)
        try:
            blob = known or await file.blob()
            report = partial(progress.part, layer.size)
            await registry.put_blob(path, blob, file.read_at, report, "" if source == path else source)
        finally:
            file.close()
        if not layer.compression:
            self._known[layer.diff_id] = (blob, path)
        return blob

    async def _put_config(self, registry: Registry, path: str, archive: Path, entry: ArchiveEntry) -> Blob:
        data = await self.threads.run(partial(read_config, archive, entry))

        async def read_at(offset: int, count: int) -> bytes:
            await trio.lowlevel.checkpoint()
            return data[offset : offset + count]

        blob = Blob(entry.config_digest, len(data), OCI_CONFIG)
        await registry.put_blob(path, blob, read_at, _to_nobody)
        return blob

    async def _put_manifest(self, registry: Registry, place: ImageName, platform: Platform, data: bytes) -> None:
        """Put it under its name, beside those for other platforms that are there."""
        others = await images_for_others(registry, place, platform)
        if not others:
            await registry.put_manifest(place.path, tag_of(place), data, OCI_MANIFEST)
            return
        own = Blob(digest_of(data), len(data), OCI_MANIFEST)
        await registry.put_manifest(place.path, own.digest, data, OCI_MANIFEST)
        index = index_json([*others, Listed(own, platform)])
        await registry.put_manifest(place.path, tag_of(place), index, OCI_INDEX)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell what went wrong as :class:`StoreError`, in one line that says where."""
        try:
            yield
        except RegistryFault as fault:
            after_s = fault.end.retry_after_s if isinstance(fault.end, Throttled) else None
            raise StoreError(self.redact(str(fault)), retry_after_s=after_s) from None
        except BadManifest as exc:
            raise StoreError(f"{self.prefix}: {exc}") from None
        except (BadArchive, CannotInflate) as exc:
            raise StoreError(f"the archive cannot be stored: {exc}") from None
        except OSError as exc:
            why = one_line(exc.strerror or str(exc))
            if exc.filename is not None:
                raise StoreError(f"{one_line(str(exc.filename))}: {why}") from None
            raise StoreError(f"a layer cannot be packed: {why}; make room, or see TMPDIR") from None


@asynccontextmanager
async def open_registry_store(config: RegistryStoreConfig) -> AsyncIterator[RegistryStore]:
    """The store in the configured registry. Nothing is asked until one of its calls is made."""
    random = Random()  # noqa: S311 - jitter, not a secret
    redact = Redactor()
    credentials = Credentials(os.environ, hide=lambda secret: redact.hide([secret]))
    async with open_registries(credentials, random) as registries:
        yield RegistryStore(check_prefix(config.prefix), registries, redact)


@attrs.define(eq=False)
class _Told:
    """An archive whose faults are told as the store's."""

    archive: ImageArchive
    store: RegistryStore

    def __aiter__(self) -> _Told:
        return self

    async def __anext__(self) -> bytes:
        with self.store._told():
            return await anext(self.archive)


@attrs.define
class _Progress:
    """How much of the layers of an archive is there."""

    report: Report
    total_bytes: int
    done_bytes: int = 0

    def part(self, layer_bytes: int, sent: Transferred) -> None:
        """Of the layer that is under way so much has been sent."""
        share = sent.done_bytes / sent.total_bytes if sent.total_bytes else 0.0
        self.report(Transferred(self.done_bytes + int(layer_bytes * share), self.total_bytes))

    def next(self, layer_bytes: int) -> None:
        """A layer is there."""
        self.done_bytes += layer_bytes
        self.report(Transferred(self.done_bytes, self.total_bytes))


def _to_nobody(transferred: Transferred) -> None:
    """A configuration is too small for anybody to watch."""
