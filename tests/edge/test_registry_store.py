"""The image store in a registry: what is put there is an image like any other, and comes back whole."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import attrs
import pytest
import zstandard
from engine_kit import Auths, ignore
from fake_registry import Cut, FakeRegistry, Forget, Refuse, Wrong, open_fake_registry

from fake_engine import open_fake_engine
from fake_images import AMD64, ARM64, FakeImage, digest_of, docker_archive
from scavenge.core.images.manifests import OCI_INDEX
from scavenge.core.images.reference import BadReference, under
from scavenge.edge.images import registry_layers
from scavenge.edge.images.engine import open_engine
from scavenge.edge.images.registry_client import open_registries
from scavenge.edge.images.registry_store import RegistryStore, RegistryStoreConfig, open_registry_store
from scavenge.edge.images.shipping import Shipper
from scavenge.edge.images.store_source import StoreSource
from scavenge.errors import StoreError
from scavenge.images import Delivered, ImageRecord, Transferred
from scavenge.testing import check_image_store

IMAGE = "docker.io/library/x:1"
LARGE = FakeImage((os.urandom(30_000), b"text " * 5_000, b""))


class Nobody:
    async def find(self, image: str) -> None:
        return None


@asynccontextmanager
async def store_in(fake: FakeRegistry) -> AsyncIterator[RegistryStore]:
    async with open_registries(Nobody(), Random(1), pause_first_s=0.0) as registries:
        yield RegistryStore(f"{fake.host}/hub", registries)


@asynccontextmanager
async def fake_store() -> AsyncIterator[tuple[FakeRegistry, RegistryStore]]:
    with open_fake_registry() as fake:
        async with store_in(fake) as store:
            yield fake, store


def record_of(image: FakeImage, data: bytes, name: str = IMAGE) -> ImageRecord:
    digest = digest_of(data).removeprefix("sha256:")
    return ImageRecord(
        name,
        image.platform,
        image.image_id,
        image.diff_ids,
        "x.tar",
        len(data),
        digest,
        "2026-01-31T12:00:00Z",
        "tests",
    )


def packed(folder: Path, image: FakeImage, name: str = IMAGE, data: bytes | None = None) -> tuple[ImageRecord, Path]:
    """An archive with its record."""
    data = docker_archive([(name, image)]) if data is None else data
    file = folder / f"{digest_of(data)[7:]}.tar"
    file.write_bytes(data)
    return record_of(image, data, name), file


async def put(store: RegistryStore, record: ImageRecord, file: Path) -> list[Transferred]:
    told: list[Transferred] = []
    await store.put(record, str(file), told.append)
    return told


async def read(store: RegistryStore, record: ImageRecord) -> bytes:
    async with store.open_archive(record) as pieces:
        return b"".join([piece async for piece in pieces])


def layers_in(archive: bytes) -> list[bytes]:
    """The layers of an archive, inflated."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        [entry] = json.loads(_member(tar, "manifest.json"))
        layers = [_member(tar, name) for name in entry["Layers"]]
    return [gzip.decompress(layer) if layer.startswith(b"\x1f\x8b") else layer for layer in layers]


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    held = tar.extractfile(name)
    assert held is not None
    return held.read()


# --- there and back


async def test_an_image_goes_there_and_comes_back(tmp_path: Path):
    async with fake_store() as (fake, store):
        assert await store.find(IMAGE, "linux/amd64") is None
        record, file = packed(tmp_path, LARGE)
        told = await put(store, record, file)
        found = await store.find(IMAGE, "linux/amd64")
        assert found is not None
        assert (found.image, found.platform, found.config_digest) == (IMAGE, AMD64, LARGE.image_id)
        assert (found.diff_ids, found.sha256) == (LARGE.diff_ids, "")
        assert found.archive == digest_of(fake.manifests["hub/library/x", "1"][1])
        data = await read(store, found)
        assert len(data) == found.size_bytes
        assert layers_in(data) == list(LARGE.layers)
        done = [one.done_bytes for one in told]
        assert done == sorted(done)
        assert told[-1] == Transferred(55_000, 55_000)


