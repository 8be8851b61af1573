"""The checks of an image store find what is wrong with one, and say what."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from scavenge.errors import StoreError
from scavenge.images import ImageRecord
from scavenge.runtime.ports import Report
from scavenge.testing import check_image_store, stores


@attrs.define
class Store:
    """A good store in memory: the base of those with a fault."""

    images: dict[tuple[str, str], tuple[ImageRecord, bytes]] = attrs.field(factory=dict)
    cut: bool = False

    async def find(self, image: str, platform: str) -> ImageRecord | None:
        await trio.lowlevel.checkpoint()
        found = self.images.get((image, platform))
        return None if found is None else found[0]

    @asynccontextmanager
    async def open_archive(self, record: ImageRecord) -> AsyncIterator[AsyncIterator[bytes]]:
        await trio.lowlevel.checkpoint()
        _, data = self.images[record.image, str(record.platform)]
        yield Pieces(data[: len(data) // 2] if self.cut else data, self.cut)

    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        data = Path(archive).read_bytes()
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        self.images[record.image, str(record.platform)] = record, data


@attrs.define
class Pieces:
    data: bytes
    broken: bool
    at: int = 0

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        piece, self.at = self.data[self.at : self.at + 2**20], self.at + 2**20
        if not piece and self.broken:
            raise StoreError("the connection broke")
        if not piece:
            raise StopAsyncIteration
        return piece


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    yield store


def cutting(store: Store) -> Callable[[], object]:
    @asynccontextmanager
    async def cut() -> AsyncIterator[None]:
        store.cut = True
        yield
        store.cut = False

    return cut


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "SIZES", (0, 100_000))


async def check(store: Store, **settings: object) -> None:
    settings = {"cut": cutting(store), "max_steps": 10, "calls_within_s": 2.0, **settings}
    await check_image_store(partial(opened, store), **settings)  # type: ignore[arg-type]


async def test_a_good_store_passes():
    await check(Store())


class HalfWay(Store):
    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        data = Path(archive).read_bytes()
        self.images[record.image, str(record.platform)] = record, data[:1000]
        await trio.lowlevel.checkpoint()
        self.images[record.image, str(record.platform)] = record, data


class KeepsTheFirst(Store):
    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        if (record.image, str(record.platform)) not in self.images:
            await super().put(record, archive, report)


class AnyPlatform(Store):
    async def find(self, image: str, platform: str) -> ImageRecord | None:
        return await super().find(image, "linux/amd64")


class Forgetful(Store):
    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        await trio.lowlevel.checkpoint()


class LowerCase(Store):
    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        await super().put(attrs.evolve(record, image=record.image.lower()), archive, report)


class OtherRecord(Store):
    async def find(self, image: str, platform: str) -> ImageRecord | None:
        found = await super().find(image, platform)
        return found and attrs.evolve(found, diff_ids=())


class SilentCut(Store):
    @asynccontextmanager
    async def open_archive(self, record: ImageRecord) -> AsyncIterator[AsyncIterator[bytes]]:
        async with super().open_archive(record) as pieces:
            pieces.broken = False  # type: ignore[attr-defined]
            yield pieces


class Swallowing(Store):
    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(7)
        await super().put(record, archive, report)


class Slow(Store):
    async def find(self, image: str, platform: str) -> ImageRecord | None:
        await trio.sleep(60)
        return None


class OneName(Store):
    """Mixes what is stored at the same time."""

    last: bytes = b""

    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        self.last = Path(archive).read_bytes()
        await trio.sleep(0.01)
        self.images[record.image, str(record.platform)] = record, self.last


class Raising(Store):
    async def find(self, image: str, platform: str) -> ImageRecord | None:
        raise StoreError("the door is shut for secret-token")


class NoRecord(Store):
    async def find(self, image: str, platform: str) -> ImageRecord | None:
        return {} if image.endswith(":100000") else await super().find(image, platform)  # type: ignore[return-value]


class WrongReports(Store):
    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        report(7)  # type: ignore[arg-type]
        await super().put(record, archive, report)


class Garbage(Store):
    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        await super().put(attrs.evolve(record, sha256=""), archive, report)
        self.images[record.image, str(record.platform)] = attrs.evolve(record, sha256=""), b"garbage"


class Leaving(Store):
    @asynccontextmanager
    async def open_archive(self, record: ImageRecord) -> AsyncIterator[AsyncIterator[bytes]]:
        async with super().open_archive(record) as pieces:
            yield pieces
        if pieces.at < len(pieces.data):  # type: ignore[attr-defined]
            raise RuntimeError("not read to its end")


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (HalfWay(), "cancelled at step .*; give the archive as it is stored"),
        (KeepsTheFirst(), "where another one was: config_digest of the record is .*; keep the record"),
        (AnyPlatform(), "for another platform gave the record of .*; give None for what is not there"),
        (Forgetful(), r"find\(\) gave None for .*, which put\(\) has stored"),
        (LowerCase(), r"find\(\) gave None for ghcr.io/a-b/c__d/e--f.g/h:V1.0_X-y"),
        (OtherRecord(), "diff_ids of the record is"),
        (SilentCut(), "while downloads are cut, without an error: .* give the archive as it is stored, or raise"),
        (OneName(), "five at the same time"),
        (Raising(), r"find\(\) before it is stored: StoreError has a secret in its text; leave it out"),
        (NoRecord(), "it gave an empty table; give an ImageRecord, or None"),
        (WrongReports(), "it reported 7; report a Transferred"),
        (Garbage(), "what came is no archive of an image"),
        (Leaving(), "left after .* pieces: it raised RuntimeError: not read to its end"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Store) else "",
)
async def test_a_fault_is_found_and_named(store: Store, said: str):
    with pytest.RaisesGroup(pytest.RaisesExc(AssertionError, match=said), allow_unwrapped=True, flatten_subgroups=True):
        await check(store, secrets=["secret-token"])


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (Swallowing(), "it went on for .* s after it was cancelled at step"),
        (Slow(), "not done within 20 s; see calls_within_s="),
    ],
    ids=["swallowing", "slow"],
)
async def test_a_store_that_takes_its_time_is_found(store: Store, said: str, autojump_clock: trio.testing.MockClock):
    with pytest.raises(AssertionError, match=said):
        await check(store, calls_within_s=20.0)


async def test_what_is_left_behind_is_found():
    kept: list[socket.socket] = []

    @asynccontextmanager
    async def leaking() -> AsyncIterator[Store]:
        kept.append(socket.socket())
        yield Store()

    with pytest.raises(AssertionError, match="left behind after closing: the file descriptor"):
        await check_image_store(leaking, max_steps=3, calls_within_s=0.2)
    for one in kept:
        one.close()


async def test_a_store_that_is_open_already_is_refused():
    with pytest.raises(TypeError, match="pass what makes a context manager: lambda"):
        await check_image_store(opened(Store()))  # type: ignore[arg-type]


async def test_its_own_archives_are_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    await check(Store())
    assert list(tmp_path.iterdir()) == []
