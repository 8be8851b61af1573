"""Archives that real engines wrote: found in, loaded out of, packed and shipped, into either engine."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from real_client import HERE, ignore, new_path, open_client, pull, push
from real_engine import PROGRAMS, needs_engine, open_engine
from real_images import needs_shell
from real_registry import needs_registry

from scavenge.edge.images.folder_store import FolderFiles
from scavenge.edge.images.packing import pack, repack
from scavenge.edge.images.shipments import ShipmentSource
from scavenge.edge.images.shipping import Shipped, Shipper
from scavenge.edge.images.store_source import StoreSource
from scavenge.edge.images.tar_index import TarIndex
from scavenge.edge.threads import LimitedThreads
from scavenge.images import Delivered, DiskFull, Missing, Removed, Unfit
from scavenge.runtime.filestore import FileStore

pytestmark = [needs_registry, needs_shell]


@pytest.fixture(scope="module")
def other_engine(real_engine, tmp_path_factory):
    """An engine of the other product."""
    (product,) = PROGRAMS.keys() - {real_engine.product}
    with open_engine(product, tmp_path_factory.mktemp(product)) as engine:
        yield engine


def needs_both(test):
    """The mark of tests that take an archive from one product to the other."""
    for product in PROGRAMS:
        test = needs_engine(product)(test)
    return test


@asynccontextmanager
async def three_images(engine, registry):
    """Three images in an engine under names of Docker Hub; what they are made of, by name."""
    images = {}
    async with open_client(engine) as client:
        for _ in range(3):
            pushed = push(registry)
            at = pushed.at(registry.address)
            await pull(client, at)
            images[name := f"docker.io/{new_path()}:latest"] = pushed.image
            await client.tag(at, name)
            await client.remove(at)
        yield client, images
        for name in images:
            assert await client.remove(name) == Removed()


def save_batch(engine, names, file: Path) -> None:
    """One archive of several images, as the engine's own command line writes it."""
    answer = engine.request("GET", "/images/get", params=[("names", name) for name in names])
    assert answer.status_code == httpx.codes.OK
    file.write_bytes(answer.content)


def shipments(client, folder: Path) -> ShipmentSource:
    """The tars of a folder as a source."""
    threads = LimitedThreads(1)
    return ShipmentSource(client, TarIndex([str(folder)], folder / "index", pytest.fail, threads), threads)


@needs_both
async def test_one_image_comes_out_of_a_batch_into_either_engine(real_engine, real_registry, other_engine, tmp_path):
    async with three_images(real_engine, real_registry) as (_, images):
        save_batch(real_engine, images, tmp_path / "batch.tar")
    first, second, third = images
    async with open_client(other_engine) as client:
        source = shipments(client, tmp_path)
        assert isinstance(await source.deliver(second, ignore), Delivered)
        assert {name for image in await client.list_images() for name in image.names} & images.keys() == {second}
        facts = await client.inspect(second)
        assert isinstance(await source.deliver("docker.io/library/absent:1", ignore), Missing)
        with other_engine.nearly_full(4096):
            assert isinstance(await source.deliver(first, ignore), DiskFull)
        assert isinstance(await source.deliver(third, ignore), Delivered)
    assert list(facts.diff_ids) == images[second].diff_ids


async def test_a_damaged_archive_is_refused_before_the_engine_has_it(real_engine, real_registry, tmp_path):
    async with three_images(real_engine, real_registry) as (client, images):
        name = next(iter(images))
        save_batch(real_engine, [name], tmp_path / "batch.tar")
        await client.remove(name)
        data = bytearray((tmp_path / "batch.tar").read_bytes())
        at = data.index(b"own/name\0")  # a header in the image's own layer
        data[at + 1024] ^= 0xFF
        (tmp_path / "batch.tar").write_bytes(data)
        assert isinstance(await shipments(client, tmp_path).deliver(name, ignore), Unfit)
        assert await client.inspect(name) is None


@needs_both
async def test_what_is_packed_and_shipped_is_delivered_elsewhere(real_engine, real_registry, other_engine, tmp_path):
    packed, shelf = tmp_path / "packed", tmp_path / "store"
    for folder in (packed, shelf):
        folder.mkdir()
    async with three_images(real_engine, real_registry) as (client, images):
        records = [await pack(client, name, packed, ignore) for name in images]
    store = FileStore(FolderFiles(shelf))
    ends = await Shipper("a store", store).ship_all([(record, packed / record.archive) for record in records])
    assert all(isinstance(end, Shipped) for end in ends), ends
    async with open_client(other_engine) as client:
        for name, image in images.items():
            assert isinstance(await StoreSource("a store", store, client).deliver(name, ignore), Delivered)
            facts = await client.inspect(name)
            assert (list(facts.diff_ids), facts.platform) == (image.diff_ids, HERE)


async def test_a_batch_is_repacked_without_an_engine(real_engine, real_registry, tmp_path):
    (folder := tmp_path / "one by one").mkdir()
    async with three_images(real_engine, real_registry) as (client, images):
        save_batch(real_engine, images, tmp_path / "batch.tar")
        for name in images:
            await client.remove(name)
        await repack([tmp_path / "batch.tar"], folder, ignore)
        for name in images:
            assert isinstance(await shipments(client, folder).deliver(name, ignore), Delivered)
