"""How soon many images are there: by the pool, and by pulls one after another, on a real engine in the same run.

``python benchmarks/image_pool.py [IMAGES] [--own-kb 256] [--workers 2,4,8] [--engine docker]`` starts a registry, and
for each way an engine of its own that has nothing yet; requirements/README.md says what that takes. It prints the
seconds until all images are there, and the ratio to pulls one after another: by the engine's API, and by the command
line of Docker where it is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import trio

from scavenge.app.images import ImageOpening, open_image_pool
from scavenge.config.schema import ImageSettings
from scavenge.core.images.reference import parts
from scavenge.core.redaction import Redactor
from scavenge.events import Event
from scavenge.runtime.imagepool import ImagePool

TESTS = Path(__file__).parent.parent / "tests"
sys.path += [str(TESTS), str(TESTS / "edge")]

from real_engine import RealEngine, available, open_engine  # noqa: E402 - found by the path above
from real_images import Pusher  # noqa: E402
from real_registry import open_registry  # noqa: E402


def by_api(engine: RealEngine, images: Sequence[str]) -> None:
    """One pull after another, by the engine's API."""
    for image in images:
        name = parts(image)
        engine.request("POST", "/images/create", params={"fromImage": name.repository, "tag": name.tag})


def by_command(engine: RealEngine, images: Sequence[str]) -> None:
    """One ``docker pull`` after another."""
    environ = {**os.environ, "DOCKER_HOST": engine.address}
    for image in images:
        subprocess.run(["docker", "pull", "--quiet", image], check=True, capture_output=True, env=environ)


async def use(pool: ImagePool, image: str) -> None:
    """Wait for an image, as a rollout does."""
    (await pool.hold([image])).release()
    pool.done([image])


def by_pool(workers: int, engine: RealEngine, images: Sequence[str]) -> None:
    """The pool, as a run has it; all that it brings is kept."""

    def ignore(_: Event) -> None:
        pass

    async def pull() -> None:
        settings = ImageSettings(engine=engine.address, workers=workers, keep=True)
        opening = ImageOpening(settings, (), "benchmark", ignore, Redactor(), Random(0))
        async with open_image_pool(opening) as pool:
            for image in images:
                pool.register([image])
            async with trio.open_nursery() as nursery:
                for image in images:
                    nursery.start_soon(use, pool, image)

    trio.run(pull)


@contextmanager
def elsewhere(folder: Path) -> Iterator[None]:
    """Leave the user's own files alone."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "DOCKER_CONFIG"):
        os.environ[name] = str(folder / name)
    yield


def seconds(way: Callable[[RealEngine, Sequence[str]], None], product: str, images: Sequence[str]) -> float:
    """How long a way takes on an engine that has nothing."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, open_engine(product, Path(name)) as engine:
        started_at = time.perf_counter()
        way(engine, images)
        took_s = time.perf_counter() - started_at
        missing = len(images) - len(engine.names())
        assert not missing, f"{missing} images are missing"
    return took_s


def main(count: int, own_kb: int, workers: Sequence[int], product: str) -> None:
    ways: dict[str, Callable[[RealEngine, Sequence[str]], None]] = {"one after another, by the API": by_api}
    if shutil.which("docker"):
        ways["one after another, by the command"] = by_command
    ways |= {f"the pool, {number} workers": partial(by_pool, number) for number in workers}
    with (
        tempfile.TemporaryDirectory() as name,
        elsewhere(Path(name)),
        open_registry(Path(name) / "registry") as registry,
    ):
        names = [f"benchmark/i{number}:1" for number in range(count)]
        Pusher(registry.address).push(names, own_bytes=own_kb * 1024)
        images = [f"{registry.address}/{name}" for name in names]
        print(f"{count} images with {own_kb} kB of their own each, {product}")
        alone = 0.0
        for way, pull in ways.items():
            took_s = seconds(pull, product, images)
            alone = alone or took_s
            print(f"{way:35} {took_s:6.1f} s, {alone / took_s:4.2f} times as fast", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=int, nargs="?", default=100)
    parser.add_argument("--own-kb", type=int, default=256)
    parser.add_argument("--workers", default="2,4,8", type=lambda text: [int(number) for number in text.split(",")])
    parser.add_argument("--engine", default="docker", choices=["docker", "podman"])
    options = parser.parse_args()
    if lack := available(options.engine):
        sys.exit(f"no {options.engine}: {lack}")
    main(options.images, options.own_kb, options.workers, options.engine)
