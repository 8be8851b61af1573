"""The members of a tar archive by its headers alone: ustar, GNU's long names, and pax. Pure.

Sources: POSIX.1-2017 ``pax`` (ustar and extended headers); the GNU tar manual, "Basic Tar Format". Archives come from
anywhere, so whatever is not sound is a :class:`BadArchive`: a header with a wrong sum, a member that is cut short, a
name that leads out of the archive, two members of one name, and more than :data:`MOST_MEMBERS` of them. Directories,
devices and the like have no bytes, and are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import attrs

from scavenge.core.images.archive_values import BadArchive, Member, ReadAt
from scavenge.core.naming import shown

BLOCK = 512
MOST_MEMBERS = 200_000
"""An image has a few hundred members at the very most, and an archive of 500 images some ten thousand."""
MOST_EXTENDED_BYTES = 2**20
"""The longest extended header: it holds a name or two."""
MOST_NAME = 1_024
"""The longest name: all of them are held, and those of images have some 150 characters."""
_LARGEST = 2**62

_ZEROES = bytes(BLOCK)
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*")
_REGULAR, _LINKS, _EXTENDING = b"0\x007", b"12", b"LKxXg"
_WITHOUT_BYTES = _LINKS + b"3456"
"""Links, devices, directories and pipes may tell a size and have none (as Go's and Python's readers take it)."""
_REFUSED: Mapping[bytes, str] = {b"S": "is a sparse file of GNU tar", b"M": "is a part of a multi-volume archive"}


@attrs.define
class _Extended:
    """What extended headers say of the member that follows them."""

    name: str | None = None
    link: str | None = None
    size: int | None = None


def walk(read: ReadAt) -> Iterator[Member]:
    """The files and links of an archive, in their order. Raises :class:`BadArchive`, and whatever *read* raises."""
    at, headers, names, extended = 0, 0, set[str](), _Extended()
    while (header := _header(read, at)) is not None:
        headers += 1
        if headers > MOST_MEMBERS:
            raise BadArchive(f"it has more than {MOST_MEMBERS} members, so it is no archive of images")
        kind, size, data = header[156:157], _number(header[124:136], at), at + BLOCK
        if kind in _EXTENDING:
            _extend(extended, kind, _extension(read, data, size))
        else:
            member = _member(header, data, size, extended)
            size, extended = 0 if kind in _WITHOUT_BYTES else member.size, _Extended()
            if kind in _REGULAR + _LINKS and member.name:
                _remember(names, member.name)
                yield member
        at = data + size + -size % BLOCK


def _header(read: ReadAt, at: int) -> bytes | None:
    """The header at a place, checked; ``None``: the archive ends there.

    The byte before it is read as well, so that the end of a file that was cut off is told from the end of one that
    lacks only the blocks of zeroes at its end, as some writers leave it.
    """
    start = max(0, at - 1)
    block = read(start, at - start + BLOCK)
    if len(block) < at - start or (at == 0 and not block):
        raise BadArchive("it is cut short" if at else "it is empty")
    block = block[at - start :]
    if not block or block == _ZEROES:
        return None
    if len(block) < BLOCK:
        raise BadArchive("it is cut short" if at else "it is too short for an archive")
    _check_sum(block, at)
    return block


def _check_sum(block: bytes, at: int) -> None:
    """A header's sum is that of its bytes, with the sum itself as spaces; some old writers took signed bytes."""
    said = _number(block[148:156], at)
    plain = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if said not in (plain, plain - 256 * sum(byte > 127 for byte in block[:148] + block[156:])):
        raise BadArchive(f"no header of a tar archive at byte {at}" if at else "it is no tar archive")


