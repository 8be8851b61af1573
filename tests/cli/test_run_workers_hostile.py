"""``scavenge run`` with environments in workers that go wrong in some processes, or take their own apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_kit import Folder, row, run
from told_server import Server, answered

ENVIRONMENTS = """
import os, sys
from pathlib import Path
from scavenge import Environment, Example, Rollout

class Base(Environment):
    backend = "asyncio"

    def examples(self):
        for number in range(24):
            yield Example(id=str(number), data={"question": f"What is {number} + 1 ?"})

    async def play(self, example, model):
        self.wreck(example)
        reply = await model.chat([{"role": "user", "content": example.data["question"]}])
        return Rollout(reply.text, float(str(int(example.id) + 1) in reply.text.split()))

    def wreck(self, example): ...

class BusyDevice(Base):
    def __init__(self):
        try:
            os.close(os.open("device", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        raise OSError("the device is busy")

class Forks(Base):
    def wreck(self, example):
        if os.fork() == 0:
            sys.exit(0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "mine.py").write_text(ENVIRONMENTS)
    return Folder(tmp_path)


@pytest.mark.parametrize("name", ["BusyDevice", "Forks"])
def test_a_run_goes_on_without_a_worker_that_cannot_be_made_and_in_spite_of_forked_copies(folder: Folder, name: str):
    with Server(answered) as server:
        folder.list(row(server))
        (folder.path / "eval.toml").write_text(
            'endpoints_path = "endpoints.toml"\nelastic = true\nelastic_poll_interval = 0.1\n'
            f'[[eval]]\nenv_id = "mine:{name}"\nendpoint_id = "pool"\n[workers]\nmin = 2\nmax = 2\n'
        )
        done = run(folder)
    assert done.returncode == 0, done.stderr
    assert sorted(int(str(line["example_id"])) for line in folder.lines()) == list(range(24))
    assert all(line["reward"] == 1.0 for line in folder.lines())
    if name == "BusyDevice":
        (told,) = [line for line in done.stderr.splitlines() if "died loading (" in line]
        assert "the device is busy" in told
