"""The headers of tar archives: every form of names and sizes, links, and what is refused."""

from __future__ import annotations

import io
import tarfile

import pytest

from archive_kit import Made, add, add_link, hex_of, old_docker, reading, tar_of
from scavenge.core.images import archive_headers
from scavenge.core.images.archive import read_archive
from scavenge.core.images.archive_headers import BLOCK, plain_name, walk
from scavenge.core.images.archive_values import BadArchive, Member
from scavenge.core.images.archive_writing import END, header, padding

LONG = "/".join(["a-folder-with-a-name"] * 20) + "/x.tar"


def members(data: bytes) -> list[Member]:
    return list(walk(reading(data)))


def refused(data: bytes) -> str:
    with pytest.raises(BadArchive) as caught:
        members(data)
    return str(caught.value)


def one(name: str = "x", size: int = 0, kind: bytes = b"0", link: str = "") -> bytes:
    """A header with a right sum."""
    return mended(header(name, size), {156: kind, 157: link.encode()})


def mended(block: bytes, changes: dict[int, bytes]) -> bytes:
    changed = bytearray(block)
    for at, data in changes.items():
        changed[at : at + len(data)] = data
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed)
    return bytes(changed)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_found_where_they_are_in_every_form(form: int):
    long = LONG if form != tarfile.USTAR_FORMAT else "/".join(["folder"] * 20) + "/x.tar"
    files = {"a.json": b"{}", "empty": b"", f"./{long}": b"x" * 1000, "naïve": b"y" * BLOCK}
    data = tar_of(files, form)
    found = members(data)
    assert [member.name for member in found] == ["a.json", "empty", long, "naïve"]
    assert [data[member.offset : member.offset + member.size] for member in found] == list(files.values())


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_of_links_are_read(form: int):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        add(tar, LONG, b"layer")
        add_link(tar, "folder/layer.tar", f"../{LONG}")
        add_link(tar, "hard", LONG, tarfile.LNKTYPE)
    assert [member.link for member in members(out.getvalue())] == [None, LONG, LONG]


def test_a_size_beyond_eight_gibibytes_is_read_in_both_forms():
    huge = 9 * 2**30
    record = b"11 mtime=1\n19 size=9663676416\n"
    pax = one("pax", len(record), b"x") + record + padding(len(record)) + one("x", 0)
    for start in (header("x", huge), pax):
        whole = reading(start)

        def read(offset: int, size: int, start: bytes = start, whole=whole) -> bytes:
            """Zeroes where the member and the end of the archive are."""
            return whole(offset, size).ljust(size, b"\0") if offset < len(start) else bytes(size)

        assert [member.size for member in walk(read)] == [huge]


def test_what_has_no_bytes_is_passed_over():
    kinds = [one("device", 700, kind) for kind in (b"3", b"4", b"5", b"6")]
    folder = one("old-folder/", 100, b"0")
    data = b"".join([*kinds, folder, one("volume", 3, b"V"), b"xyz", padding(3), one("x", 1), b"a", padding(1), END])
    assert [member.name for member in members(data)] == ["x"]


def test_what_is_said_of_all_members_is_passed_over():
    record = b"19 comment=abcdefg\n"
    data = one("g", len(record), b"g") + record + padding(len(record)) + one("x", 0) + END
    assert [member.name for member in members(data)] == ["x"]


def test_an_archive_without_the_zeroes_at_its_end_is_whole():
    data = tar_of({"x": b"y" * 600})
    end = 3 * BLOCK
    assert members(data[:end]) == members(data)


@pytest.mark.parametrize("length", [*range(1, 3 * BLOCK, 97), 3 * BLOCK - 1, 3 * BLOCK + 1, 4 * BLOCK - 1])
def test_an_archive_that_is_cut_is_refused(length: int):
    data = tar_of({"x": b"y" * 600, "z": b""})
    assert "too short" in (why := refused(data[:length])) or "cut short" in why


def test_an_empty_file_and_one_of_other_things_are_refused():
    assert refused(b"") == "it is empty"
    assert refused(b"\x89PNG" * 1000) == "it is no tar archive"
    assert refused(b"hello\n") == "it is too short for an archive"


def test_a_header_with_a_wrong_sum_is_refused():
    data = bytearray(tar_of({"x": b"", "y": b""}))
    data[BLOCK] ^= 1
    assert refused(bytes(data)) == f"no header of a tar archive at byte {BLOCK}"


def test_a_sum_of_signed_bytes_is_right_too():
    block = bytearray(one("naïve"))
    signed = sum(block[:148] + b" " * 8 + block[156:]) - 256 * sum(byte > 127 for byte in block)
    block[148:156] = b"%06o\0 " % signed
    assert members(bytes(block) + END)[0].name == "naïve"


@pytest.mark.parametrize("size", [b"99999999999\0", b"-0000000001\0", b"0x00000000a\0", b"1_000000000\0"])
def test_a_number_that_is_none_is_refused(size: bytes):
    assert "no tar archive" in refused(mended(one(), {124: size}) + END)
    assert "a number that is none" in refused(one("a") + mended(one(), {124: size}) + END)