def _number(field: bytes, at: int) -> int:
    """A number in a header: octal digits, or GNU's form for large ones, whose first bit is set."""
    if field[0] & 0x80:
        number = int.from_bytes(field, "big") - (0x80 << 8 * (len(field) - 1))
    elif found := _OCTAL.fullmatch(field):
        number = int(found[1] or b"0", 8)
    else:
        raise BadArchive(f"the header at byte {at} has a number that is none" if at else "it is no tar archive")
    if number > _LARGEST:
        raise BadArchive(f"the header at byte {at} tells an impossible size")
    return number


def _extension(read: ReadAt, at: int, size: int) -> bytes:
    if size > MOST_EXTENDED_BYTES:
        raise BadArchive(f"the extended header at byte {at} has {size} bytes")
    data = read(at, size)
    if len(data) < size:
        raise BadArchive("it is cut short")
    return data


def _extend(extended: _Extended, kind: bytes, data: bytes) -> None:
    if kind == b"L":
        extended.name = _text(data)
    elif kind == b"K":
        extended.link = _text(data)
    elif kind != b"g":  # what is said of all members is a comment or a time
        for key, value in _pax_records(data):
            _extend_by_pax(extended, key, value)


def _pax_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The records ``LENGTH KEY=VALUE\\n`` of an extended header, where the length is that of the whole record."""
    at = 0
    while at < len(data):
        digits, space, _ = data[at : at + 20].partition(b" ")
        end = at + int(digits) if space and digits.isdigit() else 0
        record = data[at + len(digits) + 1 : end - 1]
        key, equals, value = record.partition(b"=")
        if not equals or end > len(data) or data[end - 1 : end] != b"\n":
            raise BadArchive("it has an extended header that cannot be read")
        yield key, value
        at = end


def _extend_by_pax(extended: _Extended, key: bytes, value: bytes) -> None:
    if key == b"path":
        extended.name = _text(value)
    elif key == b"linkpath":
        extended.link = _text(value)
    elif key == b"size":
        if not value.isdigit() or len(value) > len(str(_LARGEST)):
            raise BadArchive("it has an extended header with a size that is none")
        extended.size = min(int(value), _LARGEST)
    elif key.startswith(b"GNU.sparse."):
        raise BadArchive("it has a sparse file, which is not read; pack it without --sparse")


def _member(header: bytes, data: int, size: int, extended: _Extended) -> Member:
    """What the header and the extended ones before it tell; without a name: a folder."""
    kind = header[156:157]
    name = extended.name
    if name is None:
        prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
        name = f"{prefix}/{_text(header[:100])}" if prefix else _text(header[:100])
    if kind in _REFUSED:
        raise BadArchive(f"{shown(name)} {_REFUSED[kind]}, which is not read")
    folder = name.endswith("/") and kind in _REGULAR
    size = size if extended.size is None else extended.size
    if kind not in _LINKS:
        return Member("" if folder else plain_name(name), data, 0 if folder else size)
    target = _text(header[157:257]) if extended.link is None else extended.link
    own = plain_name(name)
    folder_of_it = own.rpartition("/")[0] if kind == b"2" else ""
    return Member(own, data, 0, plain_name(target, folder_of_it))


def plain_name(name: str, folder: str = "") -> str:
    """A name in an archive without ``.`` and ``..``; *folder* is where it starts.

    Raises :class:`BadArchive` for one that is absolute, leads out of the archive, or is too long.
    """
    if len(name) > MOST_NAME:
        raise BadArchive(f"{shown(name)} is a name of more than {MOST_NAME} characters")
    if name.startswith("/"):
        raise BadArchive(f"{shown(name)} is not inside of the archive")
    found = folder.split("/") if folder else []
    for part in name.split("/"):
        if part == "..":
            if not found or not folder:
                raise BadArchive(f"{shown(name)} leads out of the archive")
            found.pop()
        elif part not in ("", "."):
            found.append(part)
    return "/".join(found)


def _remember(names: set[str], name: str) -> None:
    if name in names:
        raise BadArchive(f"it has {shown(name)} twice")
    names.add(name)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")
