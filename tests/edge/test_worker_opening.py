"""Starting worker processes: whatever goes wrong, and whenever it is cancelled, nothing is left of the attempt."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from worker_process_kit import alive, descriptors, hear_all, launcher, nothing_left

from scavenge.core.worker_messages import Aborted
from scavenge.edge.worker_process import ProcessLauncher
from scavenge.errors import CannotSpawn

SLEEPER = ["sh", "-c", "exec sleep 1000"]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


def sleepers(folder: Path) -> ProcessLauncher:
    """Starts what knows no frames, and is started in no time."""
    return ProcessLauncher(logs=folder / "logs", environ=os.environ, command=SLEEPER)


# --- what cannot be started


async def refused(here: ProcessLauncher) -> str:
    """What is said when a worker cannot be started."""
    with pytest.raises(CannotSpawn) as caught:
        async with here.open_worker("math-worker-0"):
            pytest.fail("it was started")
    return str(caught.value)


async def test_a_program_that_is_not_there_is_named(tmp_path: Path):
    here = ProcessLauncher(logs=tmp_path, environ=os.environ, command=["/no/such/python", "-m", "x"])
    assert await refused(here) == "worker 'math-worker-0' cannot be started: /no/such/python: No such file or directory"


async def test_a_program_that_is_none_is_named(tmp_path: Path):
    (tmp_path / "empty").touch()
    here = ProcessLauncher(logs=tmp_path, environ=os.environ, command=[str(tmp_path / "empty")])
    assert "empty: Permission denied" in await refused(here)


async def test_a_log_folder_that_is_a_file_is_named(tmp_path: Path):
    (tmp_path / "logs").touch()
    assert str(tmp_path / "logs") in await refused(sleepers(tmp_path))


async def test_a_log_that_is_a_folder_is_named(tmp_path: Path):
    (tmp_path / "logs" / "math-worker-0.log").mkdir(parents=True)
    assert "math-worker-0.log: Is a directory" in await refused(sleepers(tmp_path))


async def test_a_log_on_a_full_disk_is_named(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "math-worker-0.log").symlink_to("/dev/full")
    assert "math-worker-0.log: No space left on device" in await refused(sleepers(tmp_path))


@contextmanager
def descriptors_limited_to(count: int) -> Iterator[None]:
    """Let this process have no descriptor from number *count* on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_however_few_descriptors_there_are_nothing_is_left_of_a_start_that_fails(tmp_path: Path):
    here = launcher(tmp_path, "say(Aborted(7)); os._exit(3)")
    opened = descriptors()
    said = []
    for limit in range(len(opened) - 1, max(map(int, opened)) + 30):
        try:
            with descriptors_limited_to(limit):
                async with here.open_worker("w") as worker:
                    assert await hear_all(worker) == [Aborted(7)]
                    assert await worker.wait_end() == "exit code 3"
                    break
        except CannotSpawn as exc:
            said.append(str(exc))
        assert descriptors() == opened
    else:
        pytest.fail("it never was enough")
    assert len(said) > 5
    assert all("raise the limit (ulimit -n), or lower [workers].max" in line for line in said)


PROCESSES = """
import os, resource, sys
from pathlib import Path

import trio
from scavenge.edge.worker_process import ProcessLauncher
from scavenge.errors import CannotSpawn

async def start(most):
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    opened = os.listdir("/proc/self/fd")
    try:
        async with ProcessLauncher(logs=Path(sys.argv[1]), environ={}, command=["/bin/sleep", "1"]).open_worker("w"):
            print("started")
    except CannotSpawn as exc:
        assert os.listdir("/proc/self/fd") == opened
        print(exc)

Path(sys.argv[1]).chmod(0o777)
if os.getuid() == 0:
    os.setuid(61_234)  # nobody has it, and limits do not bind root
trio.run(start, int(sys.argv[2]))
"""


@pytest.mark.parametrize("most", [1, 2], ids=["no thread to start it in", "no process"])
def test_a_machine_with_no_room_for_a_process_is_told_of(most: int):
    with TemporaryDirectory() as logs:  # where others get to
        command = [sys.executable, "-c", PROCESSES, logs, str(most)]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "no more processes or threads are allowed: raise the limit (ulimit -u, pids.max)" in said.stdout, said


# --- cancellation


class Knife(trio.abc.Instrument):
    """Cancels a scope at the n-th moment at which its task was woken or gave way, in real time."""

    def __init__(self, moments: int) -> None:
        self.left = moments
        self.scope = trio.CancelScope()
        self.task: trio.lowlevel.Task | None = None

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self.count(task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count(task)

    def count(self, task: trio.lowlevel.Task) -> None:
        """Come nearer, and cut."""
        self.left -= task is self.task
        if self.left == 0:
            self.scope.cancel()


def test_cancelled_at_any_step_of_its_life_a_worker_leaves_nothing(tmp_path: Path):
    here = launcher(tmp_path, "say(Aborted(1)); time.sleep(1000)")

    async def live(knife: Knife) -> None:
        knife.task = trio.lowlevel.current_task()
        with knife.scope:
            async with here.open_worker("w") as worker:
                await worker.receive()
        knife.task = None

    for moments in range(1, 100):
        knife = Knife(moments)
        with nothing_left():
            trio.run(live, knife, instruments=[knife])
        if knife.left > 0:
            break
    else:
        pytest.fail("it never came to its end")
    assert moments > 8


# --- many


async def test_two_hundred_workers_live_at_once(tmp_path: Path):
    here = sleepers(tmp_path)
    async with AsyncExitStack() as opened:
        workers = [await opened.enter_async_context(here.open_worker(f"w{number}")) for number in range(200)]
        pids = {worker.pid for worker in workers}
        assert alive(*pids) == pids
    assert len(pids) == 200
    assert not alive(*pids)
