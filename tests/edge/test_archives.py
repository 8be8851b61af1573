"""Archives in files: inflated as they are read, and one image at a time out of them, checked on its way."""

from __future__ import annotations

import gzip
import os
import random
import sys
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
import zstandard

from archive_kit import Made, digest_of, new_docker, oci, old_docker, packed, reading
from scavenge.core.images.archive import read_archive
from scavenge.core.images.archive_values import Archive, ArchiveEntry, BadArchive
from scavenge.core.images.archive_writing import header
from scavenge.edge.images.archive_copy import Copied, CorruptArchive, Spoilt, Wanted, copy_images
from scavenge.edge.images.archive_file import ArchiveFile, FileKey, read_file
from scavenge.edge.images.archives import FileChanged, open_one_image
from scavenge.edge.images.inflating import PIECE_BYTES, BadCompression, CannotInflate, Inflater
from scavenge.edge.threads import LimitedThreads

BASE, TOP, OTHER = b"base" * 3000, random.Random(1).randbytes(2**20 + 2**18), b"other" * 10
ONE, TWO = Made(("x:1",), (BASE, TOP)), Made(("y:1",), (BASE, OTHER))
NAME = "docker.io/library/x:1"
WRITERS = {
    "old": old_docker,
    "new": new_docker,
    "new gzip": lambda images: new_docker(images, "gzip"),
    "oci zstd": lambda images: oci(
        [attrs.evolve(image, names=(f"docker.io/library/{image.names[0]}",)) for image in images], "zstd"
    ),
}


def kept(folder: Path, data: bytes, pack: str = "") -> Path:
    path = folder / "images.tar"
    path.write_bytes(packed(data, pack))
    return path


async def in_thread(path: Path) -> tuple[FileKey, Archive]:
    return await LimitedThreads(1).run(partial(read_file, path, trio.from_thread.check_cancelled))


async def entry_of(path: Path, name: str = NAME) -> ArchiveEntry:
    _, archive = await in_thread(path)
    (entry,) = [entry for entry in archive.entries if name in entry.names]
    return entry


async def one_image(path: Path, entry: ArchiveEntry | None = None) -> bytes:
    entry = entry or await entry_of(path)
    async with open_one_image(path, entry, NAME, LimitedThreads(1)) as image:
        data = b"".join([piece async for piece in image])
    assert len(data) == image.size_bytes
    return data


@pytest.mark.parametrize("pack", ["", "gzip", "zstd"])
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
async def test_one_image_comes_out_of_an_archive_alone_and_whole(tmp_path: Path, write, pack: str):
    path = kept(tmp_path, write([TWO, ONE]), pack)
    data = await one_image(path)
    (again,) = read_archive(reading(data)).entries
    assert (again.names, again.config_digest, again.diff_ids) == ((NAME,), ONE.config_digest, ONE.diff_ids)
    assert again.platform == (await entry_of(path)).platform


async def test_the_pieces_of_an_image_are_small(tmp_path: Path):
    path = kept(tmp_path, old_docker([ONE]), "gzip")
    entry = await entry_of(path)
    async with open_one_image(path, entry, NAME, LimitedThreads(1)) as image:
        assert max([len(piece) async for piece in image]) <= 2**20


async def spoilt_at(path: Path, place: int) -> str:
    """What is said of an image when one byte of the file is another; whether its end is held back."""
    entry = await entry_of(path)
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)
    given: list[bytes] = []
    with pytest.raises(CorruptArchive) as caught:
        await read_into(given, path, entry)
    assert b"manifest.json" not in b"".join(given)
    return str(caught.value)


async def read_into(given: list[bytes], path: Path, entry: ArchiveEntry) -> None:
    async with open_one_image(path, entry, NAME, LimitedThreads(1)) as image:
        async for piece in image:
            given.append(piece)  # noqa: PERF401 - what comes before an error counts


async def test_a_layer_with_a_wrong_byte_is_told_before_the_archives_end(tmp_path: Path):
    data = old_docker([ONE])
    why = await spoilt_at(kept(tmp_path, data), data.index(TOP) + 2**20 + 7)
    assert digest_of(TOP) in why


async def test_a_configuration_with_a_wrong_byte_is_told(tmp_path: Path):
    data = old_docker([ONE])
    assert ONE.config_digest in await spoilt_at(kept(tmp_path, data), data.index(ONE.config) + 5)


