"""What the stories of ``scavenge images`` and of runs that need images are made of: an engine, and processes beside it.

The engine is a fake on a Unix socket, in a loop of this process; scavenge runs in a thread, or as a process of its own
where it is to be killed, and finds the engine by ``DOCKER_HOST``. Nothing of the user's is read or written: home, cache
and state are folders of the test.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio
from run_kit import Folder, command, run_here
from told_server import BOUND_S

from fake_engine import FakeEngine, open_fake_engine

FOREIGN = ("DOCKER_CONTEXT", "CONTAINER_HOST", "REGISTRY_AUTH_FILE")
FOLDERS = ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "DOCKER_CONFIG")


_numbers = itertools.count()


@attrs.frozen
class Ended:
    """How a program ended."""

    code: int
    out: str
    said: str


@attrs.define(eq=False)
class ImageStory:
    """A folder, an engine, and scavenge beside it."""

    path: Path
    engine: FakeEngine

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the programs: the user's, but for all that has to do with images."""
        kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        folders = {name: str(self.path / name.lower()) for name in FOLDERS}
        return {**kept, **folders, "HOME": str(self.path / "home"), "DOCKER_HOST": self.engine.address}

    async def scavenge(self, *arguments: str) -> Ended:
        """Run scavenge to its end, in a thread of this process."""
        done = await trio.to_thread.run_sync(partial(run_here, Folder(self.path), *arguments))
        return Ended(done.returncode, done.stdout, done.stderr)

    @asynccontextmanager
    async def started(self, *arguments: str) -> AsyncIterator[trio.Process]:
        """Scavenge while the block runs; it is killed at the end if it is still there."""
        async with trio.open_nursery() as nursery:
            process = await nursery.start(run_beside, command(*arguments), self.path, self.environ)
            try:
                yield process
            finally:
                process.kill()
                with trio.move_on_after(BOUND_S, shield=True):
                    await process.wait()

    async def pulls(self, count: int) -> None:
        """Wait until the engine was asked for so many pulls."""
        while self.engine.calls["pull"] < count:  # noqa: ASYNC110  # of another process
            await trio.sleep(0.02)

    def module(self, code: str) -> str:
        """Write a module under a name that no other test has imported, and return the name."""
        name = f"boxes_{next(_numbers)}"
        self.write(f"{name}.py", code)
        return name

    def write(self, name: str, text: str) -> Path:
        """Write a file."""
        path = self.path / name
        path.write_text(text)
        return path


async def run_beside(
    arguments: list[str], folder: Path, environ: dict[str, str], task_status: trio.TaskStatus[trio.Process]
) -> None:
    """Run a program to its end."""
    with (folder / "said.txt").open("wb") as said:
        process = await trio.lowlevel.open_process(
            arguments, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        task_status.started(process)
        await process.wait()


@asynccontextmanager
async def open_story(folder: Path) -> AsyncIterator[ImageStory]:
    """A story with an engine that has nothing yet."""
    before = dict(os.environ)
    async with open_fake_engine() as engine:
        story = ImageStory(folder, engine)
        environ = story.environ
        try:
            _replace_environ(environ)
            yield story
        finally:
            _replace_environ(before)


def _replace_environ(environ: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)
