"""Archives are brought into a store, and proven to have arrived."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from stored_kit import IMAGE, MemoryStore, archive_of, large, record_of

from fake_images import FakeImage
from scavenge.edge.images.folder_store import FolderFiles
from scavenge.edge.images.shipping import NotShipped, Shipped, Shipper, Step
from scavenge.errors import StoreError
from scavenge.images import ImageRecord, Transferred
from scavenge.plugin import FileStore

LABEL = 'store "lab"'


@attrs.frozen
class Packed:
    record: ImageRecord
    path: Path


def packed(folder: Path, image: FakeImage | None = None, name: str = IMAGE) -> Packed:
    image = image or FakeImage()
    data = archive_of(image, name)
    path = folder / f"{record_of(image, data).sha256[:8]}.tar"
    path.write_bytes(data)
    return Packed(record_of(image, data, name), path)


async def test_an_image_is_sent_and_read_back_with_its_progress(tmp_path: Path):
    one = packed(tmp_path, large())
    told: list[tuple[str, Step, Transferred]] = []
    store = MemoryStore()
    end = await Shipper(LABEL, store, lambda *what: told.append(what)).ship(one.record, one.path)
    assert end == Shipped(one.record, was_there=False)
    size = one.record.size_bytes
    assert [(image, step) for image, step, how in told if how.done_bytes == size] == [
        (IMAGE, Step.CHECKING),
        (IMAGE, Step.SENDING),
        (IMAGE, Step.READING_BACK),
    ]
    assert store.calls == ["find", "put", "find", "open", "find"]


async def test_what_is_there_is_not_sent_again(tmp_path: Path):
    one = packed(tmp_path)
    store = MemoryStore(one.record, one.path.read_bytes())
    assert await Shipper(LABEL, store).ship(one.record, one.path) == Shipped(one.record, was_there=True)
    assert "put" not in store.calls


async def test_what_a_store_with_digests_of_its_own_has_is_not_sent_again(tmp_path: Path):
    one = packed(tmp_path)
    store = MemoryStore(attrs.evolve(one.record, sha256="", archive="sha256:abc"), one.path.read_bytes())
    end = await Shipper(LABEL, store).ship(one.record, one.path)
    assert end.was_there


@pytest.mark.parametrize(
    "change", [{"config_digest": "sha256:" + "0" * 64}, {"diff_ids": ()}, {"sha256": "0" * 64}, {"image": "other"}]
)
async def test_what_differs_in_anything_is_sent(tmp_path: Path, change: dict[str, object]):
    one = packed(tmp_path)
    store = MemoryStore(attrs.evolve(one.record, **change), b"something")
    assert not (await Shipper(LABEL, store).ship(one.record, one.path)).was_there


@pytest.mark.parametrize("there", [b"", None])
async def test_a_record_without_its_archive_counts_for_nothing(tmp_path: Path, there: bytes | None):
    class Hollow(MemoryStore):
        async def put(self, *arguments: object) -> None:
            self.open_error = None
            await super().put(*arguments)  # type: ignore[arg-type]

    one = packed(tmp_path)
    store = Hollow(one.record, b"", open_error=StoreError("not there") if there is None else None)
    assert not (await Shipper(LABEL, store).ship(one.record, one.path)).was_there


async def test_a_folder_that_is_still_to_be_made_is_made(tmp_path: Path):
    one = packed(tmp_path)
    store = FileStore(FolderFiles(tmp_path / "new"))
    end = await Shipper(LABEL, store).ship(one.record, one.path)
    assert not end.was_there
    assert (await Shipper(LABEL, store).ship(one.record, one.path)).was_there
    assert (tmp_path / "new" / end.record.archive).read_bytes() == one.path.read_bytes()


async def test_a_file_that_is_not_what_its_record_says_is_not_sent(tmp_path: Path):
    one = packed(tmp_path)
    one.path.write_bytes(one.path.read_bytes()[:-1])
    store = MemoryStore()
    with pytest.raises(
        StoreError, match=r"docker\.io/library/x:1: .*\.tar is not what its record says; pack the image"
    ):
        await Shipper(LABEL, store).ship(one.record, one.path)
    assert "put" not in store.calls


@pytest.mark.parametrize("spoil", [b"", b"x" * 100, bytes(20_000)])
async def test_what_comes_back_differently_names_the_image_and_the_store(tmp_path: Path, spoil: bytes):
    one = packed(tmp_path)
    with pytest.raises(StoreError, match=r'^docker\.io/library/x:1 in store "lab": read back, it is not what was sent'):
        await Shipper(LABEL, MemoryStore(spoil=spoil)).ship(one.record, one.path)


async def test_what_cannot_be_found_after_it_was_stored_is_an_error(tmp_path: Path):
    class Forgetful(MemoryStore):
        async def put(self, *arguments: object) -> None:
            await trio.lowlevel.checkpoint()

    one = packed(tmp_path)
    with pytest.raises(StoreError, match="it was stored, and cannot be found there"):
        await Shipper(LABEL, Forgetful()).ship(one.record, one.path)


async def test_a_record_that_changes_meanwhile_is_an_error(tmp_path: Path):
    class Moving(MemoryStore):
        async def find(self, image: str, platform: str) -> ImageRecord | None:
            found = await super().find(image, platform)
            return found and attrs.evolve(found, archive=f"{len(self.calls)}.tar")

    one = packed(tmp_path)
    with pytest.raises(StoreError, match="its record changed while it was read back"):
        await Shipper(LABEL, Moving()).ship(one.record, one.path)


async def test_one_that_fails_does_not_stop_the_others(tmp_path: Path):
    class Picky(MemoryStore):
        async def put(self, record: ImageRecord, *arguments: object) -> None:
            if record.image.endswith(":2"):
                raise KeyError("no")
            await super().put(record, *arguments)  # type: ignore[arg-type]

    every = [packed(tmp_path, FakeImage(layers=(bytes([n]),)), f"docker.io/library/x:{n}") for n in (1, 2, 3)]
    ends = await Shipper(LABEL, Picky()).ship_all([(one.record, one.path) for one in every])
    assert ends == [
        Shipped(every[0].record, was_there=False),
        NotShipped("docker.io/library/x:2", "KeyError: 'no'"),
        Shipped(every[2].record, was_there=False),
    ]
