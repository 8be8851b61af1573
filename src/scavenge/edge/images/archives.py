"""One image out of an archive of container images, read in threads.

A Docker archive with one image is put together while it is read: the engine gets that image and nothing else, however
large the file is. Its layers are checked as they go by, and the archive's end comes only when all of them are right, so
an engine never takes in what is damaged. Nothing here blocks the loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from scavenge.core.images.archive_values import ArchiveEntry, BadArchive
from scavenge.core.images.archive_writing import Wanted, archive_size
from scavenge.edge.images.archive_copy import Copied, CorruptArchive, Step, copy_images
from scavenge.edge.images.archive_file import ArchiveFile, FileKey
from scavenge.runtime.ports import Threads


class FileChanged(BadArchive):
    """A file is not the one any more that was looked into."""


@attrs.define(eq=False)
class OneImage:
    """The pieces of a Docker archive with one image, of ``size_bytes`` in all.

    Its iteration raises :class:`CorruptArchive` instead of the archive's end when the image is not what its digests
    say, :class:`BadArchive` when the file cannot be read as it was, and ``OSError``.
    """

    size_bytes: int
    _steps: Iterator[Step]
    _threads: Threads

    def __aiter__(self) -> OneImage:
        return self

    async def __anext__(self) -> bytes:
        step = await self._threads.run(partial(next, self._steps, None))
        if step is None:
            raise StopAsyncIteration
        if not isinstance(step, Copied):
            raise CorruptArchive(step.why)
        return step.data


@asynccontextmanager
async def open_one_image(
    path: Path, entry: ArchiveEntry, name: str, threads: Threads, key: FileKey | None = None
) -> AsyncIterator[OneImage]:
    """One image of a file as a Docker archive in which it is called *name*, a canonical name.

    Both Docker and Podman take such a name as it is. *key* is that of the file when *entry* was read; raises
    :class:`FileChanged` when it is another now, :class:`scavenge.edge.images.inflating.CannotInflate` and ``OSError``.
    """
    wanted = Wanted(entry, name)
    file = await threads.run(partial(ArchiveFile, path, trio.from_thread.check_cancelled))
    try:
        if key not in (None, file.key):
            raise FileChanged("it was changed since it was looked into")
        yield OneImage(archive_size(wanted), copy_images(file, [wanted]), threads)
    finally:
        file.close()
