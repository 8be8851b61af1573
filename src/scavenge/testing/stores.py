"""What an image store has to hold to, whatever happens around it: the checks for authors of stores.

    from scavenge.testing import check_image_store

    async def test_my_store_is_one(server):
        await check_image_store(lambda: open_mine(MineConfig(url=server.url)), cut=server.cutting)

versionadded: 0.1
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import trio

from scavenge.core.naming import listed, shown
from scavenge.errors import single_error
from scavenge.runtime.ports import ImageStore
from scavenge.testing.source_leftovers import belongings
from scavenge.testing.source_probe import Probe
from scavenge.testing.store_trial import StoreTrial

SIZES = (0, 1, 100_000, 5 * 2**20)
ODD_NAMES = (
    "docker.io/library/x:1",
    "docker.io/swebench/sweb.eval.x86_64.astropy_1776_astropy-12907:latest",
    "ghcr.io/a-b/c__d/e--f.g/h:V1.0_X-y",
    "registry.example:5000/deep/er/and/deep/er/still:t",
    "localhost/local:" + "t" * 128,
)


async def check_image_store(
    open_store: Callable[[], AbstractAsyncContextManager[ImageStore]],
    *,
    cut: Callable[[], AbstractAsyncContextManager[object]] | None = None,
    secrets: Collection[str] = (),
    calls_within_s: float = 30.0,
    max_steps: int = 40,
) -> None:
    """Check an image store, which *open_store* opens afresh, and which is empty or has images of others only.

    While the block of *cut* runs, every download breaks before its end: the store then has to get the whole archive in
    several goes, or to raise. None of the *secrets* may stand in what it raises. A call may take *calls_within_s*.
    A ``put`` is cancelled at *max_steps* of its steps, each time of another image, so that a few dozen small archives
    are left in the store.

    Raises :class:`AssertionError`, which says what was done, what came, and what to do, and :class:`TypeError` for what
    it cannot work with. Cancelled, it closes what it opened.

    versionadded: 0.1
    """
    if hasattr(open_store, "__aenter__") or not callable(open_store):
        raise TypeError(
            f"open_store= is {shown(open_store)}; pass what makes a context manager: lambda: open_x(config)"
        )
    probe = Probe()
    trio.lowlevel.add_instrument(probe)
    try:
        with tempfile.TemporaryDirectory(prefix="scavenge-store-check-") as folder, single_error():
            await _check(open_store, StoreTrial(Path(folder), probe, secrets, calls_within_s), cut, max_steps)
    finally:
        trio.lowlevel.remove_instrument(probe)


async def _check(
    open_store: Callable[[], AbstractAsyncContextManager[ImageStore]],
    trial: StoreTrial,
    cut: Callable[[], AbstractAsyncContextManager[object]] | None,
    max_steps: int,
) -> None:
    async with open_store() as store:
        trial.store = store
        await check_calm(trial)
        await check_replacing(trial)
        await check_side_by_side(trial)
        await check_leaving_early(trial)
        await sweep_put(trial, max_steps)
        if cut is not None:
            await check_cut(trial, cut)
    await check_closing(open_store, trial)


async def check_calm(trial: StoreTrial) -> None:
    """What was stored comes back, of every size and under every name, and nothing else does."""
    for size_bytes in SIZES:
        stored = await trial.make(f"docker.io/check/size:{size_bytes}", size_bytes)
        await trial.absent(stored, "before it is stored")
        await trial.put(stored, f"an archive with {size_bytes} bytes in its layer")
        await trial.whole(stored, f"an archive with {size_bytes} bytes in its layer")
        await trial.absent(stored, "for another platform", platform="linux/s390x")
    for name in ODD_NAMES:
        stored = await trial.make(name, 10)
        await trial.put(stored, f"the image {name}")
        await trial.whole(stored, f"the image {name}")


async def check_replacing(trial: StoreTrial) -> None:
    """An image that is stored again is found as it was stored last."""
    for _ in range(3):
        stored = await trial.make("docker.io/check/replaced:1", 1000)
        for time in ("the first time", "a second time"):
            await trial.put(stored, f"{time}, where another one was")
            await trial.whole(stored, f"after it was stored {time}, where another one was")


async def check_side_by_side(trial: StoreTrial) -> None:
    """Images that are stored at the same time, and one that is stored twice at the same time, do not mix."""
    every = [await trial.make(f"docker.io/check/beside:{number}", 200_000) for number in range(4)]
    async with trio.open_nursery() as nursery:
        for stored in (*every, every[0]):
            nursery.start_soon(trial.put, stored, "five at the same time")
    async with trio.open_nursery() as nursery:
        for stored in (*every, every[0]):
            nursery.start_soon(trial.whole, stored, "five at the same time")


async def check_leaving_early(trial: StoreTrial) -> None:
    """Whoever has read enough may leave, and whoever is cancelled leaves nothing behind."""
    stored = await trial.make("docker.io/check/left:1", 2 * 2**20)
    await trial.put(stored, "one that is left early")
    await trial.begin_reading(stored, pieces=1)
    await trial.begin_reading(stored, pieces=0)
    for at in (1, 2, 3, 5, 8):
        await trial.cancelled(trial.read_all(stored, "a read that is cancelled"), at, "reading an archive")
        await trial.whole(stored, f"after a read that was cancelled at step {at}")


async def sweep_put(trial: StoreTrial, max_steps: int) -> None:
    """A put that is cancelled, whenever that is, is never found half."""
    stored = await trial.make("docker.io/check/swept:0", 300_000)
    moments = await trial.moments_of_put(stored)
    for at in _spread(moments, max_steps):
        stored = await trial.make(f"docker.io/check/swept:{at}", 300_000)
        await trial.cancelled(trial.put(stored, "a put that is cancelled"), at, "storing an archive")
        doing = f"after a put that was cancelled at step {at} of {moments}"
        if await trial.find(stored, doing) is not None:
            await trial.whole(stored, doing)
        await trial.put(stored, doing)
        await trial.whole(stored, f"{doing} and was begun again")


async def check_cut(trial: StoreTrial, cut: Callable[[], AbstractAsyncContextManager[object]]) -> None:
    """A download that breaks is whole in the end, or an error."""
    stored = await trial.make("docker.io/check/cut:1", 2 * 2**20)
    await trial.put(stored, "one that is cut")
    async with cut():
        await trial.whole_or_error(stored, "while downloads are cut")
    await trial.whole(stored, "after downloads were cut")


async def check_closing(open_store: Callable[[], AbstractAsyncContextManager[ImageStore]], trial: StoreTrial) -> None:
    """A store that was opened, used and closed leaves nothing behind. It was opened before, so libraries are warm."""
    before = belongings(trial.probe.tasks)
    async with open_store() as store:
        trial.store = store
        await trial.absent(await trial.make("docker.io/check/closed:1", 1), "in a store that was opened anew")
    with trio.move_on_after(trial.calls_within_s):
        await trio.lowlevel.checkpoint()
        while belongings(trial.probe.tasks).beyond(before):  # noqa: ASYNC110 - nothing tells that these have gone
            await trio.sleep(0.02)
    if left := belongings(trial.probe.tasks).beyond(before):
        raise AssertionError(f"left behind after closing: {listed(left)}; close what you opened, also when cancelled")


def _spread(moments: int, most: int) -> list[int]:
    """At most so many of the moments, evenly, with the first and the last one."""
    if moments <= most:
        return list(range(1, moments + 1))
    return sorted({1 + round(number * (moments - 1) / (most - 1)) for number in range(most)})
