"""Pulls by the engine client: each way in which one ends, against what engines were seen to say."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from engine_kit import DIGEST, Auths, X, Y, engine_and_client, ignore

from fake_engine import (
    DISK_FULL,
    LOCKED,
    NO_MANIFEST,
    THROTTLED,
    Answer,
    Cut,
    Fails,
    FakeEngine,
    Raw,
    Refuses,
    Silent,
)
from fake_images import AMD64, ARM64, FakeImage
from scavenge.edge.images.engine import open_engine
from scavenge.edge.images.verify import delivered
from scavenge.images import (
    Broken,
    Delivered,
    DeliveryEnd,
    Denied,
    DiskFull,
    EngineSilent,
    Missing,
    Platform,
    Throttled,
    Transferred,
    Unfit,
)
from scavenge.testing.sweep import cancel_at_every_step

DENIED = "pull access denied for x, repository does not exist or may require 'docker login': denied: access forbidden"


async def pulled_as(answer: Answer, *, podman: bool = False) -> DeliveryEnd:
    """How a pull ends that the engine answers like that."""
    async with engine_and_client(podman=podman) as (engine, client):
        engine.remote[X] = FakeImage()
        engine.script("pull", answer)
        return await client.pull(X, AMD64, ignore)


@pytest.mark.parametrize("podman", [False, True])
async def test_a_pull_tells_how_far_it_is_and_brings_the_image(podman):
    told: list[Transferred] = []
    async with engine_and_client(podman=podman) as (engine, client):
        engine.remote[Y] = FakeImage((b"a" * 100, b"b" * 50))
        assert await client.pull(Y, AMD64, told.append) == Delivered()
        assert await delivered(client, Y, AMD64, engine.remote[Y].diff_ids) == Delivered(150)
    assert told[-1] == Transferred(150, 150)
    assert told == sorted(told, key=lambda each: each.done_bytes)


@pytest.mark.parametrize(
    ("image", "asked"), [(X, ("docker.io/library/x", "1")), (DIGEST, DIGEST.split("@")), (Y, Y.rsplit(":", 1))]
)
async def test_one_image_is_asked_for_never_all_tags(image, asked):
    async with engine_and_client() as (engine, client):
        engine.remote[image] = FakeImage()
        assert await client.pull(image, Platform("linux", "arm", "v7"), ignore) == Delivered()
        assert await delivered(client, image, AMD64) == Delivered(7)
    query = next(call.query for call in engine.seen if call.kind == "pull")
    assert query == {"fromImage": asked[0], "tag": asked[1], "platform": "linux/arm/v7"}


async def test_credentials_go_to_the_registry_that_they_are_for():
    async with engine_and_client(Auths({Y: "c2VjcmV0"})) as (engine, client):
        for image in (X, Y):
            engine.remote[image] = FakeImage()
            assert await client.pull(image, AMD64, ignore) == Delivered()
    shown = [call.headers.get("x-registry-auth") for call in engine.seen if call.kind == "pull"]
    assert shown == [None, "c2VjcmV0"]
    assert not any("x-registry-auth" in call.headers for call in engine.seen if call.kind != "pull")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (NO_MANIFEST, Missing),
        (THROTTLED, Throttled),
        (DISK_FULL, DiskFull),
        (LOCKED, Broken),
        (DENIED, Denied),
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", Unfit),
        ("received unexpected HTTP status: 503 Service Unavailable", Broken),
        ("filesystem layer verification failed for digest sha256:0a", Unfit),
        ("something that nobody has ever seen", Broken),
    ],
)
@pytest.mark.parametrize("podman", [False, True])
async def test_an_error_means_the_same_before_and_after_the_first_byte(message, kind, podman):
    ends = [
        await pulled_as(answer, podman=podman)
        for answer in (Refuses(500, message), Fails(message), Fails(message, bare=True))
    ]
    assert [type(end) for end in ends] == [kind] * 3
    assert all(message[:40] in end.why for end in ends)


async def test_a_refusal_counts_by_its_status():
    assert isinstance(await pulled_as(Refuses(404, NO_MANIFEST)), Missing)
    assert isinstance(await pulled_as(Refuses(429, "slow down")), Throttled)
    assert isinstance(await pulled_as(Refuses(403, "no")), Denied)
    assert isinstance(await pulled_as(Raw(b"<html>bad gateway</html>", status=502)), Broken)


async def test_what_podman_does_not_find_is_missing_in_spite_of_status_200():
    async with engine_and_client(podman=True) as (_, client):
        end = await client.pull(X, AMD64, ignore)
    assert isinstance(end, Missing)


async def test_an_engine_that_said_that_it_had_pulled_is_not_believed():
    said = b'{"status":"Digest: sha256:0a"}\r\n{"status":"Status: Downloaded newer image for x:1"}\r\n'
    async with engine_and_client() as (engine, client):
        engine.script("pull", Raw(said))
        assert await client.pull(X, AMD64, ignore) == Delivered()
        assert isinstance(await delivered(client, X, AMD64), Broken)


async def test_an_image_for_another_processor_is_found_out():
    async with engine_and_client() as (engine, client):
        engine.remote[X] = FakeImage(platform=ARM64)
        assert await client.pull(X, AMD64, ignore) == Delivered()
        assert isinstance(await delivered(client, X, AMD64), Unfit)
        assert engine.images == {}


@pytest.mark.parametrize(
    "answer",
    [
        Cut(midway=False),
        Cut(midway=True),
        Cut(midway=True, clean=True),
        Raw(b""),
        Raw(b'{"status":"Downloading"'),
        Raw(b"\x89PNG\r\n"),
        Raw(b"[]"),
        Raw(b"{" * 10_000),
    ],
    ids=range(8),
)
async def test_an_answer_without_its_end_is_broken_and_the_next_pull_is_another(answer):
    async with engine_and_client() as (engine, client):
        engine.remote[X] = FakeImage()
        engine.script("pull", answer)
        end = await client.pull(X, AMD64, ignore)
        assert await client.pull(X, AMD64, ignore) == Delivered()
    assert isinstance(end, Broken)


async def test_an_error_that_was_said_counts_more_than_the_cut_after_it():
    assert isinstance(await pulled_as(Fails(DISK_FULL, cut=True)), DiskFull)


@pytest.mark.parametrize("answer", [Silent(), Silent(midway=True)])
async def test_a_pull_that_says_nothing_for_two_minutes_is_given_up(autojump_clock, answer):
    async with engine_and_client() as (engine, client):
        engine.script("pull", answer)
        with trio.fail_after(1000):
            end = await client.pull(X, AMD64, ignore)
        assert trio.current_time() == pytest.approx(120)
        await trio.testing.wait_all_tasks_blocked()
        assert engine.hung_up["pull"] == 1
    assert isinstance(end, Broken)
    assert "said nothing for 120 s" in end.why
    assert engine.address in end.why


async def test_a_pull_may_take_hours_while_something_comes(autojump_clock):
    async with engine_and_client(pull_s=20_000.0) as (engine, client):
        engine.remote[X] = FakeImage(tuple(bytes([number]) for number in range(100)))
        assert await client.pull(X, AMD64, ignore) == Delivered()
    assert trio.current_time() == pytest.approx(20_000)


async def test_an_engine_that_unpacks_what_it_has_may_be_silent_for_longer(autojump_clock):
    async with engine_and_client(pull_s=1_000.0) as (engine, client):
        engine.remote[X] = FakeImage((b"a", b"b"))  # silent for 250 s at a time, before the first byte, too
        too_slow = await client.pull(X, AMD64, ignore)
        engine.pull_s = 0
        engine.remote[X] = FakeImage((b"a" * 10,))
        engine.unpack_s = 600
        assert await client.pull(X, AMD64, ignore) == Delivered()
    assert isinstance(too_slow, Broken)


async def test_no_engine_is_silence_and_no_fault_of_the_registry():
    async with engine_and_client() as (engine, client):
        engine.down()
        end = await client.pull(X, AMD64, ignore)
    assert isinstance(end, EngineSilent)
    assert engine.address in end.why


async def test_an_engine_that_cannot_be_talked_to_breaks_the_pull():
    async with engine_and_client(api_version="1.40") as (_, client):
        assert isinstance(await client.pull(X, AMD64, ignore), Broken)


async def test_an_engine_that_dies_in_the_middle_breaks_the_pull_and_is_found_again():
    async with engine_and_client(pull_s=60.0) as (engine, client):
        engine.remote[X] = FakeImage()
        ends: list[DeliveryEnd] = []

        async def pull() -> None:
            ends.append(await client.pull(X, AMD64, ignore))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert engine.pulling == 1
            engine.down()
        engine.pull_s = 0
        engine.up()
        await pull()
    assert isinstance(ends[0], Broken)
    assert ends[1] == Delivered()


async def test_a_pull_that_is_cancelled_hangs_up(autojump_clock):
    async with engine_and_client(pull_s=60.0) as (engine, client):
        engine.remote[X] = FakeImage()
        with trio.move_on_after(20):
            await client.pull(X, AMD64, ignore)
        await trio.testing.wait_all_tasks_blocked()
        assert (engine.pulling, engine.hung_up["pull"], engine.connections) == (0, 1, 0)
        assert engine.images == {}


async def test_pulls_do_not_wait_for_one_another_or_keep_short_calls_waiting(autojump_clock):
    async with engine_and_client(pull_s=60.0) as (engine, client):
        async with trio.open_nursery() as nursery:
            for number in range(70):
                image = f"docker.io/library/x:{number}"
                engine.remote[image] = FakeImage()
                nursery.start_soon(client.pull, image, AMD64, ignore)
            await trio.sleep(10)
            assert await client.list_images() == []
        assert (trio.current_time(), engine.most_pulling) == (pytest.approx(60), 70)


def test_a_pull_may_be_cancelled_at_every_step(tmp_path: Path):
    async def use() -> None:
        engine = FakeEngine(tmp_path, remote={X: FakeImage((b"a", b"b"))}, pull_s=1.0)
        engine.up()
        async with open_engine(engine.address, {}, Auths({X: "eHg="})) as client:
            try:
                assert await client.pull(X, AMD64, ignore) == Delivered()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.testing.wait_all_tasks_blocked()
                    assert (engine.connections, engine.pulling) == (0, 0)
                    assert await client.list_images() is not None

    assert cancel_at_every_step(use, lambda: None) > 10
