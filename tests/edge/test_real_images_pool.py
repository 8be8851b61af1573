"""The pool of images on real engines and registries: from a name that is needed to an image that is there."""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager
from random import Random

import httpx
import pytest
import trio
from real_client import new_path, push
from real_engine import only_on
from real_images import Pusher, make_archive, make_image, needs_shell, verified_images
from real_registry import Faults, needs_registry, open_proxy

from scavenge.app.images import ImageOpening, open_image_pool
from scavenge.config.schema import ImageSettings
from scavenge.core.redaction import Redactor
from scavenge.errors import ImageUnavailable
from scavenge.events import ImageFailed, ImageReady, ImageReleased, ImageTrouble

pytestmark = [needs_registry, needs_shell]

LARGE_BYTES = 400_000
BOUND_S = 30.0
"""How long an image may take to come."""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing of the user's is read or written."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "DOCKER_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "home" / name))


@pytest.fixture
def impatient(monkeypatch):
    """What breaks is tried again at once, and so is an engine that says nothing."""
    monkeypatch.setattr("scavenge.core.images.plan_trial.BROKEN_FIRST_S", 0.05)
    for module in ("plan_trial", "plan_engine"):
        monkeypatch.setattr(f"scavenge.core.images.{module}.ENGINE_FIRST_S", 0.1)


@asynccontextmanager
async def pool_on(engine, events, *mirrors, **settings):
    """A pool at work on an engine."""
    images = ImageSettings(engine=engine.address, mirrors=mirrors, wait_timeout=BOUND_S, **settings)
    opening = ImageOpening(images, (), "tests", events.append, Redactor(), Random(0))
    async with open_image_pool(opening) as pool:
        yield pool


def has(engine, image: str) -> bool:
    """Whether the engine has it."""
    return engine.request("GET", f"/images/{image}/json").status_code == httpx.codes.OK


def load(engine, *names: str) -> None:
    """Have an image there, with these names."""
    engine.request("POST", "/images/load", content=make_archive(make_image(names[0]), names))


def of_kind(events, kind):
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def on_hub(registry, **options) -> str:
    """The canonical name of an image that a registry has as a mirror of Docker Hub."""
    return f"docker.io/{push(registry, **options).name}"


async def use(pool, image: str) -> None:
    """Have an image delivered, for one rollout that is over at once."""
    pool.register([image])
    (await pool.hold([image])).release()
    pool.done([image])


async def test_a_mirror_that_works_stands_in_for_those_that_do_not(real_engine, real_registry, impatient):
    image = on_hub(real_registry)
    events = []
    with open_proxy(real_registry, Faults("/manifests/", answer=503)) as failing:
        mirrors = ["dead.invalid:5000", failing, real_registry.address]
        async with pool_on(real_engine, events, *mirrors) as pool:
            pool.register([image])
            hold = await pool.hold([image])
            assert has(real_engine, image)
            path = image.removeprefix("docker.io/")
            assert [name for name in real_engine.names() if name.endswith(path)] in ([path], [image])
            hold.release()
    (ready,) = of_kind(events, ImageReady)
    assert (ready.image, ready.source) == (image, real_registry.address)
    assert list(dict.fromkeys(trouble.source for trouble in of_kind(events, ImageTrouble))) == mirrors[:2]
    assert not has(real_engine, image)


async def test_what_this_run_brought_is_removed_and_what_was_there_is_not(real_engine, real_registry):
    brought, there = on_hub(real_registry), f"docker.io/{new_path()}:latest"
    load(real_engine, there)
    events = []
    async with pool_on(real_engine, events, real_registry.address) as pool:
        await use(pool, brought)
        await use(pool, there)
    assert [event.image for event in of_kind(events, ImageReady)] == [brought]
    assert (has(real_engine, brought), has(real_engine, there)) == (False, True)
    assert ImageReleased(brought) in events


