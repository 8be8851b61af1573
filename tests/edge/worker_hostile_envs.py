"""Environments that take apart the worker that plays them: which way, is in the example."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from typing import Any

import trio

from scavenge import Environment, Rollout

HELLO = [{"role": "user", "content": "hello"}]


def close_descriptors() -> None:
    os.closerange(3, 256)


def forget_to_end_a_copy() -> None:
    if os.fork() == 0:
        sys.exit(0)


DEEDS = {"close": close_descriptors, "fork": forget_to_end_a_copy}


class Hostile(Environment):
    """Does a deed; ``waits`` is a rollout that is there when it is done. *identity* is what it says of itself."""

    multi_turn = False

    def __init__(self, identity: str = "{}") -> None:
        self.said = identity

    def identity(self) -> Any:
        return {"text": "x" * 70_000_000} if self.said == "long" else ["a", "list"]

    def examples(self) -> list[Any]:
        return []

    async def play(self, example: Any, model: Any) -> Rollout:
        if example.data.get("deed") == "break the loop":
            trio.lowlevel.spawn_system_task(self._raise)
        if (deed := DEEDS.get(example.data.get("deed"))) is not None:
            deed()
        await trio.sleep(3600 if example.data.get("waits") else 0)
        return Rollout("", 1.0)

    async def _raise(self) -> None:
        raise LookupError("in a task of the loop's own")


class HostileTrio(Hostile):
    def identity(self) -> Any:
        return {}


class HostileAsyncio(HostileTrio):
    backend = "asyncio"

    async def play(self, example: Any, model: Any) -> Rollout:
        if example.data.get("deed") == "break the loop":
            for task in asyncio.all_tasks():
                task.cancel()
        if (deed := DEEDS.get(example.data.get("deed"))) is not None:
            deed()
        await asyncio.sleep(3600 if example.data.get("waits") else 0)
        return Rollout("", 1.0)


def ask(number: int) -> str:
    return str(ForkingMain.model.chat([{"role": "user", "content": f"{number}"}]).text)


class ForkingMain(Environment):
    """Asks the model, then has copies of the process ask it side by side."""

    backend = "sync"
    multi_turn = False
    model: Any

    def examples(self) -> list[Any]:
        return []

    def play(self, example: Any, model: Any) -> Rollout:
        ForkingMain.model = model
        model.chat(HELLO)
        with multiprocessing.get_context("fork").Pool(3) as pool:
            told = pool.map(ask, range(30), chunksize=1)
        return Rollout(told, float(told == [f"you said {number}" for number in range(30)]))
