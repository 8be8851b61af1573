"""Images out of local tars: which tar is taken, and what becomes of damaged, vanished and foreign ones."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from engine_kit import engine_and_client, ignore

from archive_kit import Made, new_docker, old_docker, packed
from fake_engine import DISK_FULL, Fails, FakeEngine, Raw
from fake_images import ARM64
from scavenge.edge.images.shipments import ShipmentSource
from scavenge.edge.images.tar_index import TarIndex
from scavenge.images import Broken, Delivered, DeliveryEnd, DiskFull, EngineSilent, Missing, Transferred, Unfit

X, Y = "docker.io/library/x:1", "docker.io/library/y:1"
ONE = Made((X,), (b"base" * 3000, b"top" * 5000))
TWO = Made((Y,), (b"base" * 3000, b"other" * 10))
ARM = Made((X,), platform={"os": "linux", "architecture": "arm64", "variant": "v8"})


@attrs.frozen
class World:
    """An engine, the tars beside it, and the source that brings them together."""

    tars: Path
    engine: FakeEngine
    source: ShipmentSource

    def put(self, name: str, *images: Made, data: bytes | None = None, age_s: float = 100) -> Path:
        path = self.tars / name
        path.write_bytes(old_docker(images) if data is None else data)
        at = time.time() - age_s
        os.utime(path, (at, at))
        return path

    async def deliver(self, image: str) -> DeliveryEnd:
        return await self.source.deliver(image, ignore)


@asynccontextmanager
async def open_world(tmp_path: Path, **settings: object) -> AsyncIterator[World]:
    (tars := tmp_path / "tars").mkdir()
    async with engine_and_client(**settings) as (engine, client):
        index = TarIndex([str(tars)], tmp_path / "cache", lambda text: None)
        yield World(tars, engine, ShipmentSource(client, index))


@pytest.mark.parametrize("podman", [False, True])
@pytest.mark.parametrize(("name", "pack"), [("a.tar", ""), ("a.tar.gz", "gzip"), ("a.tar.zst", "zstd")])
async def test_one_image_of_a_batch_gets_into_the_engine(tmp_path: Path, podman: bool, name: str, pack: str):
    async with open_world(tmp_path, podman=podman) as world:
        world.put(name, data=packed(old_docker([TWO, ONE]), pack))
        assert await world.deliver(X) == Delivered(sum(map(len, ONE.layers)))
        assert list(world.engine.images) == [X]
        assert world.engine.images[X].diff_ids == ONE.diff_ids
        (body,) = [call.body for call in world.engine.seen if call.kind == "load"]
        assert TWO.layers[1] not in body


async def test_compressed_layers_are_loaded_as_they_are(tmp_path: Path):
    async with open_world(tmp_path) as world:
        world.put("a.tar", data=new_docker([ONE], "gzip"))
        assert isinstance(await world.deliver(X), Delivered)
        assert world.engine.images[X].diff_ids == ONE.diff_ids


async def test_an_image_that_is_in_no_tar_is_missing(tmp_path: Path):
    async with open_world(tmp_path) as world:
        world.put("a.tar", ONE)
        world.put("b.tar", ONE)
        assert await world.deliver(Y) == Missing("not in any of 2 archives")
        assert world.engine.calls["load"] == 0


async def test_an_image_for_another_platform_is_missing(tmp_path: Path):
    async with open_world(tmp_path) as world:
        path = world.put("a.tar", ARM)
        assert await world.deliver(X) == Missing(f"in {path} for linux/arm64/v8, and the engine runs linux/amd64")


async def test_the_image_for_the_engines_platform_is_taken(tmp_path: Path):
    async with open_world(tmp_path, platform=ARM64) as world:
        world.put("a.tar", ONE)
        world.put("b.tar", ARM)
        assert isinstance(await world.deliver(X), Delivered)
        assert world.engine.images[X].platform.architecture == "arm64"


async def test_how_far_a_delivery_is_is_told(tmp_path: Path):
    told: list[Transferred] = []
    async with open_world(tmp_path) as world:
        world.put("a.tar", ONE)
        await world.source.deliver(X, told.append)
        (body,) = [call.body for call in world.engine.seen if call.kind == "load"]
    assert told[0].done_bytes == 0
    assert told == sorted(told, key=lambda transferred: transferred.done_bytes)
    assert told[-1] == Transferred(len(body), len(body))


def spoil(path: Path, data: bytes) -> None:
    """Make some bytes others, and leave the file as old as it was."""
    status = path.stat()
    whole = path.read_bytes()
    path.write_bytes(whole.replace(data, bytes(len(data)), 1))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


async def test_a_damaged_image_is_taken_from_the_next_tar_and_not_tried_again(tmp_path: Path):
    async with open_world(tmp_path) as world:
        world.put("old.tar", ONE, age_s=200)
        spoil(world.put("new.tar", ONE), ONE.layers[1])
        assert isinstance(await world.deliver(X), Delivered)
        assert (world.engine.calls["load"], world.engine.torn_loads) == (2, 1)
        del world.engine.images[X]
        assert isinstance(await world.deliver(X), Delivered)
        assert world.engine.calls["load"] == 3


async def test_an_image_that_is_damaged_in_every_tar_is_unfit(tmp_path: Path):
    async with open_world(tmp_path) as world:
        path = world.put("a.tar", ONE, TWO)
        spoil(path, ONE.layers[1])
        first = await world.deliver(X)
        assert isinstance(first, Unfit)
        assert first.why.startswith(f"{path}: ")
        assert "does not have the digest" in first.why
        assert await world.deliver(X) == first
        assert world.engine.calls["load"] == 1
        assert isinstance(await world.deliver(Y), Delivered)
        assert X not in world.engine.images


async def test_a_tar_that_was_mended_is_taken(tmp_path: Path):
    async with open_world(tmp_path) as world:
        path = world.put("a.tar", ONE)
        spoil(path, ONE.layers[1])
        assert isinstance(await world.deliver(X), Unfit)
        world.put("a.tar", ONE, age_s=50)
        (place,) = await world.source._index.find(X)
        world.source._index.forget(place)
        assert isinstance(await world.deliver(X), Delivered)


async def test_what_has_other_layers_in_the_engine_than_in_the_tar_is_unfit(tmp_path: Path):
    async with open_world(tmp_path) as world:
        world.put("a.tar", ONE)
        rootfs = {"Layers": TWO.diff_ids}
        facts = {"Id": TWO.config_digest, "Os": "linux", "Architecture": "amd64", "RootFS": rootfs, "Size": 1}
        world.engine.always("inspect", Raw(json.dumps(facts).encode()))
        end = await world.deliver(X)
        assert isinstance(end, Unfit)
        assert "other layers than its archive says" in end.why
        assert X not in world.engine.images


async def test_a_file_that_vanished_is_passed_over(tmp_path: Path):
    async with open_world(tmp_path) as world:
        old, new = world.put("old.tar", ONE, age_s=200), world.put("new.tar", ONE)
        await world.source._index.find(X)
        new.unlink()
        assert isinstance(await world.deliver(X), Delivered)
        old.unlink()
        end = await world.deliver(X)
        assert isinstance(end, Broken)
        assert "old.tar was removed or changed" in end.why
        assert await world.deliver(X) == Missing("not in any of 0 archives")


async def test_a_file_that_changed_is_looked_into_again(tmp_path: Path):
    async with open_world(tmp_path) as world:
        world.put("a.tar", ONE)
        await world.source._index.find(X)
        world.put("a.tar", TWO, ONE, age_s=50)
        assert isinstance(await world.deliver(X), Broken)
        assert isinstance(await world.deliver(X), Delivered)


async def test_a_file_that_cannot_be_read_now_is_worth_another_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with open_world(tmp_path) as world:
        world.put("a.tar", ONE)
        await world.source._index.find(X)

        def broken(*_: object) -> bytes:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", broken)
            end = await world.deliver(X)
        assert isinstance(end, Broken)
        assert "a.tar cannot be read: Input/output error" in end.why
        assert isinstance(await world.deliver(X), Delivered)


async def test_an_image_may_come_while_a_tar_is_being_written(tmp_path: Path):
    async with open_world(tmp_path) as world:
        path = world.put("a.tar", data=old_docker([ONE])[:2000], age_s=0)
        assert await world.deliver(X) == Broken(f"not in any of the tars; still being written: {path}")


@pytest.mark.parametrize(
    ("kind", "answer", "end"),
    [("load", Fails(DISK_FULL), DiskFull), ("load", Fails("no such thing as that"), Broken)],
)
async def test_what_the_engine_says_is_the_end(tmp_path: Path, kind: str, answer: Fails, end: type):
    async with open_world(tmp_path) as world:
        world.put("a.tar", ONE)
        world.engine.script(kind, answer)
        assert isinstance(await world.deliver(X), end)


async def test_an_engine_that_is_not_there_is_silent(tmp_path: Path):
    async with open_world(tmp_path) as world:
        world.put("a.tar", ONE)
        world.engine.down()
        assert isinstance(await world.deliver(X), EngineSilent)


async def test_a_delivery_that_is_cancelled_leaves_no_image(tmp_path: Path):
    async with open_world(tmp_path) as world:
        world.put("a.tar", ONE)
        before = len(os.listdir("/proc/self/fd"))
        with trio.CancelScope() as scope:
            await world.source.deliver(X, lambda transferred: transferred.done_bytes > 5000 and scope.cancel())
        assert scope.cancelled_caught
        while world.engine.torn_loads == 0:  # noqa: ASYNC110 - the engine has no event for it
            await trio.sleep(0.001)
        assert world.engine.images == {}
        assert len(os.listdir("/proc/self/fd")) <= before + 2
        assert isinstance(await world.deliver(X), Delivered)


async def test_all_tars_are_one_lane(tmp_path: Path):
    async with open_world(tmp_path) as world:
        assert (world.source.label, world.source.lane(X)) == ("shipments", "shipments")
