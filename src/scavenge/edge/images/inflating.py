"""Inflates gzip and Zstandard as they come, in bounded pieces. Knows nothing of archives.

Both may be several streams, one after the other (as ``pigz``, eStargz and zstd:chunked write them); zeroes between and
after them are passed over. Memory is bounded whatever comes: by 1 MiB a piece of gzip's, 16 MiB of Zstandard's, and
Zstandard's window.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from scavenge.errors import InfrastructureError

PIECE_BYTES = 2**20
_GZIP = 16 + zlib.MAX_WBITS
_GZIP_STEP = 2**16
_ZSTD_STEP = 512
"""Its decoder gives all that comes of what it is fed: of so few bytes 16 MiB at the very most (RFC 8878: a block has
128 KiB at most, and four bytes may be a block)."""


class CannotInflate(InfrastructureError):
    """What a file is compressed by is not read here, or not without a package that is not installed."""


class BadCompression(ValueError):
    """Bytes that are not what they begin as, or are damaged."""


@attrs.frozen(eq=False)
class _Codec:
    """How one kind is inflated. A stream has ``decompress``, ``eof`` and ``unused_data``, as those of :mod:`zlib`."""

    open: Callable[[], Any]
    inflate: Callable[[Any, memoryview], tuple[bytes, int]]
    """What comes of the beginning of some bytes, and how many of them are used up."""
    error: type[Exception]


class Inflater:
    """Inflates a series of streams of a kind that :func:`scavenge.core.images.archive_image.compression_of` tells.

    Raises :class:`CannotInflate` when it is made for another kind, or when the package for it is missing.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._codec = _codec(kind)
        self._stream: Any = None

    @property
    def whole(self) -> bool:
        """Whether the last stream came to its end: nothing is missing."""
        return self._stream is None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What comes of more bytes, which may be nothing; to be read to its end. Raises :class:`BadCompression`."""
        rest = memoryview(data)
        while rest:
            if self._stream is None:
                rest = _without_zeroes(rest)
                if not rest:
                    return
                self._stream = self._codec.open()
            piece, used = self._inflate(rest)
            if piece:
                yield piece
            rest = rest[used:]
            if self._stream.eof:
                self._stream = None

    def _inflate(self, data: memoryview) -> tuple[bytes, int]:
        try:
            return self._codec.inflate(self._stream, data)
        except self._codec.error as exc:
            raise BadCompression(f"it is damaged ({self.kind}: {exc})") from exc


def _without_zeroes(data: memoryview) -> memoryview:
    return data[len(data) - len(bytes(data).lstrip(b"\0")) :]


def _codec(kind: str) -> _Codec:
    if kind == "gzip":
        return _Codec(lambda: zlib.decompressobj(_GZIP), _inflate_gzip, zlib.error)
    if kind != "zstd":
        raise CannotInflate(
            f"it is compressed by {kind}, which is not read; compress it by gzip or zstd, or not at all"
        )
    try:
        zstandard = importlib.import_module("zstandard")  # only whoever has such files needs it
    except ImportError as exc:
        raise CannotInflate("it is compressed by zstd; to read it: pip install 'scavenge[images]'") from exc
    return _Codec(zstandard.ZstdDecompressor().decompressobj, _inflate_zstd, zstandard.ZstdError)


def _inflate_gzip(stream: Any, data: memoryview) -> tuple[bytes, int]:
    step = data[:_GZIP_STEP]
    piece = stream.decompress(step, PIECE_BYTES)
    return piece, len(step) - len(stream.unused_data if stream.eof else stream.unconsumed_tail)


def _inflate_zstd(stream: Any, data: memoryview) -> tuple[bytes, int]:
    step = data[:_ZSTD_STEP]
    piece = stream.decompress(step)
    return piece, len(step) - len(stream.unused_data)
