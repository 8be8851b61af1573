"""A store on top of files by name: what is found is whole, whoever writes, and whenever a writer is stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from scavenge.core.images.layout import MOST_RECORD_BYTES, record_json, record_name
from scavenge.errors import StoreError
from scavenge.images import ImageRecord, Platform, Transferred
from scavenge.runtime.filestore import FileStore
from scavenge.runtime.ports import Report
from scavenge.testing import check_image_store
from scavenge.testing.store_archives import PLATFORM, make_archive
from scavenge.testing.sweep import cancel_at_every_step

IMAGE = "docker.io/library/x:1"
PIECE = 100_000


@attrs.define
class Memory:
    """Files in memory; each call gives way often enough to be cancelled anywhere."""

    files: dict[str, bytes] = attrs.field(factory=dict)
    stored: list[str] = attrs.field(factory=list)

    @asynccontextmanager
    async def open_file(self, name: str, start: int = 0) -> AsyncIterator[AsyncIterator[bytes]]:
        await trio.lowlevel.checkpoint()
        if name not in self.files:
            raise FileNotFoundError(name)
        yield Reading(self.files[name], start)

    async def put_file(self, name: str, file: str, report: Report) -> None:
        data = Path(file).read_bytes()
        for done in range(0, len(data), PIECE):
            await trio.lowlevel.checkpoint()
            report(Transferred(done, len(data)))
        self.files[name] = data
        self.stored.append(name)


@attrs.define
class Reading:
    data: bytes
    at: int

    def __aiter__(self) -> Reading:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        piece, self.at = self.data[self.at : self.at + PIECE], self.at + PIECE
        if not piece:
            raise StopAsyncIteration
        return piece


def unheard(transferred: Transferred) -> None:
    """Nobody listens."""


@asynccontextmanager
async def open_memory(files: Memory) -> AsyncIterator[FileStore]:
    yield FileStore(files)


async def test_a_store_of_files_is_one():
    await check_image_store(partial(open_memory, Memory()))


async def test_the_record_is_written_last_and_names_the_archive_as_it_is_stored(tmp_path: Path):
    made = make_archive(tmp_path, IMAGE, 10)
    files = Memory()
    record = attrs.evolve(made.record, archive="whatever.tar.gz")
    await FileStore(files).put(record, str(made.path), unheard)
    archive, own = files.stored
    assert own == record_name(IMAGE, PLATFORM)
    assert archive.endswith(f".{record.sha256[:16]}.tar.gz")
    assert await FileStore(files).find(IMAGE, "linux/amd64") == attrs.evolve(record, archive=archive)


async def test_an_archive_that_fails_leaves_no_record(tmp_path: Path):
    class Full(Memory):
        async def put_file(self, name: str, file: str, report: Report) -> None:
            if name.endswith(".tar"):
                raise OSError("full")
            await super().put_file(name, file, report)

    made = make_archive(tmp_path, IMAGE, 10)
    files = Full()
    with pytest.raises(OSError, match="full"):
        await FileStore(files).put(made.record, str(made.path), unheard)
    assert files.files == {}


async def test_a_record_that_cannot_be_held_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = make_archive(tmp_path, IMAGE, 10)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(StoreError, match="No such file or directory; make room, or see TMPDIR"):
        await FileStore(Memory()).put(made.record, str(made.path), unheard)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<html>", "no JSON, so it is no record of an image; ship the image again"),
        (b" " * (3 * MOST_RECORD_BYTES), f"longer than {MOST_RECORD_BYTES} bytes"),
    ],
)
async def test_garbage_in_place_of_a_record_names_the_file(data: bytes, said: str):
    name = record_name(IMAGE, PLATFORM)
    with pytest.raises(StoreError, match=f"^{name}: {said}"):
        await FileStore(Memory({name: data})).find(IMAGE, "linux/amd64")


async def test_the_record_of_another_image_in_its_place_is_told(tmp_path: Path):
    name = record_name(IMAGE, PLATFORM)
    other = make_archive(tmp_path, "docker.io/library/other:1", 1).record
    with pytest.raises(StoreError, match=r"it is the record of docker.io/library/other:1, and should be that of"):
        await FileStore(Memory({name: record_json(other)})).find(IMAGE, "linux/amd64")
    foreign = attrs.evolve(other, image=IMAGE, platform=Platform("linux", "s390x"))
    with pytest.raises(StoreError, match="it is for linux/s390x, and should be that of"):
        await FileStore(Memory({name: record_json(foreign)})).find(IMAGE, "linux/amd64")


async def test_an_archive_that_was_taken_away_is_told(tmp_path: Path):
    made = make_archive(tmp_path, IMAGE, 10)
    files = Memory()
    store = FileStore(files)
    await store.put(made.record, str(made.path), unheard)
    del files.files[files.stored[0]]
    found = await store.find(IMAGE, "linux/amd64")
    assert found is not None
    with pytest.raises(StoreError, match=r"not there, although the record of docker.io/library/x:1 names it; ship"):
        async with store.open_archive(found):
            pytest.fail("it opened")


async def test_what_goes_wrong_inside_of_the_block_is_not_taken_for_a_missing_file(tmp_path: Path):
    made = make_archive(tmp_path, IMAGE, 10)
    store = FileStore(Memory())
    await store.put(made.record, str(made.path), unheard)
    found = await store.find(IMAGE, "linux/amd64")
    assert found is not None
    with pytest.raises(FileNotFoundError, match="the reader's own"):
        async with store.open_archive(found):
            raise FileNotFoundError("the reader's own")


def test_a_put_that_is_cancelled_at_any_step_is_found_whole_or_not_at_all(tmp_path: Path):
    made = make_archive(tmp_path, IMAGE, 3 * PIECE)
    files = Memory()

    async def use() -> None:
        files.files.clear()
        await FileStore(files).put(made.record, str(made.path), unheard)

    def check() -> None:
        async def look() -> ImageRecord | None:
            found = await FileStore(files).find(IMAGE, "linux/amd64")
            if found is not None:
                async with FileStore(files).open_archive(found) as pieces:
                    assert b"".join([piece async for piece in pieces]) == made.path.read_bytes()
            return found

        trio.run(look)

    assert cancel_at_every_step(use, check) > 5
    assert len(files.files) == 2