async def test_a_compressed_layer_with_a_wrong_byte_is_told_by_its_own_digest(tmp_path: Path):
    data = new_docker([ONE], "gzip")
    layer = packed(TOP, "gzip")
    assert digest_of(layer) in await spoilt_at(kept(tmp_path, data), data.index(layer) + 1000)


@pytest.mark.parametrize(
    "layer",
    [packed(OTHER, "gzip"), packed(BASE, "gzip")[:-1], b"\x1f\x8bnot gzip at all" * 99_999, packed(BASE, "zstd")[:-1]],
)
async def test_a_compressed_layer_whose_content_is_another_is_told_by_its_diff_id(tmp_path: Path, layer: bytes):
    image = Made(layers=(BASE,))
    data = new_docker([image], "gzip")
    entry = read_archive(reading(data)).entries[0]
    path = tmp_path / "layer"
    path.write_bytes(image.config + layer)
    compression = "zstd" if layer.startswith(b"\x28") else "gzip"
    inside = attrs.evolve(
        entry.layers[0], offset=len(image.config), size=len(layer), compression=compression, digest=""
    )
    entry = attrs.evolve(entry, config_offset=0, layers=(inside,))
    with pytest.raises(CorruptArchive, match=digest_of(BASE)):
        await one_image(path, entry)


@pytest.mark.parametrize("compression", ["xz", "bzip2"])
async def test_a_layer_that_cannot_be_inflated_is_no_image(tmp_path: Path, compression: str):
    path = kept(tmp_path, new_docker([ONE], "gzip"))
    entry = await entry_of(path)
    layers = tuple(attrs.evolve(layer, compression=compression) for layer in entry.layers)
    with pytest.raises(CorruptArchive, match=f"compressed by {compression}, which is not read"):
        await one_image(path, attrs.evolve(entry, layers=layers))


async def test_a_file_that_ends_early_is_told(tmp_path: Path):
    path = kept(tmp_path, old_docker([ONE]))
    entry = await entry_of(path)
    os.truncate(path, entry.layers[1].offset + 1000)
    with pytest.raises(CorruptArchive, match="ends after 1000 of its"):
        await one_image(path, entry)


async def test_a_file_that_is_another_now_is_not_read(tmp_path: Path):
    path = kept(tmp_path, old_docker([ONE]))
    key, archive = await in_thread(path)
    path.write_bytes(old_docker([ONE, TWO]))
    with pytest.raises(FileChanged):
        async with open_one_image(path, archive.entries[0], NAME, LimitedThreads(1), key):
            pytest.fail("it was opened")


