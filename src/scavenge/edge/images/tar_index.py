"""Which images are in the tars under the globs of ``[images] shipments``. Decides which file gives an image.

Looking into a tar reads its headers and small documents, never a layer, and its result is kept on disk
(:mod:`scavenge.edge.images.tar_cache`), so a file is looked into once for as long as it stays as it is. The files are
listed again when an image is not found and the last listing is older than :data:`LIST_EVERY_S`.

A file that is still being written (``*.part``, ``*.tmp``, one that changes while it is read, or a young one that is no
archive yet) is passed over until it is done; a file that cannot be read costs itself and one warning.
"""

from __future__ import annotations

import glob
import math
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import attrs
import trio

from scavenge.core.images.archive import read_archive
from scavenge.core.images.archive_values import ArchiveEntry, BadArchive
from scavenge.core.naming import listed, one_line, shown
from scavenge.edge.images.archive_file import ArchiveFile, FileKey, key_of
from scavenge.edge.images.inflating import CannotInflate
from scavenge.edge.images.tar_cache import Looked, add_to_cache, read_cache
from scavenge.edge.threads import LimitedThreads
from scavenge.runtime.ports import Threads

LIST_EVERY_S = 30.0
YOUNG_S = 10.0
ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.zst")
LARGE_BYTES = 2**28
"""A compressed file of this size is worth a word about how long it takes."""


@attrs.frozen
class Place:
    """Where an image is: a file, the file's key when it was looked into, and the image in it."""

    path: Path
    key: FileKey
    entry: ArchiveEntry


@attrs.frozen
class _File:
    """A file under the globs. ``path`` is what people call it, ``real`` what it is known by."""

    path: Path
    real: str
    key: FileKey

    @property
    def is_quick(self) -> bool:
        """Whether its name says that it need not be inflated."""
        return self.real.endswith(".tar")


