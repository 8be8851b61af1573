"""Whether what was delivered is what it should be."""

from __future__ import annotations

import pytest
from engine_kit import X, engine_and_client

from fake_engine import Cut, Refuses
from fake_images import AMD64, ARM64, FakeImage
from scavenge.edge.images.verify import delivered
from scavenge.images import (
    Broken,
    Delivered,
    EngineSilent,
    Platform,
    Unfit,
)


async def test_an_image_that_was_delivered_is_what_it_should_be():
    async with engine_and_client() as (engine, client):
        image = engine.images[X] = FakeImage((b"a", b"b"), said_size=12)
        assert await delivered(client, X, AMD64) == Delivered(12)
        assert await delivered(client, X, AMD64, image.diff_ids) == Delivered(12)


async def test_an_image_that_was_said_to_be_delivered_and_is_not_there_is_broken():
    async with engine_and_client() as (_, client):
        end = await delivered(client, X, AMD64)
    assert isinstance(end, Broken)
    assert X in end.why


@pytest.mark.parametrize(
    ("runs", "image", "fits"),
    [
        (AMD64, AMD64, True),
        (AMD64, ARM64, False),
        (AMD64, Platform("windows", "amd64"), False),
        (ARM64, Platform("linux", "arm64", "v8"), True),
        (Platform("linux", "arm64", "v8"), ARM64, True),
        (Platform("linux", "arm", "v7"), Platform("linux", "arm", "v6"), True),
        (Platform("linux", "arm", "v6"), Platform("linux", "arm", "v7"), False),
        (Platform("linux", "arm64", "v8"), Platform("linux", "arm64", "v8.2"), True),
        (Platform("linux", "arm64", "odd"), Platform("linux", "arm64", "v8"), False),
    ],
)
async def test_an_image_for_another_platform_is_removed_again(runs, image, fits):
    async with engine_and_client() as (engine, client):
        engine.images[X] = FakeImage(platform=image)
        end = await delivered(client, X, runs)
        assert (X in engine.images) == fits
    assert isinstance(end, Delivered if fits else Unfit)
    assert fits or (str(image) in end.why and str(runs) in end.why)


async def test_an_image_with_other_layers_is_removed_again_if_that_can_be():
    async with engine_and_client() as (engine, client):
        engine.images[X] = FakeImage((b"a", b"b"))
        engine.in_use.add(X)
        kept = await delivered(client, X, AMD64, FakeImage((b"b", b"a")).diff_ids)
        engine.in_use.clear()
        removed = await delivered(client, X, AMD64, [])
        assert engine.images == {}
    assert isinstance(kept, Unfit)
    assert "could not be removed: conflict" in kept.why
    assert isinstance(removed, Unfit)


async def test_an_engine_that_falls_silent_meanwhile_is_not_the_images_fault():
    async with engine_and_client() as (engine, client):
        engine.images[X] = FakeImage(platform=ARM64)
        engine.script("inspect", Refuses(500, "layer does not exist"), None, Cut())
        engine.script("remove", Cut(midway=False))
        ends = [await delivered(client, X, AMD64) for _ in range(3)]
    assert [type(end) for end in ends] == [Broken, EngineSilent, EngineSilent]