@pytest.mark.parametrize("pack", ["gzip", "zstd"])
async def test_a_compressed_file_that_is_cut_or_damaged_is_refused(tmp_path: Path, pack: str):
    path = kept(tmp_path, old_docker([ONE]), pack)
    whole = path.read_bytes()
    for data, why in (
        (whole[: len(whole) // 2], "cut short"),
        (whole[:9] + bytes(300) + whole[309:], "damaged|no tar|digest|checksum|sum"),
    ):
        path.write_bytes(data)
        with pytest.raises(BadArchive, match=why):
            await one_image(path)


@pytest.mark.parametrize("pack", ["", "gzip"])
def test_several_images_are_copied_in_one_pass_and_one_that_is_spoilt_costs_no_other(tmp_path: Path, pack: str):
    whole = old_docker([Made(("x:1",), (TOP, OTHER * 99)), TWO])
    right = read_archive(reading(whole)).entries
    path = kept(tmp_path, whole.replace(TOP[-100:], bytes(100)), pack)
    with ArchiveFile(path) as file:
        steps = list(copy_images(file, [Wanted(entry, entry.names[0]) for entry in right]))
    assert [step.images for step in steps if isinstance(step, Spoilt)] == [(0,)]
    assert [step.images for step in steps if isinstance(step, Copied) and step.last] == [(1,)]
    data = b"".join(step.data for step in steps if isinstance(step, Copied) and 1 in step.images)
    assert read_archive(reading(data)).entries[0].diff_ids == TWO.diff_ids


async def test_a_file_is_closed_however_its_reading_ends(tmp_path: Path):
    path = kept(tmp_path, old_docker([ONE]))
    entry = await entry_of(path)
    before = len(os.listdir("/proc/self/fd"))
    with trio.CancelScope() as scope:
        async with open_one_image(path, entry, NAME, LimitedThreads(1)) as image:
            await anext(image)
            scope.cancel()
            await anext(image)
    assert scope.cancelled_caught
    assert len(os.listdir("/proc/self/fd")) == before


async def test_reading_a_compressed_file_can_be_cancelled(tmp_path: Path):
    path = tmp_path / "images.tar.gz"
    zeroes = gzip.compress(bytes(16 * 2**20), 1)
    path.write_bytes(gzip.compress(header("layer.tar", 2**34)) + zeroes * 200)
    with trio.move_on_after(0.02) as scope:
        await in_thread(path)
    assert scope.cancelled_caught


@pytest.mark.parametrize("size", [0, 1, 5])
async def test_a_file_that_is_too_short_for_anything_is_refused(tmp_path: Path, size: int):
    with pytest.raises(BadArchive):
        await in_thread(kept(tmp_path, b"\x1f" * size))


async def test_a_compressed_file_whose_end_is_lacking_is_refused_though_its_tar_is_whole(tmp_path: Path):
    tar = old_docker([ONE]).rstrip(b"\0")
    tar += bytes(-len(tar) % 512)
    assert len(read_archive(reading(tar)).entries) == 1
    path = tmp_path / "images.tar.gz"
    path.write_bytes(packed(tar, "gzip")[:-1])
    with pytest.raises(BadArchive, match="cut short"):
        await in_thread(path)


async def test_a_file_that_is_not_there_or_cannot_be_inflated_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        await in_thread(tmp_path / "absent.tar")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(CannotInflate, match=r"pip install 'scavenge\[images\]'"):
        await in_thread(kept(tmp_path, old_docker([ONE]), "zstd"))
    with pytest.raises(CannotInflate, match="compressed by xz, which is not read"):
        await in_thread(kept(tmp_path, b"\xfd7zXZ\0" + bytes(1000)))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_the_system_gives_in_small_parts_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = os.pread
    path = kept(tmp_path, old_docker([ONE]))
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: real(fd, min(size, 300), offset))
    with ArchiveFile(path) as file:
        assert file.read(100, 2000) == path.read_bytes()[100:2100]
        assert len(file.read(path.stat().st_size - 700, 2000)) == 700


def test_a_compressed_file_is_read_forwards_only(tmp_path: Path):
    data = random.Random(2).randbytes(10_000)
    with ArchiveFile(kept(tmp_path, data, "gzip")) as file:
        assert file.read(100, 50) == data[100:150]
        assert file.read(120, 5_000) == data[120:5_120]
        assert b"".join(file.pieces(6_000, 9_000)) == data[6_000:]
        assert file.read(50_000, 10) == b""
        with pytest.raises(ValueError, match="forwards only"):
            file.read(0, 1)
        file.close()
    file.close()


SKIPPABLE = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"abcd"


@pytest.mark.parametrize("step", [1, 7, 511, 512, 513, 70_000, 10**9])
@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_streams_in_a_row_are_inflated_however_they_are_cut(kind: str, step: int):
    data = b"some text, " * 20_000
    more = SKIPPABLE if kind == "zstd" else b""
    whole = more + packed(data, kind) + bytes(700) + packed(b"more", kind) + more + bytes(1000)
    inflater = Inflater(kind)
    found = b"".join(piece for at in range(0, len(whole), step) for piece in inflater.feed(whole[at : at + step]))
    assert found == data + b"more"
    assert inflater.whole


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_stream_that_is_cut_is_not_whole_and_one_with_garbage_behind_is_damaged(kind: str):
    inflater = Inflater(kind)
    list(inflater.feed(packed(b"text" * 100, kind)[:-1]))
    assert not inflater.whole
    with pytest.raises(BadCompression, match="damaged"):
        list(Inflater(kind).feed(packed(b"text", kind) + b"garbage that is no stream"))


@pytest.mark.parametrize(("kind", "most"), [("gzip", PIECE_BYTES), ("zstd", 16 * 2**20)])
def test_a_bomb_goes_off_in_small_pieces(kind: str, most: int):
    bomb = gzip.compress(bytes(20 * 2**20)) if kind == "gzip" else zstandard.compress(bytes(100 * 2**20))
    sizes = [len(piece) for piece in Inflater(kind).feed(bomb)]
    assert sum(sizes) in (20 * 2**20, 100 * 2**20)
    assert max(sizes) <= most
