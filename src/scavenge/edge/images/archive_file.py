"""An archive's file, opened: its bytes by their place in the *uncompressed* archive. Blocks; for threads only.

A plain file is read anywhere. A compressed one is inflated from its beginning, and read forwards only: what lies
between two reads is inflated and dropped, so a pass over all of it inflates it once. How a file is compressed is seen
from its first bytes, not from its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import attrs

from scavenge.core.images.archive import read_archive
from scavenge.core.images.archive_image import compression_of
from scavenge.core.images.archive_values import Archive, BadArchive
from scavenge.edge.images.inflating import BadCompression, Inflater

PIECE_BYTES = 2**20
_COMPRESSED_BYTES = 2**16
"""How much of a compressed file is read at a time: it may be a thousand times as much."""
_MAGIC_BYTES = 8


@attrs.frozen
class FileKey:
    """What changes when a file does."""

    size: int
    mtime_ns: int
    inode: int


def key_of(stat: os.stat_result) -> FileKey:
    """The key of a file that has that status."""
    return FileKey(stat.st_size, stat.st_mtime_ns, stat.st_ino)


class ArchiveFile:
    """A file that is open until :meth:`close`. *check* is called before each read from it, and may raise.

    Raises ``OSError``, and :class:`scavenge.edge.images.inflating.CannotInflate`.
    """

    def __init__(self, path: Path, check: Callable[[], object] = lambda: None) -> None:
        self.check = check
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.key = key_of(os.fstat(self._fd))
            self.compression = compression_of(os.pread(self._fd, _MAGIC_BYTES, 0))
            self._inflated = _Inflated(self._raw, Inflater(self.compression)) if self.compression else None
        except BaseException:
            self.close()
            raise

    def read(self, offset: int, size: int) -> bytes:
        """That many bytes from there on, fewer only at the end of the archive.

        Of a compressed file, never with a smaller *offset* than the time before. Raises ``OSError``, and
        :class:`BadArchive` for a compressed file that is damaged.
        """
        if self._inflated is not None:
            return self._inflated.read(offset, size)
        found = self._raw(offset, size)
        while found and len(found) < size and (more := self._raw(offset + len(found), size - len(found))):
            found += more
        return found

    def pieces(self, offset: int, size: int) -> Iterator[bytes]:
        """The same in pieces of 1 MiB at most; fewer bytes at the end of the archive. Raises what :meth:`read` does."""
        end = offset + size
        while offset < end and (piece := self.read(offset, min(PIECE_BYTES, end - offset))):
            yield piece
            offset += len(piece)

    def close(self) -> None:
        """Close it. Once is enough; more does no harm."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> ArchiveFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _raw(self, offset: int, size: int) -> bytes:
        self.check()
        return os.pread(self._fd, size, offset)


class _Inflated:
    """The bytes of a compressed file. It holds those from the last read's place on that are inflated already."""

    def __init__(self, raw: Callable[[int, int], bytes], inflater: Inflater) -> None:
        self._raw, self._inflater = raw, inflater
        self._pieces: Iterator[bytes] = iter(())
        self._raw_at = self._start = 0
        self._held = bytearray()

    def read(self, offset: int, size: int) -> bytes:
        if offset < self._start:
            raise ValueError(f"a compressed archive is read forwards only, not from {self._start} back to {offset}")
        self._drop(offset)
        while self._start + len(self._held) < offset + size and (piece := self._more()) is not None:
            self._held += piece
            self._drop(offset)
        at = offset - self._start
        return bytes(self._held[at : at + size])

    def _drop(self, offset: int) -> None:
        gone = min(offset - self._start, len(self._held))
        del self._held[:gone]
        self._start += gone

    def _more(self) -> bytes | None:
        """The next bytes that are inflated; ``None``: there are no more. Raises :class:`BadArchive`."""
        try:
            while (piece := next(self._pieces, None)) is None:
                data = self._raw(self._raw_at, _COMPRESSED_BYTES)
                if not data and not self._inflater.whole:
                    raise BadArchive("it is cut short")
                if not data:
                    return None
                self._raw_at += len(data)
                self._pieces = self._inflater.feed(data)
        except BadCompression as exc:
            raise BadArchive(str(exc)) from exc
        return piece


def read_file(path: Path, check: Callable[[], object] = lambda: None) -> tuple[FileKey, Archive]:
    """The images in an archive's file, and the key of the file that was read.

    Raises :class:`BadArchive`, :class:`scavenge.edge.images.inflating.CannotInflate`, ``OSError``, and whatever *check*
    raises.
    """
    with ArchiveFile(path, check) as file:
        return file.key, read_archive(file.read)