async def test_what_is_kept_is_there_afterwards(real_engine, real_registry):
    image = on_hub(real_registry)
    async with pool_on(real_engine, [], real_registry.address, keep=True) as pool:
        await use(pool, image)
    assert has(real_engine, image)


async def test_an_image_that_nobody_has_is_told_with_what_each_source_said(real_engine, real_registry):
    repository = push(real_registry).name.rpartition(":")[0]
    image = f"{real_registry.address}/{repository}:absent"
    events = []
    async with pool_on(real_engine, events) as pool:
        pool.register([image])
        with pytest.raises(ImageUnavailable, match="absent"):
            await pool.hold([image])
    assert [event.image for event in of_kind(events, ImageFailed)] == [image]


@only_on("docker")  # Podman waits by itself
async def test_a_mirror_that_has_enough_of_us_is_left_alone_as_long_as_it_says(real_engine, real_registry):
    image = on_hub(real_registry)
    events = []
    faults = Faults("/manifests/", answer=429, retry_after="1", times=3)
    with open_proxy(real_registry, faults) as address:
        async with pool_on(real_engine, events, address) as pool:
            await use(pool, image)
    throttled = [event for event in of_kind(events, ImageTrouble) if event.source == address]
    assert [event.outcome for event in throttled] == ["throttled"]
    assert 0.5 <= throttled[0].retry_s <= 1.5
    assert [event.image for event in of_kind(events, ImageReady)] == [image]


async def test_a_full_disk_is_made_room_on_with_what_nobody_needs_any_more(real_engine, real_registry):
    first, second = (on_hub(real_registry, own_bytes=LARGE_BYTES) for _ in range(2))
    load(real_engine, f"docker.io/{new_path()}:latest")  # which keeps the layer that all have in common
    events = []
    with ExitStack() as stack:
        async with pool_on(real_engine, events, real_registry.address) as pool:
            pool.register([first])
            hold = await pool.hold([first])
            stack.enter_context(real_engine.nearly_full(LARGE_BYTES * 3 // 2))  # packed and unpacked it takes 2
            hold.release()
            pool.done([first])
            await use(pool, second)
    assert "disk full" in {event.outcome for event in of_kind(events, ImageTrouble)}
    ready = [event.image for event in of_kind(events, ImageReady)]
    released = [event.image for event in of_kind(events, ImageReleased)]
    assert (ready, released) == ([first, second], [first, second])


@only_on("podman")  # the pool knows no difference
async def test_an_engine_that_dies_during_a_pull_delivers_when_it_is_back(real_engine, real_registry, impatient):
    image = on_hub(real_registry, own_bytes=LARGE_BYTES)
    events = []
    faults = Faults(hold_after=LARGE_BYTES // 2)
    with open_proxy(real_registry, faults) as address:
        async with pool_on(real_engine, events, address) as pool, trio.open_nursery() as nursery:
            nursery.start_soon(use, pool, image)
            await trio.to_thread.run_sync(faults.wait_held)
            real_engine.kill()
            faults.let_go()
            await trio.to_thread.run_sync(real_engine.start)
    assert [event.image for event in of_kind(events, ImageReady)] == [image]


@only_on("docker")  # Podman takes each name in as an image
async def test_of_the_images_of_a_benchmark_only_those_that_are_absent_are_fetched(real_engine, real_registry):
    names = [f"docker.io/{name}" for name in verified_images()]
    there, absent = names[:-3], names[-3:]
    load(real_engine, *there)
    listed_before = real_engine.calls("GET", "images/json")
    events = []
    Pusher(real_registry.address).push([name.removeprefix("docker.io/") for name in absent])
    async with pool_on(real_engine, events, real_registry.address) as pool:
        for image in (*there, *absent):
            pool.register([image])
        for image in (*there, *absent):
            (await pool.hold([image])).release()
            pool.done([image])
    assert {event.image for event in of_kind(events, ImageReady)} == set(absent)
    assert real_engine.calls("GET", "images/json") == listed_before + 1
