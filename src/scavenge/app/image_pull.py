"""``scavenge images pull``: every image that a file needs is delivered, shown on the way, and kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import attrs
import trio

from scavenge.app.console import screen_on_stderr
from scavenge.app.image_needs import Needs, evaluation_in, needs_of, references_in
from scavenge.app.images import ImageOpening, open_image_pool, with_engine
from scavenge.app.parts import Parts
from scavenge.config.schema import ImageSettings
from scavenge.edge.console import Screen
from scavenge.edge.image_bars import ImageBars, run_image_bars
from scavenge.edge.logs import set_up_logs
from scavenge.errors import ImageUnavailable, single_error
from scavenge.runtime.imagepool import ImagePool

OWNER = "images pull"


def pull_in_console(file: Path, engine: str | None) -> int:
    """Pull what *file* needs, and return the exit code. Raises :class:`scavenge.ConfigError` and the like."""
    screen = screen_on_stderr()
    set_up_logs(screen, None)
    parts = evaluation_in(file)
    listed = [] if parts is not None else references_in(file)
    return trio.run(_pull, parts, listed, engine, screen)


async def _pull(parts: Parts | None, listed: list[str], engine: str | None, screen: Screen) -> int:
    with single_error():
        needs = Needs(dict.fromkeys(listed)) if parts is None else await needs_of(parts, screen.say)
        images = list(needs.images)
        if not images:
            screen.say("nothing to pull: no image is needed")
            return 1 if needs.unknown else 0
        bars = ImageBars(screen, time.time, len(images))
        opening = opening_of(parts, engine, bars, screen)
        async with open_image_pool(opening) as pool, trio.open_nursery() as showing:
            showing.start_soon(run_image_bars, bars)
            failed = await pull_all(pool, images, bars.gave_up)
            showing.cancel_scope.cancel()
    screen.say(bars.line())
    return 1 if failed or needs.unknown else 0


def opening_of(parts: Parts | None, engine: str | None, emit: ImageBars, screen: Screen) -> ImageOpening:
    """As the evaluation has it, or with the defaults; what comes is kept."""
    settings = ImageSettings() if parts is None else parts.settings.images
    settings = attrs.evolve(with_engine(settings, engine), keep=True)
    stores = () if parts is None else parts.stores
    return ImageOpening(settings, stores, OWNER, emit, screen.redact, Random())  # noqa: S311 - for jitter


async def pull_all(pool: ImagePool, images: Sequence[str], gave_up: Callable[[str, str], None]) -> list[str]:
    """Wait until all of the images are there; returns those that are not to be had, each told to *gave_up* with why."""
    failed: list[str] = []

    async def pull(image: str) -> None:
        try:
            (await pool.hold([image])).release()
        except ImageUnavailable as exc:
            failed.append(image)
            gave_up(image, str(exc))
        pool.done([image])

    for image in images:
        pool.register([image])
    async with trio.open_nursery() as nursery:
        for image in images:
            nursery.start_soon(pull, image)
    return failed
