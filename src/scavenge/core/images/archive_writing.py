"""How a Docker archive with a part of the images of another archive is put together: what goes where, as bytes. Pure.

Such an archive has an image's configuration (``HEX.json``), its layers (``HEX.tar``, named for their diff ids, each
once) and last ``manifest.json`` with one name, in full: Podman takes a short one for ``localhost/…``. One that is cut
off is never taken for whole. The same image makes the same bytes, unless it has to be copied in the order in which it
lies in a compressed archive.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import orjson

from scavenge.core.images.archive_headers import BLOCK
from scavenge.core.images.archive_manifest import MANIFEST
from scavenge.core.images.archive_values import ArchiveEntry

END = bytes(2 * BLOCK)
_LARGEST_OCTAL = 8**11 - 1
_SUM_PLACE = slice(148, 156)


@attrs.frozen
class Wanted:
    """An image that is wanted out of an archive, under one name."""

    entry: ArchiveEntry
    name: str


@attrs.frozen
class Span:
    """Bytes to be copied into the archives of the images with those numbers, as the member *name*.

    ``digest`` is that of the bytes; empty: not known. ``diff_id`` is that of the bytes once they are inflated.
    """

    name: str
    offset: int
    size: int
    images: tuple[int, ...]
    digest: str
    compression: str = ""
    diff_id: str = ""


def spans(wanted: Sequence[Wanted], *, forwards: bool = True) -> list[Span]:
    """What is to be copied: in the order in which it lies there, or in that of the images."""
    found: dict[str, Span] = {}
    for number, image in enumerate(wanted):
        for span in _spans_of(image.entry, number):
            if (known := found.setdefault(span.name, span)) is not span:
                found[span.name] = attrs.evolve(known, images=(*known.images, *span.images))
    return sorted(found.values(), key=lambda span: span.offset) if forwards else list(found.values())


def _spans_of(entry: ArchiveEntry, number: int) -> list[Span]:
    """One for each file: a layer that an image has twice is there once."""
    found: dict[str, Span] = {}
    name = _config_name(entry)
    found[name] = Span(name, entry.config_offset, entry.config_size, (number,), entry.config_digest)
    for layer in entry.layers:
        name = _layer_name(layer.diff_id)
        digest = layer.digest if layer.compression else layer.diff_id
        span = Span(name, layer.offset, layer.size, (number,), digest, layer.compression, layer.diff_id)
        found.setdefault(name, span)
    return list(found.values())


def _config_name(entry: ArchiveEntry) -> str:
    return f"{_hex(entry.config_digest)}.json"


def _layer_name(diff_id: str) -> str:
    return f"{_hex(diff_id)}.tar"


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def archive_size(image: Wanted) -> int:
    """How many bytes the archive of one image has."""
    copied = sum(BLOCK + span.size + len(padding(span.size)) for span in spans([image]))
    return copied + len(last_bytes(image))


def last_bytes(image: Wanted) -> bytes:
    """What comes after the last copied member: the manifest, and the end of the archive."""
    entry = image.entry
    layers = [_layer_name(layer.diff_id) for layer in entry.layers]
    manifest = orjson.dumps([{"Config": _config_name(entry), "RepoTags": [image.name], "Layers": layers}])
    return header(MANIFEST, len(manifest)) + manifest + padding(len(manifest)) + END


def padding(size: int) -> bytes:
    """The zeroes between a member of that size and the next."""
    return bytes(-size % BLOCK)


def header(name: str, size: int) -> bytes:
    """The ustar header of a file. Everything but the name and the size is always the same, so the bytes are, too.

    A size of 8 GiB and more is written in GNU's form, which all engines read.
    """
    digits = b"%011o\0" % size if size <= _LARGEST_OCTAL else (0x80 << 88 | size).to_bytes(12, "big")
    fields = [name.encode().ljust(100, b"\0"), b"0000644\0", b"0000000\0" * 2, digits, b"00000000000\0", b" " * 8, b"0"]
    block = bytearray(b"".join(fields).ljust(257, b"\0") + b"ustar\x0000")
    block.extend(bytes(BLOCK - len(block)))
    block[_SUM_PLACE] = b"%06o\0 " % sum(block)
    return bytes(block)