class TarIndex:
    """The tars under some globs, told relative to nothing; a glob that names a folder means the tars in it.

    *folder* is where the index is kept, *warn* is told what a user should know, once each.
    """

    def __init__(
        self, globs: Sequence[str], folder: Path, warn: Callable[[str], None], threads: Threads | None = None
    ) -> None:
        self._globs, self._folder, self._warn = tuple(globs), folder, warn
        self._threads = threads or LimitedThreads(1)
        self._known: dict[str, Looked] = {}
        self._files: dict[str, _File] = {}
        self._growing: tuple[Path, ...] = ()
        self._listed_at = -math.inf
        self._told: set[object] = set()
        self._one_looks = trio.Lock()

    @property
    def archives(self) -> int:
        """How many files there are."""
        return len(self._files)

    @property
    def growing(self) -> Sequence[Path]:
        """The files that were still being written when they were looked at."""
        return self._growing

    async def find(self, image: str) -> list[Place]:
        """Where an image is, for whatever platform, the newest file first. Never raises for what a file is.

        Cancelled, it keeps what it has seen so far.
        """
        await trio.lowlevel.checkpoint()
        if not (found := self._places(image)):
            async with self._one_looks:
                if trio.current_time() - self._listed_at >= LIST_EVERY_S:
                    await self._look_for(image)
            found = self._places(image)
        return found

    def forget(self, place: Place) -> None:
        """Take a file for gone, and have all files listed again for the next image that is not found."""
        self._files = {real: file for real, file in self._files.items() if file.path != place.path}
        self._listed_at = -math.inf

    def _places(self, image: str) -> list[Place]:
        found = []
        for file in self._files.values():
            looked = self._known.get(file.real)
            if looked is not None and looked.key == file.key:
                own = [entry for entry in looked.archive.entries if image in entry.names]
                found += [Place(file.path, file.key, entry) for entry in own]
        return sorted(found, key=lambda place: (-place.key.mtime_ns, str(place.path)))

    async def _look_for(self, image: str) -> None:
        """List the files, and look into those that are not known until one of them has the image.

        Only what takes long is left for later; an image that another file has in a newer form is taken from there.
        """
        if not self._known:
            self._known = await self._threads.run(partial(read_cache, self._folder))
        self._files, unmatched = await self._threads.run(partial(_list, self._globs))
        for pattern in unmatched:
            self._tell(pattern, f"no image tar matches {shown(pattern)} ({listed(ENDINGS)})")
        self._growing = ()
        unknown = [file for file in self._files.values() if not self._is_known(file)]
        quick = [file for file in unknown if file.is_quick]
        await self._look_into(quick)
        for file in unknown:
            if not file.is_quick:
                if self._places(image):
                    return
                self._tell_slow(file)
                await self._look_into([file])
        self._tell_troubles()
        self._listed_at = trio.current_time()

    def _is_known(self, file: _File) -> bool:
        known = self._known.get(file.real)
        return known is not None and known.key == file.key

    async def _look_into(self, files: Sequence[_File]) -> None:
        await trio.lowlevel.checkpoint()
        news = {}
        for file in files:
            looked = await self._threads.run(partial(_look_into, file, trio.from_thread.check_cancelled))
            if isinstance(looked, Looked):
                news[file.real] = self._known[file.real] = looked
                self._files[file.real] = attrs.evolve(file, key=looked.key)
            elif looked:
                self._tell((file.real, looked), f"{file.path}: {looked}")
            else:
                self._growing += (file.path,)
        if news:
            await self._threads.run(partial(add_to_cache, self._folder, news))

    def _tell_troubles(self) -> None:
        for file in self._files.values():
            looked = self._known.get(file.real)
            if looked is None or looked.key != file.key:
                continue
            named = any(entry.names for entry in looked.archive.entries)
            trouble = looked.trouble or listed(looked.archive.troubles, 3)
            if not trouble and not named:
                trouble = "its images have no names, so nothing finds them; save them by their names"
            if trouble:
                self._tell((file.real, looked.key), f"{file.path}: {trouble}")

    def _tell_slow(self, file: _File) -> None:
        if file.key.size >= LARGE_BYTES:
            how = f"scavenge images repack {file.path} --to FOLDER makes tars of it that are read at once"
            self._tell((file.real, "slow"), f"{file.path}: compressed, so all of it is inflated to look into it; {how}")

    def _tell(self, key: object, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._warn(one_line(text, 1_000))


def _list(globs: Sequence[str]) -> tuple[dict[str, _File], list[str]]:
    """The files by what they are known by, and the globs that none matches. Blocks."""
    found: dict[str, _File] = {}
    unmatched = []
    for pattern in globs:
        paths = [path for matched in glob.glob(pattern, recursive=True) for path in _tars(matched)]
        if not paths:
            unmatched.append(pattern)
        for path in paths:
            if (file := _file(path)) is not None:
                found.setdefault(file.real, file)
    return found, unmatched


def _tars(path: str) -> Iterable[str]:
    """The file, or the tars in the folder."""
    if not os.path.isdir(path):
        return [path] if path.endswith(ENDINGS) else []
    with suppress(OSError):
        return sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(ENDINGS))
    return []


def _file(path: str) -> _File | None:
    try:
        real = os.path.realpath(path)
        status = os.stat(real)
    except OSError:
        return None  # it is gone, or a link to nothing
    return _File(Path(path), real, key_of(status)) if stat.S_ISREG(status.st_mode) else None


def _look_into(file: _File, check: Callable[[], object]) -> Looked | str:
    """What is in a file; a text: why it cannot be read now; an empty one: it is still being written. Blocks."""
    try:
        looked = _read(Path(file.real), check)
        now = os.stat(file.real)
    except FileNotFoundError:
        return ""
    except OSError as exc:
        return f"cannot be read: {exc.strerror}"
    except CannotInflate as exc:
        return str(exc)
    young = abs(time.time() - now.st_mtime) < YOUNG_S
    return "" if looked.key != key_of(now) or (young and looked.trouble) else looked


def _read(path: Path, check: Callable[[], object]) -> Looked:
    with ArchiveFile(path, check) as file:
        try:
            return Looked(file.key, read_archive(file.read))
        except BadArchive as exc:
            return Looked(file.key, trouble=str(exc))
