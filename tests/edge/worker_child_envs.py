"""Environments that worker processes play in tests: what a rollout does is in its example."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import trio

from scavenge import Environment, Example, InfrastructureError, Rollout

HELLO = [{"role": "user", "content": "hello"}]


class Rows(Environment):
    """Examples ``0`` to ``count - 1``; what happens to the stream is noted in each."""

    def __init__(self, count: int = 10, trouble: str = "") -> None:
        self.count = count
        self.trouble = trouble
        self.begun = 0

    def examples(self) -> Iterator[Example]:
        self.begun += 1
        for i in range(self.count):
            data: Any = {"i": i, "begun": self.begun, "thread": threading.get_ident()}
            if self.trouble == "raises" and i == 3:
                raise KeyError("row 3")
            if self.trouble == "exits" and i == 3:
                sys.exit(0)
            if self.trouble == "set" and i == 3:
                data = {"i": i, "odd": {1}}
            if self.trouble == "odd" and i == 3:
                yield "a row"  # type: ignore[misc]
            if self.trouble == "long":
                data["text"] = "x" * 3_000_000
            yield Example(str(i), data)


def leave() -> None:
    sys.exit(0)


def interrupt() -> None:
    raise KeyboardInterrupt


def raise_bare() -> None:
    raise BaseException("of no kind")


def raise_two() -> None:
    raise BaseExceptionGroup("two", [SystemExit(3), ValueError("bad")])


def lose_sandbox() -> None:
    raise InfrastructureError("the sandbox is gone")


def say_something() -> Rollout:
    print("printed by the environment")
    return Rollout("done", 1.0)


def sockets_of(pid: int) -> list[str]:
    folder = Path(f"/proc/{pid}/fd")
    return [path for name in os.listdir(folder) if (path := os.readlink(folder / name)).startswith("socket:")]


LIST_SOCKETS = """
import os
paths = {name: os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
print([name for name, path in paths.items() if "socket:" in path or "pipe:" in path and int(name) > 2])
"""


def start_processes() -> Rollout:
    """A process that is forked and one that is started, each ended by a signal; and what the latter has open."""
    forked = os.fork()
    if forked == 0:
        while True:
            time.sleep(1)
    while sockets_of(forked):  # until it has let go of the worker's
        time.sleep(0.01)
    os.kill(forked, signal.SIGTERM)
    status = os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])
    listed = subprocess.run(
        [sys.executable, "-c", LIST_SOCKETS], capture_output=True, text=True, check=True, close_fds=False
    )
    started = subprocess.Popen(["sleep", "3600"])
    started.send_signal(signal.SIGINT)
    said = {"forked": status, "started": started.wait(), "descriptors": ast.literal_eval(listed.stdout)}
    return Rollout(said, 1.0)


def block(until: Path) -> Rollout:
    while not until.exists():
        time.sleep(0.01)
    return Rollout("done", 1.0)


ACTS: dict[str, Callable[[], object]] = {
    "fail": lambda: 1 / 0,
    "exit": leave,
    "interrupt": interrupt,
    "base": raise_bare,
    "group": raise_two,
    "infrastructure": lose_sandbox,
    "print": say_something,
    "signals": start_processes,
    "nothing": lambda: None,
    "odd": lambda: Rollout({1, 2}, 0.5, {"odd": float("nan"), "good": 2}, info={"key": b"bytes"}),
    "nan": lambda: Rollout("done", float("nan")),
    "huge": lambda: Rollout("x" * (70 * 2**20), 1.0),
    "fine": lambda: Rollout("fine", 1.0),
}
"""What a rollout does without waiting for anything."""


class OnTrio(Rows):
    """Under Trio."""

    multi_turn = False

    async def play(self, example: Example, model: Any) -> Any:
        match example.data["do"]:
            case "chat":
                reply = await model.chat(example.data.get("messages", HELLO), **example.data.get("options", {}))
                return said(reply)
            case "address":
                return Rollout([model.base_url, model.api_key], 1.0)
            case "swallow":
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.3)
                return Rollout("swallowed", 1.0)
            case "wait":
                return await trio.sleep_forever()
            case "block":
                return block(Path(example.data["until"]))
            case "nursery":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    nursery.start_soon(self._fail)
                return None
            case do:
                return ACTS[do]()

    async def _fail(self) -> None:
        raise ValueError("in a nursery")


class OnAsyncio(Rows):
    """Under asyncio."""

    backend = "asyncio"

    async def play(self, example: Example, model: Any) -> Any:
        match example.data["do"]:
            case "chat":
                reply = await model.chat(example.data.get("messages", HELLO), **example.data.get("options", {}))
                return said(reply)
            case "address":
                return Rollout([model.base_url, model.api_key], 1.0)
            case "swallow":
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    await asyncio.sleep(0.3)
                return Rollout("swallowed", 1.0)
            case "wait":
                return await asyncio.sleep(3600)
            case "task exits":
                return await asyncio.create_task(self._exit())
            case "cancelled":
                raise asyncio.CancelledError
            case do:
                return ACTS[do]()

    async def _exit(self) -> None:
        sys.exit(0)


class OnMain(Rows):
    """In the main thread."""

    backend = "sync"

    def play(self, example: Example, model: Any) -> Any:
        match example.data["do"]:
            case "chat":
                reply = model.chat(example.data.get("messages", HELLO), **example.data.get("options", {}))
                return said(reply)
            case "address":
                return Rollout([model.base_url, model.api_key], 1.0)
            case "swallow":
                try:
                    model.chat([{"role": "user", "content": "hang"}])
                except BaseException as exc:
                    print("swallowed", type(exc).__name__)
                return Rollout("swallowed", 1.0)
            case "again and again":
                while True:
                    try:
                        model.chat([{"role": "user", "content": "hang"}])
                    except Exception as exc:
                        print("once more", exc)
            case "thread":
                return Rollout(threading.current_thread() is threading.main_thread(), 1.0)
            case do:
                return ACTS[do]()


def said(reply: Any) -> Rollout:
    attempts = [attempt.outcome for attempt in reply.attempts]
    return Rollout(reply.text, 1.0, info={"attempts": attempts, "raw": dict(reply.raw), "tokens": str(reply.usage)})


class Trouble(OnTrio):
    """One that is wrong in the way it is told."""

    def __init__(self, trouble: str) -> None:
        super().__init__()
        self.trouble = trouble
        if trouble == "make":
            raise LookupError("cannot be made")
        if trouble == "exit in make":
            sys.exit(0)

    def identity(self) -> Any:
        if self.trouble == "identity":
            raise LookupError("cannot say")
        return {"digest": "abc", "rows": 10} if self.trouble != "odd identity" else 3

    async def open(self) -> None:
        if self.trouble == "open":
            raise LookupError("cannot be opened")
        if self.trouble == "exit in open":
            sys.exit(0)
        if self.trouble == "long open":
            print("opening", flush=True)
            await trio.sleep_forever()

    async def close(self) -> None:
        print("closing", flush=True)
        if self.trouble == "close":
            raise LookupError("cannot be closed")
        if self.trouble == "long close":
            await trio.sleep_forever()


class AsyncioTrouble(OnAsyncio):
    """The same under asyncio."""

    async def open(self) -> None:
        if self.trouble == "open":
            raise LookupError("cannot be opened")
        if self.trouble == "exit in open":
            sys.exit(0)
        if self.trouble == "long open":
            print("opening", flush=True)
            await asyncio.sleep(3600)

    async def close(self) -> None:
        print("closing", flush=True)
        if self.trouble == "close":
            raise LookupError("cannot be closed")
        if self.trouble == "long close":
            await asyncio.sleep(3600)


class MainTrouble(OnMain):
    """The same in the main thread."""

    def open(self) -> None:
        if self.trouble == "open":
            raise LookupError("cannot be opened")
        if self.trouble == "exit in open":
            sys.exit(0)
        if self.trouble == "long open":
            print("opening", flush=True)
            time.sleep(3600)

    def close(self) -> None:
        print("closing", flush=True)
        if self.trouble == "close":
            raise LookupError("cannot be closed")
        if self.trouble == "long close":
            time.sleep(3600)