async def test_the_same_layer_becomes_the_same_blob_and_is_sent_once(tmp_path: Path):
    base = os.urandom(1000)
    async with fake_store() as (fake, store):
        for number, name in enumerate(("docker.io/library/x:1", "docker.io/library/y:1")):
            await put(store, *packed(tmp_path, FakeImage((base, b"%d" % number)), name))
        assert fake.count("PUT", "/blobs/") == 5  # x's two layers and its configuration, y's own layer and its
        assert fake.count("POST", "mount=") == 1
    with open_fake_registry() as other:
        async with store_in(other) as store:
            await put(store, *packed(tmp_path, FakeImage((base,))))
        assert other.blobs["hub/library/x"].keys() & fake.blobs["hub/library/x"].keys()


async def test_what_is_there_is_not_sent_again(tmp_path: Path):
    with open_fake_registry() as fake:
        for _ in range(2):
            async with store_in(fake) as store:
                await put(store, *packed(tmp_path, LARGE))
        assert fake.count("PUT", "/blobs/") == 4


async def test_a_mirror_of_the_same_prefix_would_find_it_there(tmp_path: Path):
    async with fake_store() as (fake, store):
        for name in (IMAGE, "ghcr.io/a/b:2"):
            await put(store, *packed(tmp_path, LARGE, name))
            registry, _, rest = under(store.prefix, name).partition("/")
            assert registry == fake.host
            assert tuple(rest.rsplit(":", 1)) in fake.manifests


async def test_a_source_delivers_what_others_have_pushed():
    plain = FakeImage((b"one", b"two"))
    async with fake_store() as (fake, store), open_fake_engine() as engine:
        fake.add("hub/library/x:1", plain, packed=False)
        async with open_engine(engine.address, {}, Auths()) as client:
            end = await StoreSource("store", store, client).deliver(IMAGE, ignore)
            assert isinstance(end, Delivered)
        assert engine.images == {IMAGE: plain}


async def test_shipping_proves_what_it_put_there(tmp_path: Path):
    async with fake_store() as (fake, store):
        record, file = packed(tmp_path, LARGE)
        shipped = await Shipper("registry", store).ship(record, file)
        assert not shipped.was_there
        assert (await Shipper("registry", store).ship(record, file)).was_there
        damaged = next(digest for digest in fake.blobs["hub/library/x"] if digest != LARGE.image_id)
        other = FakeImage((*LARGE.layers, b"more"))
        fake.script("GET", damaged, Wrong(b"other"), Wrong(b"other"))
        with pytest.raises(StoreError):
            await Shipper("registry", store).ship(*packed(tmp_path, other))


async def test_an_image_named_by_its_digest_has_a_tag_of_its_own(tmp_path: Path):
    name = f"docker.io/library/x@sha256:{'0a' * 32}"
    async with fake_store() as (fake, store):
        await put(store, *packed(tmp_path, LARGE, name))
        assert ("hub/library/x", f"sha256-{'0a' * 32}") in fake.manifests
        found = await store.find(name, "linux/amd64")
        assert found is not None
        assert found.config_digest == LARGE.image_id


# --- platforms


async def test_images_for_several_platforms_live_under_one_name(tmp_path: Path):
    amd, arm = FakeImage((b"amd",)), FakeImage((b"arm",), ARM64)
    newer = FakeImage((b"newer",), ARM64)
    async with fake_store() as (fake, store):
        await put(store, *packed(tmp_path, amd))
        assert await store.find(IMAGE, "linux/arm64") is None
        for image in (arm, newer):
            await put(store, *packed(tmp_path, image))
            for platform, wanted in ((AMD64, amd), (ARM64, image)):
                found = await store.find(IMAGE, str(platform))
                assert found is not None
                assert found.config_digest == wanted.image_id
        assert fake.manifests["hub/library/x", "1"][0] == OCI_INDEX
        assert await store.find(IMAGE, "linux/s390x") is None
        with_variant = await store.find(IMAGE, "linux/arm64/v8")
        assert with_variant is not None
        await put(store, *packed(tmp_path, amd))
        assert len(json.loads(fake.manifests["hub/library/x", "1"][1])["manifests"]) == 2


async def test_what_is_no_image_is_replaced(tmp_path: Path):
    async with fake_store() as (fake, store):
        fake.manifest("hub/library/x", "1", OCI_INDEX, b'{"manifests": [{}]}')
        with pytest.raises(StoreError, match="its manifest is broken"):
            await store.find(IMAGE, "linux/amd64")
        await put(store, *packed(tmp_path, LARGE))
        assert await store.find(IMAGE, "linux/amd64") is not None


