"""Layers of an archive on their way into a registry: packed into a temporary file, where that is needed at all.

Decides how a layer is packed. A plain one is compressed with gzip, without a name or a time, so the same layer becomes
the same blob; one that is compressed already stays as it is. All of it happens in threads.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import IO

import attrs
import trio

from scavenge.core.images.archive_values import ArchiveEntry, ArchiveLayer, BadArchive
from scavenge.core.images.manifests import OCI_LAYER, Blob
from scavenge.edge.images.archive_file import ArchiveFile
from scavenge.runtime.ports import Threads

PIECE_BYTES = 2**20
LEVEL = 6
"""That of ``docker push``."""

_GZIP_WINDOW = 31  # zlib: a window of 2**15 bytes, with gzip's header, in which the time is 0
_AS_THEY_ARE = {"gzip": f"{OCI_LAYER}+gzip", "zstd": f"{OCI_LAYER}+zstd"}


def read_config(archive: Path, entry: ArchiveEntry) -> bytes:
    """The configuration of an image; blocks. Raises :class:`BadArchive` and ``OSError``."""
    file = ArchiveFile(archive, trio.from_thread.check_cancelled)
    try:
        return file.read(entry.config_offset, entry.config_size)
    finally:
        file.close()


@attrs.define(eq=False)
class LayerFile:
    """One layer of an archive, packed when it is first needed. Whoever made it closes it."""

    archive: Path
    layer: ArchiveLayer
    threads: Threads
    _packed: tuple[IO[bytes], Blob] | None = None

    async def blob(self) -> Blob:
        """What it is in a registry. Raises :class:`BadArchive` and ``OSError``; cancelled, it soon ends."""
        return (await self._pack())[1]

    async def read_at(self, offset: int, count: int) -> bytes:
        """Bytes of the blob. Raises what :meth:`blob` raises."""
        file, _ = await self._pack()
        return await self.threads.run(partial(os.pread, file.fileno(), count, offset))

    def close(self) -> None:
        """Give the temporary file's room back."""
        if self._packed is not None:
            self._packed[0].close()

    async def _pack(self) -> tuple[IO[bytes], Blob]:
        await trio.lowlevel.checkpoint()
        if self._packed is None:
            self._packed = await self.threads.run(partial(_pack, self.archive, self.layer))
        return self._packed


def _pack(archive: Path, layer: ArchiveLayer) -> tuple[IO[bytes], Blob]:
    if layer.compression and layer.compression not in _AS_THEY_ARE:
        what = f"its layers are compressed by {layer.compression}, which no registry knows"
        raise BadArchive(f"{what}; write it anew with `scavenge images repack`")
    file = ArchiveFile(archive, trio.from_thread.check_cancelled)
    packed = tempfile.TemporaryFile(prefix="scavenge-layer-")  # noqa: SIM115 - LayerFile closes it
    try:
        return packed, _copy(partial(file.read), layer, packed)
    except BaseException:
        packed.close()
        raise
    finally:
        file.close()


def _copy(read: Callable[[int, int], bytes], layer: ArchiveLayer, packed: IO[bytes]) -> Blob:
    """Pack a layer into a file. Raises :class:`BadArchive` for one that is not what its digest says."""
    press = None if layer.compression else zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    inside, outside, size = sha256(), sha256(), 0
    for at in range(layer.offset, layer.offset + layer.size, PIECE_BYTES):
        wanted = min(PIECE_BYTES, layer.offset + layer.size - at)
        piece = read(at, wanted)
        if len(piece) < wanted:
            raise BadArchive("it ends in the middle of a layer")
        inside.update(piece)
        size += _write(packed, outside, press.compress(piece) if press else piece)
    size += _write(packed, outside, press.flush() if press else b"")
    packed.flush()
    expected = layer.digest if layer.compression else layer.diff_id
    if expected and f"sha256:{inside.hexdigest()}" != expected:
        raise BadArchive(f"the layer {layer.diff_id} is damaged")
    kind = _AS_THEY_ARE[layer.compression or "gzip"]
    return Blob(f"sha256:{outside.hexdigest()}", size, kind)


def _write(packed: IO[bytes], digest: hashlib._Hash, data: bytes) -> int:
    digest.update(data)
    packed.write(data)
    return len(data)
