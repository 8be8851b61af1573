"""Environments that go wrong on purpose: files in a folder say how they load, an example's ``do`` how it is played.

A file whose name begins with ``hold`` stops whoever comes to it for as long as it is there.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import trio

from scavenge import Environment, Example, Rollout
from scavenge.core.frames import encode
from scavenge.core.worker_messages import Played

LOG_BYTES = 2**30
BIG_CHARACTERS = 64 * 2**20


class Story(Environment):
    """Loads and plays as *folder* and the examples say; each start of it has a number, from 1 on."""

    def __init__(self, folder: str, together: int = 1) -> None:
        self.folder = Path(folder)
        self.together = together
        self.life = 0

    def examples(self) -> list[Example]:
        return []

    async def open(self) -> None:
        self.life = claim(self.folder, "life")
        await until(self.folder / f"life-{self.together}")
        await while_there(self.folder / "hold-loading")
        await while_there(self.folder / f"hold-loading-{self.life}")
        if (self.folder / "dies").exists() or (self.folder / f"dies-{self.life}").exists():
            print("no weights in this machine", flush=True)
            os._exit(3)
        if (self.folder / "fills-its-log").exists():
            os.ftruncate(1, os.fstat(1).st_size + LOG_BYTES)
            print(flush=True)

    async def play(self, example: Example, model: Any) -> Rollout:
        name = example.id if example.id.isidentifier() else "odd"
        (self.folder / f"began-{name}-{self.life}").touch()
        data = {key: value for key, value in example.data.items() if key != "do"}
        said = await getattr(self, example.data["do"])(example.id, model, **data)
        return Rollout(said, 1.0, info={"pid": os.getpid(), "life": self.life})

    # --- plays that end well

    async def answer(self, name: str, model: Any) -> str:
        return f"answer to {name}"

    async def tell(self, name: str, model: Any, said: str) -> str:
        return said

    async def hold(self, name: str, model: Any, until: str = "play") -> str:
        await while_there(self.folder / f"hold-{until}")
        return f"answer to {name}"

    async def hold_whatever_comes(self, name: str, model: Any) -> str:
        """Goes on though cancelled."""
        with trio.CancelScope(shield=True):
            await while_there(self.folder / "hold-play")
        return f"answer to {name}"

    async def ask(self, name: str, model: Any) -> str:
        reply = await model.chat([{"role": "user", "content": name}])
        return reply.text

    async def print(self, name: str, model: Any) -> str:
        print("\x00\x00\x00\x10 not for the run", flush=True)
        os.write(1, os.urandom(2**16))
        os.write(2, os.urandom(2**16))
        run_program("echo from a program; cat; echo to stderr >&2").wait()
        return f"answer to {name}"

    async def compute(self, name: str, model: Any, seconds: float) -> str:
        """Holds the interpreter's lock for so long, in one call of native code."""
        begun_at = time.monotonic()
        _match(18)
        more = math.ceil(math.log2(seconds / (time.monotonic() - begun_at)))  # each character doubles it
        begun_at = time.monotonic()
        _match(18 + max(0, more))
        return str(time.monotonic() - begun_at)

    async def result_of_64_mb(self, name: str, model: Any) -> str:
        return "x" * BIG_CHARACTERS

    # --- plays that do not

    async def leave_once(self, name: str, model: Any, status: int) -> str:
        if first(self.folder, f"left-{name}"):
            os._exit(status)
        return f"answer to {name}"

    async def poison(self, name: str, model: Any) -> str:
        print("double free or corruption", flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
        return "never said"

    async def stop_once(self, name: str, model: Any) -> str:
        if first(self.folder, f"stopped-{name}"):
            os.kill(os.getpid(), signal.SIGSTOP)
        return f"answer to {name}"

    async def have_deaf_program(self, name: str, model: Any) -> str:
        """Starts a program that no polite signal ends, tells its number, and waits."""
        command = 'trap "" TERM HUP INT; echo $$ > "$0.new"; mv "$0.new" "$0"; while true; do sleep 1; done'
        run_program(command, str(self.folder / "deaf"))
        return await self.hold(name, model)

    async def garbage_once(self, name: str, model: Any) -> str:
        if first(self.folder, f"garbage-{name}"):
            os.write(speech(), b"HTTP/1.1 200 OK\r\n\r\n")
            await trio.sleep_forever()
        return f"answer to {name}"

    async def answer_twice_once(self, name: str, model: Any, number: int) -> str:
        """Tells by itself what is told once more when it returns."""
        if first(self.folder, f"twice-{name}"):
            os.write(speech(), encode(Played(number, Rollout("the first answer", 1.0))))
        return "the second answer"

    async def answer_and_die(self, name: str, model: Any, number: int) -> str:
        os.write(speech(), encode(Played(number, Rollout(f"last words of {name}", 1.0))))
        os.kill(os.getpid(), signal.SIGKILL)
        return "never said"


class Stubborn(Environment):
    """Blocks in its only thread, and is deaf to polite signals."""

    backend = "sync"

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def examples(self) -> list[Example]:
        return []

    def open(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def play(self, example: Example, model: Any) -> Rollout:
        (self.folder / f"began-{example.id}").touch()
        while True:
            time.sleep(1)


def run_program(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", *command])


def speech() -> int:
    """The descriptor of the worker's end of the conversation, which is in the command line of the process."""
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    return int(words[words.index(b"--socket") + 1])


def claim(folder: Path, what: str) -> int:
    """The first number that nobody has claimed."""
    return next(number for number in itertools.count(1) if first(folder, f"{what}-{number}"))


def first(folder: Path, what: str) -> bool:
    """Whether nobody has come here before."""
    try:
        (folder / what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


async def while_there(path: Path) -> None:
    while path.exists():  # noqa: ASYNC110 - another process makes it
        await trio.sleep(0.01)


async def until(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110 - another process makes it
        await trio.sleep(0.01)


def _match(characters: int) -> None:
    re.match(r"(a+)+$", "a" * characters + "b")