# --- archives of all kinds


def gzipped_layers(image: FakeImage, compress: str) -> bytes:
    """An archive whose layers are compressed, as some tools write them."""
    press = {
        "gzip": lambda data: gzip.compress(data, mtime=0),
        "zstd": zstandard.compress,
        "bzip2": lambda _: b"BZh9...",
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        names = [f"{number}.tar" for number in range(len(image.layers))]
        members = [("config.json", image.config), *zip(names, map(press[compress], image.layers), strict=True)]
        manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": names}]
        for member, data in [*members, ("manifest.json", json.dumps(manifest).encode())]:
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("compress", ["gzip", "zstd"])
async def test_layers_that_are_compressed_go_as_they_are(tmp_path: Path, compress: str):
    image = FakeImage((b"one" * 1000, b"two" * 1000))
    async with fake_store() as (fake, store):
        await put(store, *packed(tmp_path, image, data=gzipped_layers(image, compress)))
        manifest = json.loads(fake.manifests["hub/library/x", "1"][1])
        assert [layer["mediaType"].rpartition("+")[2] for layer in manifest["layers"]] == [compress] * 2
        if compress == "gzip":
            assert {digest_of(gzip.compress(layer, mtime=0)) for layer in image.layers} < fake.blobs[
                "hub/library/x"
            ].keys()


async def test_an_archive_that_is_compressed_as_a_whole_is_inflated(tmp_path: Path):
    async with fake_store() as (_, store):
        await put(store, *packed(tmp_path, LARGE, data=gzip.compress(docker_archive([(IMAGE, LARGE)]))))
        found = await store.find(IMAGE, "linux/amd64")
        assert found is not None
        assert layers_in(await read(store, found)) == list(LARGE.layers)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cannot be stored"),
        (b"no archive" * 100, "cannot be stored"),
        (docker_archive([(IMAGE, FakeImage((b"other",)))]), "is not in it; pack the image again"),
        (gzipped_layers(LARGE, "bzip2"), "which no registry knows; write it anew"),
        (docker_archive([(IMAGE, LARGE)]).replace(b"text text", b"test test", 1), "is damaged"),
        (docker_archive([(IMAGE, LARGE)])[:40_000], "cannot be stored"),
    ],
)
async def test_an_archive_that_is_not_the_images_is_refused(tmp_path: Path, data: bytes, why: str):
    async with fake_store() as (fake, store):
        record, file = packed(tmp_path, LARGE, data=data)
        with pytest.raises(StoreError, match=why):
            await put(store, record, file)
        assert not fake.manifests


async def test_an_archive_that_is_not_there_is_told(tmp_path: Path):
    async with fake_store() as (_, store):
        with pytest.raises(StoreError, match="absent: No such file"):
            await put(store, record_of(LARGE, b""), tmp_path / "absent")


async def test_no_room_for_a_layer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*args: object, **options: object) -> object:
        return open("/dev/full", "wb", buffering=0)

    monkeypatch.setattr(registry_layers.tempfile, "TemporaryFile", full)
    async with fake_store() as (_, store):
        with pytest.raises(StoreError, match="No space left on device; make room, or see TMPDIR"):
            await put(store, *packed(tmp_path, LARGE))


# --- what goes wrong


@pytest.mark.parametrize(
    ("refusal", "after_s"),
    [
        (Refuse(500, "UNKNOWN", "no"), None),
        (Refuse(403, "DENIED", "no"), None),
        (Refuse(429, headers={"retry-after": "9"}), 9.0),
    ],
)
async def test_what_a_registry_refuses_is_told(tmp_path: Path, refusal: Refuse, after_s: float | None):
    async with fake_store() as (fake, store):
        record, file = packed(tmp_path, LARGE)
        fake.script("GET", "/manifests/", refusal)
        with pytest.raises(StoreError, match=fake.host) as caught:
            await store.find(IMAGE, "linux/amd64")
        assert caught.value.retry_after_s == after_s
        fake.script("PUT", "/manifests/", refusal)
        with pytest.raises(StoreError, match=fake.host):
            await put(store, record, file)
        assert await store.find(IMAGE, "linux/amd64") is None


