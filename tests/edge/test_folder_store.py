"""Image archives in a folder: never seen half, whatever happens to whoever writes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from scavenge.edge.images.folder_store import FolderConfig, FolderFiles
from scavenge.edge.images.pieces import PIECE_BYTES
from scavenge.errors import StoreError
from scavenge.images import Transferred
from scavenge.plugin import FileStore
from scavenge.plugins.builtin import open_folder_store
from scavenge.testing import check_image_store


async def whole(files: FolderFiles, name: str, start: int = 0) -> bytes:
    async with files.open_file(name, start) as pieces:
        return b"".join([piece async for piece in pieces])


def unheard(transferred: Transferred) -> None:
    """Nobody listens."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(os.urandom(2 * PIECE_BYTES + 7))
    return path


async def test_the_folder_store_is_one(tmp_path: Path):
    (tmp_path / "store").mkdir()
    await check_image_store(lambda: open_folder_store(FolderConfig(tmp_path / "store")))
    assert not [path for path in (tmp_path / "store").iterdir() if path.name.endswith(".part")]


async def test_a_file_comes_back_from_any_place_on(tmp_path: Path, source: Path):
    files = FolderFiles(tmp_path / "store")
    told: list[Transferred] = []
    await files.put_file("sub/a.tar", str(source), told.append)
    data = source.read_bytes()
    assert await whole(files, "sub/a.tar") == data
    assert await whole(files, "sub/a.tar", PIECE_BYTES + 3) == data[PIECE_BYTES + 3 :]
    assert await whole(files, "sub/a.tar", len(data)) == b""
    assert told == [Transferred(n, len(data)) for n in (PIECE_BYTES, 2 * PIECE_BYTES, len(data))]


async def test_what_is_not_there_is_no_error_of_the_store(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        await whole(FolderFiles(tmp_path), "a.tar")
    assert await FileStore(FolderFiles(tmp_path)).find("docker.io/library/x:1", "linux/amd64") is None


async def test_of_a_folder_that_is_not_there_nothing_is_said(tmp_path: Path):
    with pytest.raises(StoreError, match=r"no such folder, so nothing can be said .* mount it, or see `path`"):
        await FileStore(FolderFiles(tmp_path / "gone")).find("docker.io/library/x:1", "linux/amd64")


async def test_only_the_folder_itself_is_made(tmp_path: Path, source: Path):
    with pytest.raises(StoreError, match="cannot be made, since the folder that it should lie in is not there"):
        await FolderFiles(tmp_path / "unmounted" / "store").put_file("a.tar", str(source), unheard)
    assert not (tmp_path / "unmounted").exists()


@pytest.mark.parametrize("name", ["../a", "/a", "a/../b", ".a", "a//b", "", "a b", "a\n", "-/./b", "a/"])
async def test_a_name_never_leads_out_of_the_folder(tmp_path: Path, source: Path, name: str):
    files = FolderFiles(tmp_path / "store")
    with pytest.raises(StoreError, match="no name of a file"):
        await files.put_file(name, str(source), unheard)
    with pytest.raises(StoreError, match="no name of a file"):
        await whole(files, name)


async def test_a_folder_in_place_of_a_file_is_told(tmp_path: Path, source: Path):
    (tmp_path / "a.tar").mkdir()
    with pytest.raises(StoreError, match=r"a\.tar: Is a directory; see `path`"):
        await whole(FolderFiles(tmp_path), "a.tar")
    with pytest.raises(StoreError, match=r"a\.tar: Is a directory; see `path`"):
        await FolderFiles(tmp_path).put_file("a.tar", str(source), unheard)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


async def test_a_file_in_place_of_the_folder_is_told(tmp_path: Path, source: Path):
    with pytest.raises(StoreError, match="File exists; see `path`"):
        await FolderFiles(source).put_file("a.tar", str(source), unheard)
    with pytest.raises(StoreError, match="Not a directory; see `path`"):
        await whole(FolderFiles(source), "a.tar")


async def test_a_full_disk_leaves_nothing_half(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch):
    def full(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="No space left on device; make room there"):
        await FolderFiles(tmp_path / "store").put_file("a.tar", str(source), unheard)
    assert list((tmp_path / "store").iterdir()) == []


async def test_what_a_killed_process_left_is_removed_when_it_is_a_day_old(tmp_path: Path, source: Path):
    names = [".a.tar.00000000.part", ".a.tar.11111111.part", ".b.tar.00000000.part"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    for name in names[::2]:
        os.utime(tmp_path / name, (0, 0))
    await FolderFiles(tmp_path).put_file("a.tar", str(source), unheard)
    assert {path.name for path in tmp_path.iterdir()} == {"a.tar", "source", *names[1:]}


async def test_a_file_is_on_disk_before_it_has_its_name(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    real: Callable[[int], None] = os.fsync

    def watching(descriptor: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        seen.append(f"{'folder' if place.is_dir() else 'part'} {(tmp_path / 'store/a.tar').exists()}")
        real(descriptor)

    monkeypatch.setattr("os.fsync", watching)
    await FolderFiles(tmp_path / "store").put_file("a.tar", str(source), unheard)
    assert seen == ["part False", "folder True"]


async def test_a_read_that_hangs_can_be_left(tmp_path: Path):
    os.mkfifo(tmp_path / "a.tar")  # nobody writes: opening it hangs, as a dead mount does
    with trio.move_on_after(0.05) as scope:
        await whole(FolderFiles(tmp_path), "a.tar")
    assert scope.cancelled_caught
    os.close(os.open(tmp_path / "a.tar", os.O_RDWR | os.O_NONBLOCK))


async def test_two_writers_of_one_name_do_not_mix(tmp_path: Path):
    for letter in "ab":
        (tmp_path / letter).write_bytes(letter.encode() * (PIECE_BYTES + 5))
    files = FolderFiles(tmp_path / "store")
    async with trio.open_nursery() as nursery:
        for letter in "abab":
            nursery.start_soon(partial(files.put_file, "x.tar", str(tmp_path / letter), unheard))
    assert len(set(await whole(files, "x.tar"))) == 1
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["x.tar"]