def test_numbers_with_spaces_are_read():
    data = mended(one(), {124: b"      1 \0\0\0\0"}) + b"a" + padding(1) + END
    assert members(data)[0].size == 1


@pytest.mark.parametrize("size", [b"\xff" * 12, b"\x80" + b"\xff" * 11, b"\xc0" + bytes(11)])
def test_an_impossible_size_is_refused(size: bytes):
    assert "impossible size" in refused(mended(one(), {124: size}) + END)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"19 GNU.sparse.a=1\n", "cannot be read"),
        (b"18 GNU.sparse.a=1\n", "sparse"),
        (b"10 size=x\n", "a size that is none"),
        (b"11 size=-1\n", "a size that is none"),
        (b"path=x\n", "cannot be read"),
        (b"0 path=x\n", "cannot be read"),
        (b"99 path=x\n", "cannot be read"),
        (b"9 path=xy", "cannot be read"),
        (b"7 path\n", "cannot be read"),
        (b"\xb2 path=x\n", "cannot be read"),
        (b"37 size=" + b"9" * 28 + b"\n", "a size that is none"),
    ],
)
def test_an_extended_header_that_makes_no_sense_is_refused(record: bytes, why: str):
    data = one("pax", len(record), b"x") + record + padding(len(record)) + one("x", 0) + END
    assert why in refused(data)


def test_an_extended_header_that_is_long_or_cut_is_refused():
    assert "has 2097152 bytes" in refused(one("pax", 2**21, b"x"))
    assert refused(one("pax", 2000, b"L") + b"x" * 10) == "it is cut short"


@pytest.mark.parametrize(("kind", "why"), [(b"S", "sparse"), (b"M", "multi-volume")])
def test_what_is_not_read_is_told(kind: bytes, why: str):
    assert why in refused(one("x", 0, kind))


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "a/..", ".."])
def test_a_name_that_leads_out_is_refused(name: str):
    assert "archive" in refused(one(name) + END)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "../../../a/x"])
def test_a_link_that_leads_out_is_refused(target: str):
    assert "archive" in refused(one("a/x", 0, b"2", target) + END)


def test_a_symbolic_link_starts_at_its_folder_and_a_hard_one_at_the_root():
    assert [member.link for member in members(one("a/x", 0, b"2", "../b/y") + one("a/z", 0, b"1", "b/y") + END)] == [
        "b/y",
        "b/y",
    ]


def test_two_members_of_one_name_are_refused():
    assert refused(one("x") + one("./x") + END) == 'it has "x" twice'


@pytest.mark.parametrize("kind", [b"L", b"K"])
def test_names_are_held_so_long_ones_are_refused(kind: bytes):
    def data(length: int) -> bytes:
        return one("x", length, kind) + b"n" * length + padding(length) + one("x", 0, b"1", "y") + END

    assert len(members(data(1024))) == 1
    assert "more than 1024 characters" in refused(data(1025))


def test_folders_may_come_twice():
    data = one("a/", 0, b"5") * 2 + one("a/x") + END
    assert [member.name for member in members(data)] == ["a/x"]


def test_more_members_than_an_archive_can_have_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive_headers, "MOST_MEMBERS", 3)
    assert len(members(b"".join(one(str(number)) for number in range(3)) + END)) == 3
    assert "more than 3 members" in refused(b"".join(one(str(number)) for number in range(4)) + END)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_layers_that_are_links_are_those_that_they_point_to(kind: bytes):
    image = Made(layers=(b"one" * 99,))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        add_link(tar, "b/layer.tar", "../a/layer.tar" if kind == tarfile.SYMTYPE else "a/layer.tar", kind)
        add_link(tar, "c/layer.tar", "../b/layer.tar" if kind == tarfile.SYMTYPE else "b/layer.tar", kind)
        add(tar, "a/layer.tar", image.layers[0])
        add(tar, f"{hex_of(image.config)}.json", image.config)
        layers = ["c/layer.tar"]
        entry = f'[{{"Config": "{hex_of(image.config)}.json", "RepoTags": ["x:1"], "Layers": ["{layers[0]}"]}}]'
        add(tar, "manifest.json", entry.encode())
    data = out.getvalue()
    (layer,) = read_archive(reading(data)).entries[0].layers
    assert data[layer.offset : layer.offset + layer.size] == image.layers[0]


def test_links_in_a_circle_are_refused():
    image = Made(layers=(b"one",))
    files = one("a", 0, b"2", "b") + one("b", 0, b"2", "a")
    config = f"{hex_of(image.config)}.json"
    manifest = f'[{{"Config": "{config}", "Layers": ["a"]}}]'.encode()
    rest = tar_of({config: image.config, "manifest.json": manifest})
    with pytest.raises(BadArchive, match="a link to a link"):
        read_archive(reading(files + rest))


def test_a_plain_name_has_no_dots():
    assert plain_name("./a//b/./c") == "a/b/c"


def test_an_archive_in_the_old_layout_has_links_for_what_comes_twice():
    twice = Made(("x:1",), (b"same" * 9, b"same" * 9))
    data = old_docker([twice, Made(("y:1",), (b"same" * 9,))])
    found = read_archive(reading(data)).entries
    assert {layer.offset for entry in found for layer in entry.layers} == {found[0].layers[0].offset}
