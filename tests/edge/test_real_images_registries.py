"""Our client of a real registry, with a password or through a proxy that fails; what is stored in one, in engines."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio
from real_client import ignore, new_path, open_client, pull, push
from real_images import needs_shell
from real_registry import PASSWORD, USER, Faults, needs_registry, open_proxy

from scavenge.core.images.manifests import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, Blob, digest_of, manifest_json
from scavenge.edge.images import registry_upload
from scavenge.edge.images.credentials import Credentials
from scavenge.edge.images.packing import pack
from scavenge.edge.images.registry_advice import Advice
from scavenge.edge.images.registry_client import Registries, Registry, open_registries
from scavenge.edge.images.registry_download import open_blob
from scavenge.edge.images.registry_source import MirrorSource, OriginSource
from scavenge.edge.images.registry_store import RegistryStore
from scavenge.edge.images.registry_upload import has_blob
from scavenge.edge.images.registry_wire import RegistryFault
from scavenge.edge.images.shipping import Shipped, Shipper
from scavenge.edge.images.store_source import StoreSource
from scavenge.images import Delivered, Denied, Missing, Removed, Unfit

pytestmark = [needs_registry, needs_shell]

DATA = os.urandom(300_000)


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(registry_upload, "PIECE_BYTES", 100_000)


@asynccontextmanager
async def open_registries_with(folder: Path, config: dict[str, object]) -> AsyncIterator[Registries]:
    """Clients that know what such a ``config.json`` says."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    environ = {"DOCKER_CONFIG": str(folder), "HOME": str(folder)}
    async with open_registries(Credentials(environ), Random(1), pause_first_s=0.0) as registries:
        yield registries


