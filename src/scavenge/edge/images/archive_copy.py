"""Copies images out of an archive into Docker archives of their own, checked as they are copied. Blocks.

Invariant: of an image whose bytes are not what its digests say, the end is never given, so that nobody takes what was
copied for an archive. Memory is bounded by a piece, whatever is in the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from hashlib import sha256
from typing import TypeAlias

import attrs

from scavenge.core.images.archive_values import BadArchive
from scavenge.core.images.archive_writing import Span, Wanted, header, last_bytes, padding, spans
from scavenge.edge.images.archive_file import ArchiveFile
from scavenge.edge.images.inflating import BadCompression, CannotInflate, Inflater


class CorruptArchive(BadArchive):
    """Bytes in an archive are not what their digest says."""


@attrs.frozen
class Copied:
    """Bytes for the archives of the images with those numbers; ``last``: theirs are complete."""

    images: tuple[int, ...]
    data: bytes
    last: bool = False


@attrs.frozen
class Spoilt:
    """The images with those numbers cannot be copied; nothing more comes for them."""

    images: tuple[int, ...]
    why: str


Step: TypeAlias = "Copied | Spoilt"


def copy_images(file: ArchiveFile, wanted: Sequence[Wanted]) -> Iterator[Step]:
    """Copy several images in one pass over the file. An image that is spoilt costs no other.

    Raises ``OSError``; :class:`BadArchive` where a compressed file is damaged, or the file ends early.
    """
    left = [0] * len(wanted)
    found = spans(wanted, forwards=bool(file.compression))
    for span in found:
        for number in span.images:
            left[number] += 1
    for span in found:
        if images := tuple(number for number in span.images if left[number]):
            yield from _copy_one(file, span, images, wanted, left)


def _copy_one(
    file: ArchiveFile, span: Span, images: tuple[int, ...], wanted: Sequence[Wanted], left: list[int]
) -> Iterator[Step]:
    """*left* counts the spans that each image lacks; 0: nothing more is to come for it."""
    why = yield from _copy(file, span, images)
    for number in images:
        left[number] = 0 if why else left[number] - 1
        if not left[number] and not why:
            yield Copied((number,), last_bytes(wanted[number]), last=True)
    if why:
        yield Spoilt(images, why)


def _copy(file: ArchiveFile, span: Span, images: tuple[int, ...]) -> Generator[Step, None, str]:
    """Copy one member; why it is not what it should be, if it is not."""
    try:
        layer = _InflatedLayer(span.compression) if span.compression else None
    except CannotInflate as exc:
        return f"the layer {span.diff_id} cannot be checked: {exc}"
    yield Copied(images, header(span.name, span.size))
    own, copied = sha256(), 0
    for piece in file.pieces(span.offset, span.size):
        own.update(piece)
        copied += len(piece)
        if layer is not None:
            layer.feed(piece, file.check)
        yield Copied(images, piece)
    if zeroes := padding(span.size):
        yield Copied(images, zeroes)
    if copied < span.size:
        return f"{span.name} ends after {copied} of its {span.size} bytes"
    if span.digest and f"sha256:{own.hexdigest()}" != span.digest:
        return f"{span.name} does not have the digest {span.digest}"
    if layer is not None and not layer.is_what(span.diff_id):
        return f"{span.name} is damaged, or its content does not have the digest {span.diff_id}"
    return ""


class _InflatedLayer:
    """The digest of a compressed layer's content."""

    def __init__(self, compression: str) -> None:
        self._inflater = Inflater(compression)
        self._content = sha256()
        self._damaged = False

    def feed(self, piece: bytes, check: Callable[[], object]) -> None:
        if self._damaged:
            return
        try:
            for content in self._inflater.feed(piece):
                check()
                self._content.update(content)
        except BadCompression:
            self._damaged = True

    def is_what(self, diff_id: str) -> bool:
        whole = self._inflater.whole and not self._damaged
        return whole and f"sha256:{self._content.hexdigest()}" == diff_id
