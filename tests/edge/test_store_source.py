"""Images out of a store: nothing gets into the engine that is not what its record says."""

from __future__ import annotations

import gzip
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
import zstandard
from stored_kit import IMAGE, MemoryStore, archive_of, large, record_of

from fake_engine import Cut, Fails, FakeEngine, open_fake_engine
from fake_images import ARM64, FakeImage
from scavenge.edge.images.engine import HttpEngine, open_engine
from scavenge.edge.images.inflating import CannotInflate
from scavenge.edge.images.store_source import StoreSource
from scavenge.edge.images.stored import HELD_BYTES, Checked, Stopped
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import StoreError
from scavenge.images import (
    Broken,
    Delivered,
    DeliveryEnd,
    DiskFull,
    EngineInfo,
    EngineSilent,
    ImageFacts,
    Missing,
    Platform,
    Removed,
    Throttled,
    Transferred,
    Unfit,
)

NOISE = random.Random(1).randbytes(1_500_000)


class NoCredentials:
    async def find(self, image: str) -> None:
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def engines() -> AsyncIterator[tuple[FakeEngine, HttpEngine]]:
    environ: Mapping[str, str] = {}
    async with open_fake_engine() as fake, open_engine(fake.address, environ, NoCredentials()) as engine:
        yield fake, engine


def stored(image: FakeImage, data: bytes | None = None, **settings: object) -> MemoryStore:
    data = archive_of(image) if data is None else data
    return MemoryStore(record_of(image, data), data, **settings)  # type: ignore[arg-type]


async def deliver(store: MemoryStore, *, torn: bool = False) -> tuple[DeliveryEnd, FakeEngine, list[Transferred]]:
    """Deliver the image; *torn*: and wait until the engine has seen that its archive has no end."""
    told: list[Transferred] = []
    async with engines() as (fake, engine):
        end = await StoreSource('store "lab"', store, engine).deliver(IMAGE, told.append)
        with trio.fail_after(5):
            while torn and not fake.torn_loads:  # noqa: ASYNC110 - the engine tells nobody
                await trio.sleep(0.001)
    return end, fake, told


async def test_an_image_comes_into_the_engine_under_its_name():
    image = FakeImage(layers=(NOISE, b"more"))
    end, fake, told = await deliver(stored(image))
    assert end == Delivered(image.size_bytes)
    assert fake.images[IMAGE].diff_ids == image.diff_ids
    assert told[-1] == Transferred(len(archive_of(image)), len(archive_of(image)))
    assert [one.done_bytes for one in told] == sorted({one.done_bytes for one in told})


@pytest.mark.parametrize("pack", [partial(gzip.compress, compresslevel=1), zstandard.compress], ids=["gzip", "zstd"])
async def test_a_compressed_archive_is_inflated_on_its_way(pack):
    image = FakeImage(layers=(NOISE,))
    end, fake, _ = await deliver(stored(image, pack(archive_of(image))))
    assert end == Delivered(image.size_bytes)
    assert fake.seen[-2].body == archive_of(image)


async def test_all_that_a_store_gives_counts_together():
    async with engines() as (_, engine):
        source = StoreSource('store "lab"', MemoryStore(), engine)
        assert source.label == source.lane(IMAGE) == source.lane("ghcr.io/a/b:1") == 'store "lab"'


# --- what is not there


async def test_what_the_store_does_not_have_is_missing():
    end, fake, _ = await deliver(MemoryStore())
    assert end == Missing("not in it")
    assert fake.calls["load"] == 0


@pytest.mark.parametrize("change", [{"image": "docker.io/library/y:1"}, {"platform": ARM64}])
async def test_the_record_of_another_image_or_platform_is_missing(change: dict[str, object]):
    store = stored(FakeImage())
    assert store.record is not None
    store.record = attrs.evolve(store.record, **change)
    end, fake, _ = await deliver(store)
    assert isinstance(end, Missing)
    assert fake.calls["load"] == 0


# --- what is not what it should be


async def load_is_torn(store: MemoryStore) -> DeliveryEnd:
    end, fake, _ = await deliver(store, torn=True)
    assert fake.images == {}
    return end


@pytest.mark.parametrize("pack", [bytes, partial(gzip.compress, compresslevel=1)], ids=["plain", "gzip"])
@pytest.mark.parametrize("piece_bytes", [1000, 2**22])
async def test_an_archive_with_another_digest_does_not_get_in(pack, piece_bytes: int):
    image = FakeImage(layers=(NOISE,))
    store = stored(image, pack(archive_of(image)), piece_bytes=piece_bytes)
    assert store.record is not None
    store.record = attrs.evolve(store.record, sha256="0" * 64)
    end = await load_is_torn(store)
    assert isinstance(end, Unfit)
    assert "its sha256 is" in end.why


