"""An image of a registry as a Docker archive: put together from its blobs while they come.

Decides the order of its parts: the configuration, the layers as they are (engines take compressed ones, too), and last
the manifest, so that one that is cut off is never taken for whole. Each blob is checked against its digest on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import attrs

from scavenge.core.images.archive_values import ArchiveEntry, ArchiveLayer
from scavenge.core.images.archive_writing import Wanted, archive_size, header, last_bytes, padding, spans
from scavenge.core.images.manifests import Blob, Config, Manifest
from scavenge.edge.images.registry_download import Download
from scavenge.edge.images.registry_requests import Requests


@attrs.frozen
class Parts:
    """What the archive of an image is made of: bytes as they are, and blobs."""

    wanted: Wanted
    blobs: tuple[Blob, ...]
    """The configuration, and the layers, the lowest first."""

    @classmethod
    def of(cls, manifest: Manifest, config: Config, name: str) -> Parts:
        """Those of an image that is called *name* in its archive; it has as many layers as its configuration says."""
        layers = [
            ArchiveLayer(place, layer.size_bytes, diff_id)
            for place, (layer, diff_id) in enumerate(zip(manifest.layers, config.diff_ids, strict=True), 1)
        ]
        digest, size = manifest.config.digest, manifest.config.size_bytes
        entry = ArchiveEntry((name,), config.platform, digest, 0, size, tuple(layers))
        return cls(Wanted(entry, name), (manifest.config, *manifest.layers))

    @property
    def size_bytes(self) -> int:
        """The size of the archive."""
        return archive_size(self.wanted)

    def __iter__(self) -> Iterator[bytes | Blob]:
        for span in spans([self.wanted]):
            yield header(span.name, span.size)
            yield self.blobs[span.offset]
            yield padding(span.size)
        yield last_bytes(self.wanted)


@attrs.define(eq=False)
class ImageArchive:
    """The bytes of such an archive. Reading raises what reading the registry's blobs raises; :meth:`close` ends it."""

    requests: Requests
    path: str
    _left: deque[bytes | Blob]
    _blob: Download | None = None

    def __aiter__(self) -> ImageArchive:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if self._blob is not None:
                piece = await anext(self._blob, b"")
                if piece:
                    return piece
                await self.close()
            if not self._left:
                raise StopAsyncIteration
            part = self._left.popleft()
            if isinstance(part, Blob):
                self._blob = Download(self.requests, self.path, part.digest, 0, part.size_bytes)
            elif part:
                return part

    async def close(self) -> None:
        """Close the connection."""
        blob, self._blob = self._blob, None
        if blob is not None:
            await blob.close()