async def test_a_disturbed_transfer_goes_on_both_ways(tmp_path: Path):
    async with fake_store() as (fake, store):
        fake.script("PUT", "/blobs/", Cut(100), Forget())
        await put(store, *packed(tmp_path, LARGE))
        found = await store.find(IMAGE, "linux/amd64")
        assert found is not None
        fake.script("GET", "/blobs/", Cut(10), Cut(20))
        assert layers_in(await read(store, found)) == list(LARGE.layers)


async def test_a_damaged_layer_never_comes_to_its_end(tmp_path: Path):
    async with fake_store() as (fake, store):
        await put(store, *packed(tmp_path, FakeImage((b"one" * 1000,))))
        found = await store.find(IMAGE, "linux/amd64")
        assert found is not None
        [layer] = fake.blobs["hub/library/x"].keys() - {found.config_digest}
        fake.blobs["hub/library/x"][layer] = fake.blobs["hub/library/x"][layer][:-1] + b"!"
        with pytest.raises(StoreError, match="another digest"):
            await read(store, found)


async def test_an_archive_of_old_can_be_read_while_its_name_has_moved_on(tmp_path: Path):
    async with fake_store() as (_, store):
        await put(store, *packed(tmp_path, LARGE))
        old = await store.find(IMAGE, "linux/amd64")
        await put(store, *packed(tmp_path, FakeImage()))
        assert old is not None
        assert layers_in(await read(store, old)) == list(LARGE.layers)
        with pytest.raises(StoreError, match="manifest unknown"):
            await read(store, attrs.evolve(old, archive=digest_of(b"other")))


async def test_a_manifest_with_other_layers_than_its_config_is_told():
    async with fake_store() as (fake, store):
        fake.add("hub/library/x:1", LARGE)
        kind, data = fake.manifests["hub/library/x", "1"]
        document = json.loads(data)
        document["layers"].pop()
        fake.manifest("hub/library/x", "1", kind, json.dumps(document).encode())
        with pytest.raises(StoreError, match="tells of 3 layers, and it has 2"):
            await store.find(IMAGE, "linux/amd64")


@pytest.mark.parametrize(
    "config", [b"", b"{}", b'{"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [3]}}']
)
async def test_a_config_that_is_none_is_told(config: bytes):
    async with fake_store() as (fake, store):
        held = {"mediaType": "x", "digest": fake.blob("hub/library/x", config), "size": len(config)}
        data = json.dumps({"config": held, "layers": []}).encode()
        fake.manifest("hub/library/x", "1", "application/vnd.oci.image.manifest.v1+json", data)
        with pytest.raises(StoreError, match="its config is not that of an image"):
            await store.find(IMAGE, "linux/amd64")


async def test_it_is_an_image_store():
    with open_fake_registry() as fake:

        @asynccontextmanager
        async def cut() -> AsyncIterator[None]:
            fake.script("GET", "/blobs/", *[Cut(1000)] * 100)
            yield
            fake.behave()

        await check_image_store(lambda: store_in(fake), cut=cut, max_steps=3)


# --- its settings


@pytest.mark.parametrize("prefix", ["http://registry.example", "registry", ""])
def test_a_prefix_that_is_none_is_refused(prefix: str):
    with pytest.raises(BadReference):
        RegistryStoreConfig(prefix)


async def test_it_opens_where_nothing_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with open_fake_registry() as fake:
        async with open_registry_store(RegistryStoreConfig(f"{fake.host}/hub/")) as store:
            assert await store.find(IMAGE, "linux/amd64") is None
    async with open_registry_store(RegistryStoreConfig(f"{fake.host}/hub")) as store:
        with pytest.raises(StoreError, match="refused"):
            await store.find(IMAGE, "linux/amd64")


async def test_what_a_registry_says_is_told_without_our_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for variable in ("HOME", "DOCKER_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    with open_fake_registry() as fake:
        auths = {fake.host: {"username": "u", "password": "do-not-show"}}
        (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
        challenge = {"www-authenticate": "Basic realm=x"}
        refusals = [Refuse(401, headers=challenge), Refuse(403, "DENIED", "u:do-not-show may not")]
        fake.script("GET", "/manifests/", *refusals)
        async with open_registry_store(RegistryStoreConfig(f"{fake.host}/hub")) as store:
            with pytest.raises(StoreError) as caught:
                await store.find(IMAGE, "linux/amd64")
    assert "u:[secret] may not" in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)
