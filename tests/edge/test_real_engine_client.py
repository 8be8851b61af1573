"""The engine client on real engines: what it is told, what is there, archives, names."""

from __future__ import annotations

import pytest
import trio
from real_client import HERE, ignore, load, new_path, open_client, pull, push, save
from real_images import needs_shell
from real_registry import needs_registry

from scavenge.edge.images.verify import delivered
from scavenge.errors import EngineError
from scavenge.images import Delivered, InUse, Removed, Transferred, Unfit

pytestmark = [needs_registry, needs_shell]


async def test_it_knows_which_engine_it_talks_to_and_knows_it_again_when_that_starts_anew(real_engine):
    async with open_client(real_engine) as client:
        before = await client.info()
        real_engine.kill()
        with pytest.raises(EngineError) as caught:
            await client.list_images()
        real_engine.start()
        after = await client.info()
    assert caught.value.silent
    assert (before.product, before.platform) == (real_engine.product, HERE)
    assert after == before


async def test_a_pulled_image_is_listed_and_is_what_was_pushed(real_engine, real_registry):
    pushed = push(real_registry)
    name = pushed.at(real_registry.address)
    told: list[Transferred] = []
    async with open_client(real_engine) as client:
        assert await client.inspect(name) is None
        assert await client.pull(name, HERE, told.append) == Delivered()
        facts = await client.inspect(name)
        listed = [image for image in await client.list_images() if name in image.names]
        assert isinstance(await delivered(client, name, HERE, pushed.image.diff_ids), Delivered)
    assert facts is not None
    assert (facts.platform, list(facts.diff_ids)) == (HERE, pushed.image.diff_ids)
    assert [image.image_id for image in listed] == [facts.image_id]
    assert told
    assert told == sorted(told, key=lambda transferred: transferred.done_bytes)


async def test_an_image_is_pulled_by_its_digest(real_engine, real_registry):
    pushed = push(real_registry)
    name = pushed.at(real_registry.address)
    async with open_client(real_engine) as client:
        await pull(client, name)
        facts = await client.inspect(name)
        assert await client.remove(name) == Removed()
        (by_digest,) = [digest for digest in facts.digests if digest.startswith(name.rpartition(":")[0])]
        assert await pull(client, by_digest) == Delivered()
        assert (await client.inspect(by_digest)).diff_ids == facts.diff_ids
        assert by_digest in {other for image in await client.list_images() for other in image.names}
        assert await client.inspect(name) is None


async def test_an_image_for_another_processor_is_found_out_and_its_name_taken_away(real_engine, real_registry):
    pushed = push(real_registry, architecture="s390x")
    name = pushed.at(real_registry.address)
    async with open_client(real_engine) as client:
        assert await pull(client, name) == Delivered()
        end = await delivered(client, name, HERE)
        assert await client.inspect(name) is None
    assert isinstance(end, Unfit)
    assert "linux/s390x" in end.why


async def test_a_saved_image_comes_back_under_its_name(real_engine, real_registry):
    pushed = push(real_registry)
    origin = pushed.at(real_registry.address)
    name = f"docker.io/{new_path()}:v1"
    async with open_client(real_engine) as client:
        await pull(client, origin)
        await client.tag(origin, name)
        archive = await save(client, name)
        assert await client.remove(name) == Removed()
        assert await client.remove(origin) == Removed()
        assert await load(client, archive) == Delivered()
        facts = await client.inspect(name)
        assert await client.inspect(origin) is None
    assert list(facts.diff_ids) == pushed.image.diff_ids


async def test_what_is_no_image_is_not_loaded(real_engine, real_registry):
    pushed = push(real_registry)
    name = pushed.at(real_registry.address)
    async with open_client(real_engine) as client:
        await pull(client, name)
        archive = await save(client, name)
        await client.remove(name)
        before = set(await client.list_images())
        for broken in (b"", b"\x89PNG" * 5000, archive[: len(archive) // 2]):
            assert not isinstance(await load(client, broken), Delivered)
        assert set(await client.list_images()) == before


async def test_an_archive_that_turns_out_to_be_wrong_is_not_taken_in(real_engine, real_registry):
    pushed = push(real_registry)
    name = pushed.at(real_registry.address)
    async with open_client(real_engine) as client:
        await pull(client, name)
        archive = await save(client, name)
        await client.remove(name)
        with pytest.raises(ValueError, match="another one"):
            await load(client, archive[:-1024], ValueError("its digest is another one"))
        assert await client.inspect(name) is None


async def test_what_is_not_there_cannot_be_saved_or_tagged_and_counts_as_removed(real_engine):
    name = f"docker.io/{new_path()}:1"
    async with open_client(real_engine) as client:
        with pytest.raises(EngineError):
            await save(client, name)
        with pytest.raises(EngineError):
            await client.tag(name, f"docker.io/{new_path()}:1")
        assert await client.remove(name) == Removed()


async def test_an_image_that_a_container_has_is_left_until_the_container_is_gone(real_engine, real_registry):
    name = push(real_registry).at(real_registry.address)
    async with open_client(real_engine) as client:
        await pull(client, name)
        made = real_engine.request("POST", "/containers/create", json={"Image": name}).json()
        assert isinstance(await client.remove(name), InUse)
        assert await client.inspect(name) is not None
        real_engine.request("DELETE", f"/containers/{made['Id']}")
        assert await client.remove(name) == Removed()
        assert await client.inspect(name) is None


async def test_only_a_name_is_removed_from_an_image_that_has_another(real_engine, real_registry):
    name = push(real_registry).at(real_registry.address)
    other = f"docker.io/{new_path()}:other"
    async with open_client(real_engine) as client:
        await pull(client, name)
        await client.tag(name, other)
        assert await client.remove(name) == Removed()
        assert await client.inspect(name) is None
        assert await client.inspect(other) is not None


async def test_many_images_with_a_layer_in_common_are_pulled_side_by_side(real_engine, real_registry):
    names = [push(real_registry).at(real_registry.address) for _ in range(6)]
    ends = []
    async with open_client(real_engine) as client:

        async def one(name: str) -> None:
            ends.append(await client.pull(name, HERE, ignore))

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(one, name)
        have = {name for image in await client.list_images() for name in image.names}
    assert ends == [Delivered()] * len(names)
    assert have >= set(names)
