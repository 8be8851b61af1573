"""Environments in worker processes for the stories of whole runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio

from scavenge import Environment, Example, Rollout


class Asking(Environment):
    """Asks the model once in each rollout, with a moment before and after it.

    A file ``PROCESS-ROLLOUT`` in *folder* says that a rollout is being played.
    """

    in_worker = True
    multi_turn = False

    def __init__(self, folder: str, count: int, moment_s: float) -> None:
        self.folder = Path(folder)
        self.count = count
        self.moment_s = moment_s

    def examples(self) -> Iterator[Example]:
        for number in range(self.count):
            yield Example(str(number), {"question": f"What is {number} + 1 ?", "answer": str(number + 1)})

    async def play(self, example: Example, model: Any) -> Rollout:
        (being_played := self.folder / f"{os.getpid()}-{example.id}").touch()
        await trio.sleep(self.moment_s)
        reply = await model.chat([{"role": "user", "content": example.data["question"]}])
        await trio.sleep(self.moment_s)
        being_played.unlink()
        return Rollout(reply.text, float(reply.text == example.data["answer"]))


class Slow(Environment):
    """Tells of itself and of a program that it has started, and then loads or plays for ever."""

    in_worker = True

    def __init__(self, folder: str, plays: bool) -> None:
        self.folder = Path(folder)
        self.plays = plays

    def examples(self) -> Iterator[Example]:
        yield Example("only", {})

    async def open(self) -> None:
        if not self.plays:
            await self._be_slow()

    async def play(self, example: Example, model: Any) -> Rollout:
        await self._be_slow()
        raise AssertionError

    async def _be_slow(self) -> None:
        self._tell()
        await trio.sleep_forever()

    def _tell(self) -> None:
        program = subprocess.Popen(["sh", "-c", 'trap "" TERM HUP INT; while true; do sleep 1; done'])
        (self.folder / f"pids-{os.getpid()}.new").write_text(f"{os.getpid()} {program.pid}")
        (self.folder / f"pids-{os.getpid()}.new").rename(self.folder / f"pids-{os.getpid()}")
