"""Loads by the engine client: an archive is taken in whole, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trio
from engine_kit import Auths, Pieces, X, Y, cut_up, engine_and_client

from fake_engine import DISK_FULL, Cut, Fails, FakeEngine, Raw, Refuses, Silent, Slow, TakesNothing
from fake_images import AMD64, FakeImage, docker_archive
from scavenge.edge.images.engine import open_engine
from scavenge.edge.images.verify import delivered
from scavenge.errors import EngineError
from scavenge.images import Broken, Delivered, DiskFull, EngineSilent, Platform, Unfit
from scavenge.testing.sweep import cancel_at_every_step

IMAGE = FakeImage((b"a layer" * 2000, b"another"))
ARCHIVE = docker_archive([(X, IMAGE)])


@pytest.mark.parametrize("podman", [False, True])
async def test_an_archive_is_taken_in_under_its_name(podman):
    async with engine_and_client(podman=podman) as (engine, client):
        assert await client.load(Pieces(cut_up(ARCHIVE)), AMD64) == Delivered()
        assert await delivered(client, X, AMD64, IMAGE.diff_ids) == Delivered(IMAGE.size_bytes)
        assert list(engine.images) == [X]
    assert engine.seen[1].body == ARCHIVE


async def test_the_platform_is_told_to_engines_that_take_it():
    async with engine_and_client(api_version="1.47") as (engine, client):
        await client.load(Pieces([ARCHIVE]), AMD64)
        engine.api_version = "1.48"
        engine.script("list", Cut())
        with pytest.raises(EngineError):
            await client.list_images()
        await client.load(Pieces([ARCHIVE]), Platform("linux", "arm64", "v8"))
        await client.load(Pieces([ARCHIVE]), AMD64)
    old, arm, amd = [call.query for call in engine.seen if call.kind == "load"]
    assert old == {"quiet": "1"}
    assert json.loads(arm["platform"]) == {"os": "linux", "architecture": "arm64", "variant": "v8"}
    assert json.loads(amd["platform"]) == {"os": "linux", "architecture": "amd64"}


async def test_a_name_that_podman_has_put_its_own_registry_before_is_put_right():
    async with engine_and_client(podman=True, loads_as="localhost/{}") as (engine, client):
        assert await client.load(Pieces([ARCHIVE]), AMD64) == Delivered()
        assert list(engine.images) == [X]
        assert await delivered(client, X, AMD64) == Delivered(IMAGE.size_bytes)


@pytest.mark.parametrize("name", ["localhost/x:1", "localhost/team/x:1", "localhost:5000/x:1", Y])
async def test_a_name_that_is_one_of_that_registry_stays(name):
    async with engine_and_client(podman=True) as (engine, client):
        assert await client.load(Pieces([docker_archive([(name, IMAGE)])]), AMD64) == Delivered()
        assert list(engine.images) == [name]
    assert engine.calls["tag"] == 0


async def test_a_name_that_is_none_stays_as_it_is():
    async with engine_and_client(podman=True) as (engine, client):
        engine.script("load", Raw(b'{"stream":"Loaded image: localhost/NO/Name:1"}'))
        assert await client.load(Pieces([ARCHIVE]), AMD64) == Delivered()
    assert engine.calls["tag"] == 0


async def test_a_name_that_cannot_be_put_right_is_no_delivery():
    async with engine_and_client(podman=True, loads_as="localhost/{}") as (engine, client):
        engine.script("tag", Refuses(500, "no room for names"), Cut())
        refused = await client.load(Pieces([ARCHIVE]), AMD64)
        cut = await client.load(Pieces([ARCHIVE]), AMD64)
    assert isinstance(refused, Broken)
    assert "no room for names" in refused.why
    assert isinstance(cut, Broken | EngineSilent)


@pytest.mark.parametrize("podman", [False, True])
async def test_an_archive_without_a_name_is_not_there_under_any(podman):
    async with engine_and_client(podman=podman) as (engine, client):
        assert await client.load(Pieces([docker_archive([(None, IMAGE)])]), AMD64) == Delivered()
        assert isinstance(await delivered(client, X, AMD64), Broken)
    assert engine.untagged == [IMAGE]


@pytest.mark.parametrize("podman", [False, True])
async def test_several_names_of_an_archive_are_all_there(podman):
    async with engine_and_client(podman=podman) as (engine, client):
        assert await client.load(Pieces([docker_archive([(X, IMAGE), (Y, FakeImage())])]), AMD64) == Delivered()
        assert set(engine.images) == {X, Y}


@pytest.mark.parametrize("podman", [False, True])
@pytest.mark.parametrize(
    "garbage", [b"", b"\x89PNG" * 500, ARCHIVE[:-3000], ARCHIVE[: len(ARCHIVE) // 2]], ids=range(4)
)
async def test_garbage_is_refused_in_spite_of_status_200(podman, garbage):
    async with engine_and_client(podman=podman) as (engine, client):
        end = await client.load(Pieces(cut_up(garbage)), AMD64)
        assert engine.images == {}
    assert isinstance(end, Unfit | Broken)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Fails(DISK_FULL), DiskFull),
        (Fails(DISK_FULL, bare=True), DiskFull),
        (Fails(DISK_FULL, early=True), DiskFull),
        (Refuses(500, DISK_FULL), DiskFull),
        (Fails("invalid diffID for layer 0: expected sha256:0a"), Unfit),
        (Raw(b""), Broken),
        (Raw(b'{"stream":"Loading layer"}'), Broken),
        (Raw(b"\x00\x01"), Broken),
        (Cut(midway=False), Broken),
        (Cut(midway=True), Broken),
        (Cut(midway=True, clean=True), Broken),
    ],
)
async def test_each_way_to_fail_has_its_end(answer, kind):
    async with engine_and_client() as (engine, client):
        engine.script("load", answer)
        assert isinstance(await client.load(Pieces(cut_up(ARCHIVE)), AMD64), kind)
        assert await client.load(Pieces(cut_up(ARCHIVE)), AMD64) == Delivered()


async def test_a_refusal_in_plain_words_is_told_in_these():
    async with engine_and_client() as (engine, client):
        engine.script("load", Raw(b"page not found\n", status=404))
        end = await client.load(Pieces([ARCHIVE]), AMD64)
    assert end == Broken("page not found")


async def test_an_engine_that_refuses_early_is_heard_while_much_is_still_to_come():
    given = 0

    def endless() -> Iterator[bytes]:
        nonlocal given
        while True:
            given += 1
            yield b"x" * 100_000

    async with engine_and_client() as (engine, client):
        engine.script("load", Fails(DISK_FULL, early=True))
        assert isinstance(await client.load(Pieces(endless()), AMD64), DiskFull)
    assert given < 200


@pytest.mark.parametrize(
    "failure", [KeyError("no such layer"), httpx.ReadError("cut"), EngineError("mine"), OSError(5, "bad")]
)
@pytest.mark.parametrize("size", [1000, len(ARCHIVE)], ids=["pieces", "whole"])
async def test_what_the_archive_raises_comes_out_and_nothing_is_taken_in(failure, size):
    async with engine_and_client() as (engine, client):
        with pytest.raises(type(failure)) as caught:
            await client.load(Pieces(cut_up(ARCHIVE, size), failure), AMD64)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert caught.value is failure
        assert (engine.images, engine.torn_loads, engine.connections) == ({}, 1, 0)


async def test_an_archive_that_fails_before_its_first_byte_is_told_as_such():
    async with engine_and_client() as (engine, client):
        with pytest.raises(OSError, match="gone"):
            await client.load(Pieces([], OSError("gone")), AMD64)
        assert engine.images == {}


async def test_no_engine_leaves_the_archive_alone():
    async with engine_and_client() as (engine, client):
        engine.down()
        end = await client.load(Pieces([], AssertionError("was read")), AMD64)
    assert isinstance(end, EngineSilent)


async def test_an_engine_that_takes_nothing_is_given_up(autojump_clock):
    async with engine_and_client() as (engine, client):
        engine.script("load", TakesNothing())
        with trio.fail_after(1000):
            end = await client.load(Pieces(cut_up(b"x" * 10_000_000, 2**20)), AMD64)
        assert trio.current_time() == pytest.approx(120, abs=1)
    assert isinstance(end, Broken)
    assert "said nothing for 120 s" in end.why


@pytest.mark.parametrize("answer", [Silent(), Silent(midway=True)])
async def test_an_engine_that_unpacks_has_time_by_the_size_of_the_archive(autojump_clock, answer):
    async with engine_and_client() as (engine, client):
        engine.script("load", answer)
        end = await client.load(Pieces(cut_up(b"x" * 2**23, 2**20)), AMD64)
        assert trio.current_time() == pytest.approx(120 + 2)
    assert isinstance(end, Broken)


async def test_a_slow_source_is_not_the_engines_fault(autojump_clock):
    async with engine_and_client() as (engine, client):
        engine.script("load", Slow(100))
        assert await client.load(Pieces(cut_up(ARCHIVE, 4000), pause_s=500), AMD64) == Delivered()


async def test_a_load_that_is_cancelled_is_no_whole_archive(autojump_clock):
    async with engine_and_client() as (engine, client):
        with trio.move_on_after(5):
            await client.load(Pieces([ARCHIVE[:-1024]], endless=True), AMD64)
        await trio.testing.wait_all_tasks_blocked()
        assert (engine.images, engine.torn_loads, engine.connections) == ({}, 1, 0)


def test_a_load_may_be_cancelled_at_every_step(tmp_path: Path):
    archive = cut_up(docker_archive([(X, FakeImage())]), 6000)

    async def use() -> None:
        engine = FakeEngine(tmp_path)
        engine.up()
        async with open_engine(engine.address, {}, Auths()) as client:
            try:
                assert await client.load(Pieces(archive), AMD64) == Delivered()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.testing.wait_all_tasks_blocked()
                    assert engine.connections == 0
                    assert engine.images in ({}, {X: FakeImage()})
                    assert await client.list_images() is not None

    assert cancel_at_every_step(use, lambda: None) > 10
