"""Saves by the engine client: archives that come out whole, or with an error."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from engine_kit import Auths, Pieces, X, Y, engine_and_client

from fake_engine import Cut, FakeEngine, Silent, Slow
from fake_images import AMD64, ARM64, FakeImage
from scavenge.edge.images.engine import HttpEngine, open_engine
from scavenge.errors import EngineError
from scavenge.images import Delivered
from scavenge.testing.sweep import cancel_at_every_step

IMAGE = FakeImage((b"a layer" * 2000, b"another"))


async def saved(client: HttpEngine, image: str) -> bytes:
    """The archive of an image."""
    async with client.save(image) as pieces:
        return b"".join([piece async for piece in pieces])


@pytest.mark.parametrize("podman", [False, True])
async def test_a_saved_image_comes_back_as_it_was(podman):
    async with engine_and_client(podman=podman) as (engine, client):
        engine.images[Y] = IMAGE
        archive = await saved(client, Y)
        await client.remove(Y)
        assert await client.load(Pieces([archive]), AMD64) == Delivered()
        assert engine.images == {Y: IMAGE}


async def break_down(client: HttpEngine) -> None:
    """Fail in the middle of a save."""
    async with client.save(X) as pieces:
        await anext(pieces)
        raise ZeroDivisionError


async def test_a_save_may_be_left_early(autojump_clock):
    async with engine_and_client() as (engine, client):
        engine.images[X] = FakeImage((b"x" * 2_000_000,))
        async with client.save(X) as pieces:
            assert await anext(pieces)
        await trio.testing.wait_all_tasks_blocked()
        assert (engine.hung_up["save"], engine.connections) == (1, 0)
        async with client.save(X):
            pass
        with pytest.raises(ZeroDivisionError):
            await break_down(client)
        await trio.testing.wait_all_tasks_blocked()
        assert engine.connections == 0


async def test_an_image_that_is_not_there_cannot_be_saved():
    async with engine_and_client() as (_, client):
        with pytest.raises(EngineError, match=f"cannot save {X}") as caught:
            await saved(client, X)
    assert not caught.value.silent


@pytest.mark.parametrize("answer", [Cut(midway=False), Cut(midway=True)])
async def test_a_save_that_breaks_off_is_an_error(answer):
    async with engine_and_client() as (engine, client):
        engine.images[X] = IMAGE
        engine.script("save", answer)
        with pytest.raises(EngineError):
            await saved(client, X)


async def test_a_save_may_take_its_time_to_begin_but_not_to_go_on(autojump_clock):
    async with engine_and_client() as (engine, client):
        engine.images[X] = IMAGE
        engine.script("save", Slow(800), Slow(1000), Silent(midway=True))
        assert await saved(client, X)
        began_at = trio.current_time()
        for _ in range(2):
            with pytest.raises(EngineError, match="said nothing for"):
                await saved(client, X)
        assert trio.current_time() - began_at == pytest.approx(900 + 120)


def test_a_save_may_be_cancelled_at_every_step(tmp_path: Path):
    async def use() -> None:
        engine = FakeEngine(tmp_path, images={X: FakeImage((b"x" * 100_000,), ARM64)})
        engine.up()
        async with open_engine(engine.address, {}, Auths()) as client:
            try:
                async with client.save(X) as pieces:
                    for _ in range(3):
                        await anext(pieces)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.testing.wait_all_tasks_blocked()
                    assert engine.connections == 0

    assert cancel_at_every_step(use, lambda: None) > 10
