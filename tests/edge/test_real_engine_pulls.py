"""Pulls by real engines from real registries that misbehave, disks that fill up, and engines that die."""

from __future__ import annotations

from contextlib import contextmanager

import trio
from real_client import Pushed, load, open_client, pull, push, save
from real_engine import only_on
from real_images import needs_shell
from real_registry import Faults, needs_registry, open_proxy

from scavenge.images import Broken, Delivered, DiskFull, EngineSilent, Missing, Throttled, Unfit

pytestmark = [needs_registry, needs_shell]

LARGE_BYTES = 400_000
"""Of a layer that is more than one piece of what is sent."""


@contextmanager
def troubled(registry, faults: Faults, **options: object):
    """The name of an image at a registry where the faults are; *options* are those of the image."""
    pushed: Pushed = push(registry, **options)
    with open_proxy(registry, faults) as address:
        yield pushed.at(address)


async def test_a_tag_or_a_repository_that_is_absent_is_missing(real_engine, real_registry):
    repository = push(real_registry).at(real_registry.address).rpartition(":")[0]
    async with open_client(real_engine) as client:
        assert isinstance(await pull(client, f"{repository}:absent"), Missing)
        assert isinstance(await pull(client, f"{repository}/absent:1"), Missing)


async def test_a_registry_that_cannot_be_reached_is_trouble_for_now(real_engine):
    async with open_client(real_engine) as client:
        end = await pull(client, "docker.io/library/python:3.12")  # a real engine of tests knows no name server
    assert isinstance(end, Broken)


async def test_a_registry_that_fails_is_trouble_for_now(real_engine, real_registry):
    faults = Faults("/manifests/", answer=503)
    with troubled(real_registry, faults) as name:
        async with open_client(real_engine) as client:
            assert isinstance(await pull(client, name), Broken)
            faults.times = 0
            assert await pull(client, name) == Delivered()


async def test_a_registry_that_has_enough_of_us_is_told_as_that(real_engine, real_registry):
    is_podman = real_engine.product == "podman"
    faults = Faults("/manifests/", answer=429, retry_after="1", times=1 if is_podman else 2)
    with troubled(real_registry, faults) as name:
        async with open_client(real_engine) as client:
            end = await pull(client, name)
    # dockerd asks twice and passes it on; Podman waits as it is told, and asks again
    assert isinstance(end, Delivered if is_podman else Throttled)


@only_on("podman")  # dockerd fetches it again by itself, after five seconds
async def test_a_layer_that_is_cut_off_is_trouble_for_now(real_engine, real_registry):
    faults = Faults(cut_after=LARGE_BYTES // 2, times=1)
    with troubled(real_registry, faults, own_bytes=LARGE_BYTES) as name:
        async with open_client(real_engine) as client:
            assert isinstance(await pull(client, name), Broken)
            assert await pull(client, name) == Delivered()
    assert faults.seen["cut"] == 1


async def test_a_layer_that_is_not_what_it_should_be_is_found_out(real_engine, real_registry):
    with troubled(real_registry, Faults("/blobs/sha256:", spoil=True)) as name:
        async with open_client(real_engine) as client:
            end = await pull(client, name)
            assert await client.inspect(name) is None
    assert isinstance(end, Unfit)


async def test_a_pull_that_is_cancelled_on_its_way_leaves_no_name_and_can_be_made_again(real_engine, real_registry):
    faults = Faults(hold_after=LARGE_BYTES // 2)
    with troubled(real_registry, faults, own_bytes=LARGE_BYTES) as name:
        async with open_client(real_engine) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pull, client, name)
                await trio.to_thread.run_sync(faults.wait_held)
                nursery.cancel_scope.cancel()
            assert await client.inspect(name) is None
            faults.let_go()
            assert await pull(client, name) == Delivered()


async def test_an_engine_that_dies_during_a_pull_is_asked_again_when_it_is_back(real_engine, real_registry):
    faults = Faults(hold_after=LARGE_BYTES // 2)
    with troubled(real_registry, faults, own_bytes=LARGE_BYTES) as name:
        async with open_client(real_engine) as client:
            ends = []
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def pull_it() -> None:
                    ends.append(await pull(client, name))

                await trio.to_thread.run_sync(faults.wait_held)
                real_engine.kill()
            assert isinstance(ends[0], Broken | EngineSilent)
            assert isinstance(await pull(client, name), EngineSilent)
            faults.let_go()
            await trio.to_thread.run_sync(real_engine.start)
            assert await client.inspect(name) is None
            assert await pull(client, name) == Delivered()


async def test_a_disk_that_fills_up_is_told_as_that(real_engine, real_registry):
    name = push(real_registry, own_bytes=LARGE_BYTES).at(real_registry.address)
    async with open_client(real_engine) as client:
        with real_engine.nearly_full(LARGE_BYTES // 2):
            assert isinstance(await pull(client, name), DiskFull)
            assert await client.inspect(name) is None
        assert await pull(client, name) == Delivered()
        archive = await save(client, name)
        await client.remove(name)
        with real_engine.nearly_full(LARGE_BYTES // 2):
            assert isinstance(await load(client, archive), DiskFull)
            assert await client.inspect(name) is None
        assert await load(client, archive) == Delivered()
        assert await client.inspect(name) is not None