async def test_an_archive_that_is_too_short_broke_on_its_way():
    store = stored(large())
    store.data = store.data[:-1]
    assert await load_is_torn(store) == Broken("x.tar: it ended after 1505279 of 1505280 bytes")


async def test_an_archive_that_is_too_long_does_not_get_in():
    store = stored(large())
    store.data += bytes(10_240)
    end = await load_is_torn(store)
    assert isinstance(end, Unfit)
    assert "longer than its record says" in end.why


@pytest.mark.parametrize("cut_at", [1000, 100_000])
async def test_damaged_compression_does_not_get_in(cut_at: int):
    image = FakeImage(layers=(NOISE,))
    packed = bytearray(gzip.compress(archive_of(image), 1))
    packed[cut_at : cut_at + 100] = bytes(100)
    store = stored(image, bytes(packed))
    end = await load_is_torn(store)
    assert isinstance(end, Unfit)


async def test_compressed_data_without_an_end_does_not_get_in():
    image = FakeImage(layers=(NOISE,))
    end = await load_is_torn(stored(image, gzip.compress(archive_of(image), 1)[:-5]))
    assert end == Unfit("x.tar: its compressed data has no end")


async def test_a_compression_that_is_not_read_is_told(monkeypatch: pytest.MonkeyPatch):
    def refuse(kind: str) -> None:
        raise CannotInflate("it is compressed by zstd; to read it: pip install 'scavenge[images]'")

    monkeypatch.setattr("scavenge.edge.images.stored.Inflater", refuse)
    image = FakeImage(layers=(NOISE,))
    end = await load_is_torn(stored(image, zstandard.compress(archive_of(image))))
    assert end == Unfit("x.tar: it is compressed by zstd; to read it: pip install 'scavenge[images]'")


async def test_an_image_with_other_layers_than_its_record_says_is_taken_away_again():
    image = FakeImage()
    store = stored(image)
    assert store.record is not None
    store.record = attrs.evolve(store.record, diff_ids=("sha256:" + "0" * 64,))
    end, fake, _ = await deliver(store)
    assert isinstance(end, Unfit)
    assert IMAGE not in fake.images


async def test_an_image_that_is_for_another_platform_after_all_is_taken_away_again():
    image = FakeImage(platform=ARM64)
    store = stored(image)
    assert store.record is not None
    store.record = attrs.evolve(store.record, platform=Platform("linux", "amd64"))
    end, fake, _ = await deliver(store)
    assert isinstance(end, Unfit)
    assert IMAGE not in fake.images


async def test_a_record_without_a_digest_is_taken_at_its_word_about_the_size_alone():
    image = FakeImage(layers=(NOISE,))
    store = stored(image)
    assert store.record is not None
    store.record = attrs.evolve(store.record, sha256="")
    end, _, _ = await deliver(store)
    assert end == Delivered(image.size_bytes)
    store.record = attrs.evolve(store.record, size_bytes=store.record.size_bytes + 1)
    assert isinstance(await load_is_torn(store), Broken)
    store.record = attrs.evolve(store.record, size_bytes=0)
    end, _, _ = await deliver(store)
    assert end == Delivered(image.size_bytes)


# --- what a store raises


@pytest.mark.parametrize("where", ["find_error", "open_error", "read_error"])
@pytest.mark.parametrize("nursery", [False, True])
@pytest.mark.parametrize(
    ("error", "end"),
    [
        (StoreError("lab: the door\nis shut"), Broken("lab: the door is shut")),
        (StoreError("lab: busy", retry_after_s=40.0), Throttled("lab: busy", 40.0)),
        (KeyError("x"), Broken("KeyError: 'x'")),
        (OSError(), Broken("OSError")),
        (FileNotFoundError("gone"), Broken("FileNotFoundError: gone")),
        (ExceptionGroup("several", [StoreError("lab: within")]), Broken("lab: within")),
    ],
    ids=["store", "throttled", "key", "mute", "absent", "group"],
)
async def test_what_a_store_raises_is_told(where: str, nursery: bool, error: Exception, end: DeliveryEnd):
    store = stored(large(), nursery=nursery, **{where: error})
    assert (await deliver(store))[0] == end


