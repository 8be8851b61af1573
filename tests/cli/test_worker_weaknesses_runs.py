"""Whole runs whose workers die, hang in loading or are left alone: each sample has one result, and nothing stays.

The weaknesses of pools are told in ``worker_story_kit`` of ``tests/edge``. Here: that the death of one worker ended the
evaluation, that Ctrl-C had to wait until the first worker had loaded, that what workers had started outlived the run.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import trio
from run_kit import Folder, row, started
from told_server import BOUND_S, Server

from scavenge.app.evaluation import run_evaluation
from scavenge.events import Event, WorkerEnded, WorkerReady

COUNT = 1000
AT_ONCE = 32
MOMENT_S = 0.1
"""So that a run takes at least ``COUNT * 2 * MOMENT_S / AT_ONCE`` seconds: six kills."""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    shutil.copy(Path(__file__).with_name("story_workers.py"), tmp_path)
    return Folder(tmp_path)


def evaluation(folder: Folder, env: str, env_args: str, workers: str) -> None:
    (folder.path / "eval.toml").write_text(
        f"""
        endpoints_path = "endpoints.toml"
        elastic = true
        elastic_poll_interval = 0.1
        [workers]
        {workers}
        [[eval]]
        env_id = "story_workers:{env}"
        name = "story"
        endpoint_id = "pool"
        max_concurrent = {AT_ONCE}
        env_args = {{ {env_args} }}
        """
    )


class Killer:
    """Kills one of the workers every second, of those that play two rollouts or more.

    What is played alone was in two workers already that died; a third one that is killed would make it the culprit.
    """

    def __init__(self, playing: Path) -> None:
        self._playing = playing
        self.ready: dict[int, int] = {}
        self.kills = 0
        self.displaced = 0
        self._random = Random(11)

    def observe(self, event: Event) -> None:
        match event:
            case WorkerReady(_, worker, pid):
                self.ready[worker] = pid
            case WorkerEnded(_, worker):
                self.ready.pop(worker, None)
                self.displaced += event.displaced

    async def kill(self) -> None:
        while True:
            await trio.sleep(1)
            while not (victims := self._victims()):  # noqa: ASYNC110 - other processes have no event
                await trio.sleep(0.01)
            os.kill(self._random.choice(victims), signal.SIGKILL)
            self.kills += 1

    def _victims(self) -> list[int]:
        plays = Counter(int(path.name.partition("-")[0]) for path in self._playing.iterdir())
        return sorted(pid for pid in self.ready.values() if plays[pid] > 1)


async def test_a_thousand_rollouts_through_four_workers_of_which_one_is_killed_every_second_come_once_each(
    folder: Folder,
):
    """One worker's death ended the whole evaluation, or what was in it was lost, or was played twice."""
    (playing := folder.path / "playing").mkdir()
    arguments = f"folder = '{playing}', count = {COUNT}, moment_s = {MOMENT_S}"
    evaluation(folder, "Asking", arguments, "min = 4\nmax = 4\nmultiplex = 16")
    killer = Killer(playing)
    with Server() as server, trio.fail_after(10 * BOUND_S):
        folder.list(row(server, max_concurrent=64))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(killer.kill)
            done = await run_evaluation(folder.path / "eval.toml", observers=[killer.observe])
            nursery.cancel_scope.cancel()
    assert (done.exit_code, done.why) == (0, None)
    assert killer.kills >= 5
    assert killer.displaced > 0
    lines = folder.lines()
    assert Counter(line["example_id"] for line in lines) == Counter(map(str, range(COUNT)))
    assert {(line["status"], line["reward"]) for line in lines} == {("ok", 1.0)}
    assert not killer.ready


def test_ctrl_c_while_the_first_worker_loads_for_ever_ends_the_run_and_all_it_has_started(folder: Folder):
    """It was heard once the start had failed, which took ten minutes."""
    evaluation(folder, "Slow", 'folder = ".", plays = false', "min = 2\nmax = 2\nstartup_timeout = 10000")
    with Server() as server:
        folder.list(row(server))
        with started(folder) as running:
            pids = wait_told(folder, 2)
            running.signal(signal.SIGINT)
            assert running.wait() == 130
    assert not alive(pids)


@pytest.mark.parametrize("plays", ["false", "true"])
def test_a_run_that_is_killed_takes_all_with_it_that_it_and_its_workers_have_started(folder: Folder, plays: str):
    """Workers lived on when the run was killed, and what they had started lived on in any case."""
    evaluation(folder, "Slow", f'folder = ".", plays = {plays}', "min = 2\nmax = 2")
    with Server() as server:
        folder.list(row(server))
        with started(folder) as running:
            pids = wait_told(folder, 1 if plays == "true" else 2)
            running.signal(signal.SIGKILL)
            running.wait()
            wait_until(lambda: not alive(pids))


def wait_told(folder: Folder, workers: int) -> set[int]:
    """Wait for so many workers that are slow; their processes, and those that they have started."""

    def told() -> list[Path]:
        return list(folder.path.glob("pids-*[0-9]"))

    wait_until(lambda: len(told()) == workers)
    pids = {int(pid) for path in told() for pid in path.read_text().split()}
    assert alive(pids) == pids
    return pids


def alive(pids: set[int]) -> set[int]:
    """Those of the processes that live."""
    return {pid for pid in pids if _state(pid) not in "ZX"}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def wait_until(so: Callable[[], object]) -> None:
    """Wait until something has come about."""
    until = time.monotonic() + BOUND_S
    while not so():
        assert time.monotonic() < until, "it has not come about"
        time.sleep(0.02)