async def put(registry: Registry, path: str, data: bytes, kind: str = "", source: str = "") -> Blob:
    async def read_at(offset: int, count: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return data[offset : offset + count]

    blob = Blob(digest_of(data), len(data), kind)
    await registry.put_blob(path, blob, read_at, ignore, source)
    return blob


async def read(registry: Registry, path: str, digest: str, start: int = 0) -> bytes:
    async with open_blob(registry.requests, path, digest, start) as pieces:
        return b"".join([piece async for piece in pieces])


async def test_what_is_put_into_a_registry_comes_back(real_registry, tmp_path, small_pieces):
    path, other = new_path(), new_path()
    async with open_registries_with(tmp_path, {}) as registries:
        registry = await registries.of(real_registry.address)
        layer = await put(registry, path, DATA, OCI_LAYER)
        config = await put(registry, path, b"{}", OCI_CONFIG)
        empty = await put(registry, path, b"", OCI_LAYER)
        assert await read(registry, path, layer.digest) == DATA
        assert await read(registry, path, layer.digest, 1000) == DATA[1000:]
        assert not await has_blob(registry.requests, other, layer.digest)
        await put(registry, other, DATA, source=path)
        assert await has_blob(registry.requests, other, layer.digest)
        for number in range(12):
            data = manifest_json(config, [layer, empty], {"number": str(number)})
            await registry.put_manifest(path, f"v{number:02}", data, OCI_MANIFEST)
        found = await registry.document(path, "v11")
        assert found.data == data
        assert (await registry.head(f"{real_registry.address}/{path}:v11")).digest == found.digest
        assert sorted(await registry.tags(path)) == [f"v{number:02}" for number in range(12)]
        for repository, absent in ((path, "none"), (path, digest_of(b"none")), (new_path(), "1")):
            with pytest.raises(RegistryFault) as caught:
                await registry.document(repository, absent)
            assert isinstance(caught.value.end, Missing)


async def test_transfers_go_on_through_a_proxy_that_cuts_and_refuses(real_registry, tmp_path, small_pieces):
    path, faults = new_path(), Faults(times=3)
    with open_proxy(real_registry, faults) as address:
        async with open_registries_with(tmp_path, {}) as registries:
            registry = await registries.of(address)
            faults.answer = 503
            layer = await put(registry, path, DATA)
            faults.answer, faults.times, faults.cut_after = 0, 3, 70_000
            assert await read(registry, path, layer.digest) == DATA
            assert faults.seen == {"answered": 3, "cut": 3}
            faults.cut_after, faults.spoil, faults.times = None, True, 1
            with pytest.raises(RegistryFault, match="another digest") as caught:
                await read(registry, path, layer.digest)
            assert isinstance(caught.value.end, Unfit)


async def test_the_password_in_dockers_file_opens_a_registry(locked_registry, tmp_path):
    address = locked_registry.address
    async with open_registries_with(tmp_path, {}) as registries:
        with pytest.raises(RegistryFault, match="no credentials were sent") as caught:
            await put(await registries.of(address), new_path(), DATA)
        assert isinstance(caught.value.end, Denied)
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    async with open_registries_with(tmp_path, {"auths": {address: {"auth": auth}}}) as registries:
        path = new_path()
        layer = await put(await registries.of(address), path, DATA)
        assert await read(await registries.of(address), path, layer.digest) == DATA


async def test_what_is_shipped_into_a_registry_comes_from_there_and_can_be_pulled(real_engine, real_registry, tmp_path):
    pushed = push(real_registry)
    image = f"docker.io/{new_path()}:1"
    prefix = f"{real_registry.address}/shipped"
    async with open_client(real_engine) as client, open_registries_with(tmp_path, {}) as registries:
        at = pushed.at(real_registry.address)
        await pull(client, at)
        await client.tag(at, image)
        record = await pack(client, image, tmp_path, ignore)
        for name in (at, image):
            assert await client.remove(name) == Removed()
        store = RegistryStore(prefix, registries)
        shipped = await Shipper("registry", store).ship(record, tmp_path / record.archive)
        assert shipped == Shipped(shipped.record, was_there=False)
        assert shipped.record.diff_ids == tuple(pushed.image.diff_ids)
        mirror = MirrorSource(prefix, client, Advice(registries), Noted())
        for source in (StoreSource("registry", store, client), mirror):
            assert isinstance(await source.deliver(image, ignore), Delivered)
            facts = await client.inspect(image)
            assert list(facts.diff_ids) == pushed.image.diff_ids
            assert await client.inspect(f"{prefix}/{image.removeprefix('docker.io/')}") is None
            assert await client.remove(image) == Removed()


class Noted:
    """Notes nothing."""

    async def bring(self, image: str) -> None:
        pass

    async def let_go(self, image: str) -> None:
        pass


async def test_a_digest_comes_by_a_mirror_where_the_engine_keeps_it(real_engine, real_registry, tmp_path):
    pushed = push(real_registry)
    path = pushed.name.rpartition(":")[0]
    async with open_client(real_engine) as client, open_registries_with(tmp_path, {}) as registries:
        registry = await registries.of(real_registry.address)
        digest = (await registry.head(pushed.at(real_registry.address))).digest
        image = f"docker.io/{path}@{digest}"
        mirror = MirrorSource(real_registry.address, client, Advice(registries), Noted())
        end = await mirror.deliver(image, ignore)
        if real_engine.product == "docker":
            assert isinstance(end, Missing)
        else:
            assert isinstance(end, Delivered)
            assert (await client.inspect(image)).digests
            assert await client.remove(image) == Removed()
        assert not [name for one in await client.list_images() for name in one.names if path in name]


async def test_an_engines_word_is_made_better_by_the_registry(real_engine, real_registry, tmp_path):
    pushed = push(real_registry)
    path = pushed.name.rpartition(":")[0]
    async with open_client(real_engine) as client, open_registries_with(tmp_path, {}) as registries:
        origin = OriginSource(client, Advice(registries))
        end = await origin.deliver(f"{real_registry.address}/{path}:latest", ignore)
        assert end == Missing(f"{real_registry.address}/{path}: no tag latest; there are: 1")