async def test_what_is_wrong_with_an_archive_comes_through_a_nursery_of_the_store():
    store = stored(large(), nursery=True)
    store.data = store.data[:-1]
    assert isinstance(await load_is_torn(store), Broken)


# --- what an engine does


@pytest.mark.parametrize(
    ("answer", "end"),
    [(Fails("write /x: no space left on device"), DiskFull), (Cut(), Broken)],
)
async def test_what_the_engine_says_of_a_load_is_its_end(answer: object, end: type):
    async with engines() as (fake, engine):
        fake.script("load", answer)  # type: ignore[arg-type]
        found = await StoreSource("lab", stored(FakeImage()), engine).deliver(IMAGE, lambda _: None)
    assert isinstance(found, end)


async def test_an_engine_that_is_gone_is_silent_and_the_store_is_not_asked():
    store = stored(FakeImage())
    async with engines() as (fake, engine):
        fake.down()
        end = await StoreSource("lab", store, engine).deliver(IMAGE, lambda _: None)
    assert isinstance(end, EngineSilent)
    assert store.calls == []


async def test_a_delivery_that_is_cancelled_leaves_no_name():
    async with engines() as (fake, engine):
        with trio.CancelScope() as scope:
            await StoreSource("lab", stored(large()), engine).deliver(IMAGE, lambda _: scope.cancel())
        assert scope.cancelled_caught
    assert fake.images == {}


@attrs.define
class Hasty:
    """An engine that has what it needs after the first piece of an archive."""

    image: FakeImage
    names: set[str] = attrs.field(factory=set)

    async def info(self) -> EngineInfo:
        return EngineInfo("docker", "1", "e", self.image.platform, "/")

    async def load(self, archive: AsyncIterator[bytes], platform: Platform) -> DeliveryEnd:
        await anext(archive)
        self.names.add(IMAGE)
        return Delivered()

    async def inspect(self, image: str) -> ImageFacts | None:
        has = image in self.names
        return ImageFacts(self.image.image_id, self.image.platform, self.image.diff_ids, (), 7) if has else None

    async def remove(self, image: str) -> Removed:
        self.names.discard(image)
        return Removed()


async def test_an_engine_that_does_not_wait_for_the_end_of_an_archive_keeps_only_one_that_is_right():
    image = FakeImage(layers=(NOISE,))
    padded = archive_of(image) + bytes(3 * 2**20)
    right, wrong = stored(image, padded), stored(image, padded)
    wrong.data = padded[:-1] + b"x"
    engine = Hasty(image)
    assert await StoreSource("lab", right, engine).deliver(IMAGE, lambda _: None) == Delivered(7)
    assert engine.names == {IMAGE}
    assert isinstance(await StoreSource("lab", wrong, engine).deliver(IMAGE, lambda _: None), Unfit)
    assert engine.names == set()


# --- the archive on its way


@pytest.mark.parametrize("size", [0, 1, HELD_BYTES, HELD_BYTES + 1, 2**20, 3 * 2**20 + 7])
@pytest.mark.parametrize("piece_bytes", [997, 2**20, 2**23])
async def test_all_bytes_come_through_once_and_the_end_last(size: int, piece_bytes: int):
    data = NOISE[:size] + bytes(max(0, size - len(NOISE)))
    store = MemoryStore(record_of(FakeImage(), data), data, piece_bytes=piece_bytes)
    assert store.record is not None
    async with store.open_archive(store.record) as pieces:
        archive = Checked(pieces, store.record, LimitedThreads(1), lambda _: None)
        came = b""
        async for piece in archive:
            if not archive.whole:
                assert len(came) + len(piece) <= size - HELD_BYTES
            came += piece
    assert (came, archive.whole) == (data, True)


async def test_a_bomb_is_inflated_in_bounded_pieces():
    packed = gzip.compress(bytes(20_000_000))
    store = MemoryStore(record_of(FakeImage(), packed), packed)
    assert store.record is not None
    async with store.open_archive(store.record) as pieces:
        archive = Checked(pieces, store.record, LimitedThreads(1), lambda _: None)
        assert max([len(piece) async for piece in archive]) <= 2 * 2**20


async def test_what_stops_an_archive_tells_the_end():
    store = MemoryStore(record_of(FakeImage(), b"abc"), b"ab")
    assert store.record is not None
    async with store.open_archive(store.record) as pieces:
        with pytest.raises(Stopped) as caught:
            [piece async for piece in Checked(pieces, store.record, LimitedThreads(1), lambda _: None)]
    assert caught.value.end == Broken("x.tar: it ended after 2 of 3 bytes")
