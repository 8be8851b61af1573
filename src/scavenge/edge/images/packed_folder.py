"""A folder of packed images: a tar and a record each, named as in every store of the usual layout. Blocks.

A tar is written as ``….tar.part`` and gets its name when it is whole, checked and on disk; its record comes last. So
whatever ends the process, no half file has a final name, and an image with a record is complete. A part belongs to the
process that has locked it; one that a dead process left is written anew.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import attrs

from scavenge.core.images.archive_values import ArchiveEntry
from scavenge.core.images.layout import BadRecord, archive_name, misfit, parse_record, record_json, record_name
from scavenge.core.naming import one_line
from scavenge.edge.images.archive_file import ArchiveFile
from scavenge.edge.images.durable import sync_folder
from scavenge.errors import StoreError
from scavenge.images import ImageRecord, Platform

_FULL = (errno.ENOSPC, errno.EDQUOT)
_RECORD_ENDING = ".json"


@attrs.frozen
class PackedFolder:
    """The folder. Calls raise :class:`StoreError`, which names the file and the remedy."""

    path: Path

    def kept(self, image: str, platform: Platform) -> ImageRecord | None:
        """The record of an image that is here with a tar of the size that the record tells."""
        try:
            record = parse_record((self.path / record_name(image, platform)).read_bytes())
            size = (self.path / record.archive).stat().st_size
        except (OSError, BadRecord):
            return None
        return record if size == record.size_bytes and not misfit(record, image, platform) else None

    @contextmanager
    def open_draft(self, image: str, platform: Platform, kind: str = ".tar") -> Iterator[Draft]:
        """A tar that is to be written; what was not kept is gone when the block is left, however.

        Drafts of another *kind* do not meet: for what is only held for a while.
        """
        draft = self._begin(image, platform, kind)
        try:
            yield draft
        finally:
            draft.discard()

    def _begin(self, image: str, platform: Platform, kind: str) -> Draft:
        stem = record_name(image, platform).removesuffix(_RECORD_ENDING)
        part = self.path / f"{stem}{kind}.part"
        with told(part):
            self.path.mkdir(parents=True, exist_ok=True)
            return Draft(image, platform, part, _lock(part))


class Draft:
    """A tar while it is written. Its calls raise :class:`StoreError`."""

    def __init__(self, image: str, platform: Platform, part: Path, fd: int) -> None:
        self.image, self.platform, self.part, self._fd = image, platform, part, fd
        self.size_bytes = 0
        self._hasher = sha256()

    def write(self, data: bytes) -> None:
        """Write more of it."""
        self._hasher.update(data)
        self.size_bytes += len(data)
        rest = memoryview(data)
        with told(self.part):
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def read(self, check: Callable[[], object]) -> ArchiveFile:
        """What was written, to be read; whoever calls this closes it."""
        with told(self.part):
            return ArchiveFile(self.part, check)

    def keep(self, entry: ArchiveEntry) -> ImageRecord:
        """Give the tar, which holds that image, its name, and write its record."""
        digest = self._hasher.hexdigest()
        record = ImageRecord(
            self.image,
            self.platform,
            entry.config_digest,
            entry.diff_ids,
            archive_name(self.image, self.platform, digest),
            self.size_bytes,
            digest,
            datetime.now(UTC).isoformat(timespec="seconds"),
            made_by(),
        )
        with told(self.part):
            os.fsync(self._fd)
            before = self._archive_before()
            os.replace(self.part, self.part.with_name(record.archive))
            _write_whole(self.part.with_name(record_name(self.image, self.platform)), record_json(record))
            if before not in ("", record.archive):
                self.part.with_name(before).unlink(missing_ok=True)  # nothing names it any more
        self._close()
        return record

    def discard(self) -> None:
        """Remove what was not kept. Once is enough; more does no harm."""
        if self._fd >= 0:
            with suppress(OSError):
                self.part.unlink(missing_ok=True)
            self._close()

    def _archive_before(self) -> str:
        """The tar that the image's record names until now."""
        try:
            return parse_record(self.part.with_name(record_name(self.image, self.platform)).read_bytes()).archive
        except (OSError, BadRecord):
            return ""

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)


def _lock(part: Path) -> int:
    """A descriptor of the part, empty, that no other process has."""
    while True:
        fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _take(fd, part)
            if _is_named(fd, part):
                os.ftruncate(fd, 0)
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # its owner has just given it its name, or removed it


def _take(fd: int, part: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(f"{one_line(str(part))}: another process is just writing it; wait until it is done") from None
    except OSError:
        pass  # a file system without locks: two processes that pack one image there spoil each other's part


def _is_named(fd: int, part: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(part))
    except FileNotFoundError:
        return False


def _write_whole(path: Path, data: bytes) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Say which file an ``OSError`` is about, as a :class:`StoreError` with a remedy."""
    try:
        yield
    except OSError as exc:
        remedy = "make room there, or choose another folder" if exc.errno in _FULL else "see that it can be written"
        raise StoreError(f"{one_line(str(path))}: {exc.strerror or exc}; {remedy}") from exc


@lru_cache
def made_by() -> str:
    """What a record says of who made it."""
    try:
        return f"scavenge {version('scavenge')}"
    except PackageNotFoundError:
        return "scavenge"
