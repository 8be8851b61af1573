"""The engine client: what it asks, and what it makes of the answers."""

from __future__ import annotations

import json
import os

import attrs
import pytest
from engine_kit import DIGEST, Auths, X, Y, engine_and_client, fails

from fake_engine import Raw, Refuses
from fake_images import AMD64, ARM64, FakeImage
from scavenge.edge.images import engine_wire
from scavenge.edge.images.engine import open_engine
from scavenge.images import (
    InUse,
    NotRemoved,
    Platform,
    Removed,
)


async def test_a_docker_says_what_it_is():
    async with engine_and_client() as (engine, client):
        info = await client.info()
    assert (info.product, info.version, info.platform) == ("docker", "20.10.24", AMD64)
    assert (info.engine_id, info.root_dir) == ("7TRN:IPZB:QYBB", str(engine.folder))


async def test_a_podman_has_an_id_that_is_its_own_and_stays_so():
    async with engine_and_client(podman=True, platform=ARM64) as (engine, client):
        info = await client.info()
        async with open_engine(engine.address, {}, Auths()) as another:
            assert await another.info() == info
    async with engine_and_client(podman=True) as (_, client):
        assert (await client.info()).engine_id != info.engine_id
    assert (info.product, info.version, info.platform) == ("podman", "4.3.1", ARM64)


async def test_a_docker_without_an_id_gets_one_of_its_place():
    said = {"DockerRootDir": "/a", "OSType": "linux", "Architecture": "armv7l", "ServerVersion": "1"}
    async with engine_and_client() as (engine, client):
        engine.script("info", Raw(json.dumps(said).encode()))
        info = await client.info()
    assert len(info.engine_id) == 32
    assert info.platform == Platform("linux", "arm", "v7")


async def test_an_engine_is_asked_what_it_is_once_while_it_answers():
    async with engine_and_client() as (engine, client):
        await client.info()
        await client.list_images()
        await client.info()
        assert (engine.calls["ping"], engine.calls["info"]) == (1, 1)
        engine.down()
        await fails(client.list_images)
        engine.platform = ARM64
        engine.up()
        assert (await client.info()).platform == ARM64


async def test_an_image_that_is_not_there_is_no_trouble():
    async with engine_and_client() as (engine, client):
        await client.info()
        await fails(client.tag, X, Y)
        assert await client.inspect(X) is None
        assert await client.remove(X) == Removed()
        await client.info()
    assert (engine.calls["ping"], engine.calls["info"]) == (1, 1)


@pytest.mark.parametrize("podman", [False, True])
async def test_images_are_listed_by_their_canonical_names(podman):
    async with engine_and_client(podman=podman) as (engine, client):
        engine.images = {
            X: FakeImage(),
            "docker.io/library/x:2": FakeImage(),
            Y: FakeImage((b"other",)),
            DIGEST: FakeImage((b"3",)),
        }
        engine.untagged = [FakeImage((b"nameless",))]
        listed = await client.list_images()
        assert await client.list_images() == listed
    assert [image.names for image in listed] == [(X, "docker.io/library/x:2"), (Y,), (DIGEST,), ()]
    assert [image.size_bytes for image in listed] == [7, 5, 1, 0]
    assert listed[0].image_id == FakeImage().image_id


async def test_names_that_are_none_are_passed_over():
    rows = [
        {
            "Id": "a",
            "RepoTags": ["<none>:<none>", "Not A Name", 3, None, "x:1"],
            "RepoDigests": ["x@sha256:12"],
            "Size": 5,
        },
        {"Id": "b", "RepoTags": None, "RepoDigests": ["<none>@<none>", DIGEST], "Size": -1},
        {"RepoTags": {"x": 1}, "Size": "large"},
        {"Id": "c", "RepoTags": ["x:1", "docker.io/x:1"]},
    ]
    async with engine_and_client() as (engine, client):
        engine.script("list", Raw(json.dumps(rows).encode()), Raw(b"null"))
        listed = await client.list_images()
        assert await client.list_images() == []
    assert [(image.image_id, image.names, image.size_bytes) for image in listed] == [
        ("a", (X,), 5),
        ("b", (DIGEST,), 0),
        ("", (), 0),
        ("c", (X,), 0),
    ]


async def test_an_image_is_told_of_and_named_and_removed():
    async with engine_and_client() as (engine, client):
        engine.images[X] = FakeImage((b"a", b"bc"), Platform("linux", "arm64", "v8"), digests=(DIGEST,))
        facts = await client.inspect(X)
        await client.tag(X, Y)
        assert engine.images[Y] == engine.images[X]
        assert await client.remove(X) == Removed()
        assert list(engine.images) == [Y]
    assert facts is not None
    assert (str(facts.platform), facts.diff_ids, facts.digests, facts.size_bytes) == (
        "linux/arm64/v8",
        FakeImage((b"a", b"bc")).diff_ids,
        (DIGEST,),
        3,
    )


async def test_an_image_that_a_container_has_is_left():
    async with engine_and_client() as (engine, client):
        engine.images[X] = FakeImage()
        engine.in_use.add(X)
        engine.script("remove", None, Refuses(500, "driver failed\nto remove"))
        kept = await client.remove(X)
        failed = await client.remove(X)
        assert X in engine.images
    assert isinstance(kept, InUse)
    assert "container 0a1b" in kept.why
    assert failed == NotRemoved("driver failed to remove")


GARBAGE = [b"", b"{", b"null", b"3", b'"x"', b"\xff\xfe", b"[" * 100_000, b"<html>", b'{"OSType": 3}', b"[3]", b"[[]]"]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_an_error_or_says_nothing(garbage):
    async with engine_and_client() as (engine, client):
        for kind in ("info", "list", "inspect"):
            engine.script(kind, Raw(garbage))
        errors = [await fails(client.info)]
        errors += [await fails(client.list_images)] if garbage != b"null" else []
        errors += [await fails(client.inspect, X)] if garbage != b'{"OSType": 3}' else []
    assert not any(error.silent for error in errors)
    assert all("answers with" in str(error) for error in errors)


async def test_facts_that_are_not_told_are_empty():
    async with engine_and_client() as (engine, client):
        engine.script("inspect", Raw(b"{}"), Raw(b'{"Id": 3, "RootFS": {"Layers": [1, "a"]}, "Size": null}'))
        bare, odd = await client.inspect(X), await client.inspect(X)
    assert bare is not None
    assert (bare.image_id, bare.diff_ids, bare.digests, bare.size_bytes) == ("", (), (), 0)
    assert odd == attrs.evolve(bare, diff_ids=("a",))


async def test_an_answer_without_end_is_left(monkeypatch):
    monkeypatch.setattr(engine_wire, "MOST_BYTES", 2**20)
    async with engine_and_client() as (engine, client):
        engine.script("list", Raw(b" " * 2**21))
        error = await fails(client.list_images)
    assert "more than 1 MiB" in str(error)


async def test_free_room_is_that_of_the_folder_where_it_is_seen(tmp_path):
    async with engine_and_client() as (engine, client):
        assert client.disk() is None
        await client.info()
        seen = client.disk()
        disk = os.statvfs(engine.folder)
    assert seen is not None
    assert seen.free_bytes == pytest.approx(disk.f_bavail * disk.f_frsize, rel=0.2)
    assert seen.total_bytes == disk.f_blocks * disk.f_frsize
    assert client.disk() is None  # the folder is gone


async def test_the_room_of_a_virtual_machine_is_not_seen():
    async with engine_and_client(kernel="5.15.0-linuxkit") as (_, client):
        await client.info()
        assert client.disk() is None
