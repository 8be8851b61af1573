"""Nothing of a worker outlives the run, however the run ends and whatever the worker is doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from worker_process_kit import PATIENCE_S, PRELUDE, alive, group_of, hear_all, launcher, nothing_left, wait_until

from scavenge.core.worker_messages import Aborted, Ready

HERE = Path(__file__).parent

BUSY = {
    "holds the interpreter's lock": r"say(Aborted(1)); re.match(r'(a+)+$', 'a' * 50 + 'b')",
    "is stopped": "say(Aborted(1)); os.kill(os.getpid(), signal.SIGSTOP)",
    "blocks, and has deaf processes": """
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; sleep 1000 & sleep 1000"])
while len(list(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())) < 1:
    pass
say(Aborted(1))
while True:
    signal.pause()
""",
    "is the first of many": "say(Aborted(1)); time.sleep(1000)",
}

RUN = """
import os, sys, time
from contextlib import AsyncExitStack
from pathlib import Path

import trio
from worker_process_kit import launcher

async def main():
    async with AsyncExitStack() as opened:
        for number, script in enumerate(sys.argv[2:]):
            folder = Path(sys.argv[1]) / str(number)
            folder.mkdir()
            here = launcher(folder, "start_guard(life)" + chr(10) + script)
            worker = await opened.enter_async_context(here.open_worker("w"))
            await worker.receive()
            print(worker.pid, flush=True)
        FORK
        print("all", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""
FORK = """
        if (fork := os.fork()) == 0:
            os.setsid()
            time.sleep(1000)
        print(fork)
"""


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


def wait_while(so: Callable[[], object]) -> None:
    """Wait until something is over."""
    until = time.monotonic() + PATIENCE_S
    while so():
        assert time.monotonic() < until, "it goes on"
        time.sleep(0.01)


def started_run(folder: Path, program: str, *scripts: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A run whose workers play *scripts*, and the numbers that it told of them."""
    run = subprocess.Popen(
        [sys.executable, "-c", program, str(folder), *scripts],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
    )
    try:
        assert run.stdout is not None
        return run, [int(number) for number in iter(run.stdout.readline, "all\n")]
    except BaseException:
        ended(run)
        raise


def ended(run: subprocess.Popen[str]) -> None:
    """Kill a run as the system does, and reap it."""
    run.kill()
    run.wait()
    assert run.stdout is not None
    run.stdout.close()


@pytest.mark.parametrize("script", BUSY.values(), ids=BUSY)
def test_a_run_that_is_killed_leaves_nothing_of_a_worker_that(script: str, tmp_path: Path):
    run, (leader,) = started_run(tmp_path, RUN.replace("FORK", ""), script)
    try:
        members = group_of(leader)
        assert len(members) >= 2, "the worker and its guard"
    finally:
        ended(run)
    wait_while(lambda: group_of(leader) | alive(*members))


def test_a_run_that_is_killed_leaves_nothing_of_several_workers(tmp_path: Path):
    run, leaders = started_run(tmp_path, RUN.replace("FORK", ""), *BUSY.values())
    ended(run)
    wait_while(lambda: [leader for leader in leaders if group_of(leader)])


def test_what_a_run_forked_does_not_keep_its_workers_alive(tmp_path: Path):
    run, (leader, fork) = started_run(tmp_path, RUN.replace("FORK", FORK.strip()), BUSY["is the first of many"])
    ended(run)
    try:
        wait_while(lambda: group_of(leader))
        assert alive(fork)
    finally:
        os.kill(fork, signal.SIGKILL)
    wait_while(lambda: alive(fork))


async def test_the_guard_is_no_child_of_the_worker_and_holds_nothing_of_it(tmp_path: Path):
    script = """
    start_guard(life)
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        say(Ready("trio", True, {"life is open": os.path.exists(f"/proc/self/fd/{life}")}))
    signal.pause()
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        ready = await worker.receive()
        assert isinstance(ready, Ready)
        assert ready.identity == {"life is open": False}
        (guard,) = group_of(worker.pid) - {worker.pid}

        def held() -> list[str]:
            return sorted(os.readlink(entry).partition(":")[0] for entry in Path(f"/proc/{guard}/fd").iterdir())

        await wait_until(lambda: held() == ["anon_inode", "pipe"])  # that of the run's death, and the life pipe
        pid = worker.pid
    await wait_until(lambda: not group_of(pid))


async def test_what_a_worker_sends_to_its_whole_group_is_not_meant_for_the_guard(tmp_path: Path):
    script = """
    start_guard(life)
    numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    for number in numbers:
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            pass
    for number in sorted(numbers):
        os.killpg(0, number)
    say(Aborted(1))
    while True:
        signal.pause()
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        assert await worker.receive() == Aborted(1)
        guard = group_of(worker.pid) - {worker.pid}
        await trio.sleep(0.1)
        assert guard
        assert alive(*guard) == guard


async def test_a_worker_that_ends_by_itself_takes_its_guard_along(tmp_path: Path):
    script = """
    start_guard(life)
    say(Aborted(1))
    line.recv(1)
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        await worker.receive()
        pid = worker.pid
        assert len(group_of(pid)) == 2
        os.kill(pid, signal.SIGTERM)
        assert await hear_all(worker) == []
        await wait_until(lambda: not group_of(pid))


def test_a_worker_that_was_started_in_the_group_of_another_is_guarded_in_one_of_its_own(tmp_path: Path):
    (tmp_path / "worker.py").write_text(
        PRELUDE + "start_guard(life); say(Aborted(os.getpid())); time.sleep(1000)", encoding="utf-8"
    )
    starter = """
import os, socket, subprocess, sys
ours, theirs = socket.socketpair()
life, our_life = os.pipe()
numbers = ["--socket", str(theirs.fileno()), "--life", str(life)]
worker = subprocess.Popen([sys.executable, sys.argv[1], *numbers], pass_fds=(theirs.fileno(), life))
ours.recv(1)
os.close(our_life)
print(worker.wait())
"""
    command = [sys.executable, "-c", starter, str(tmp_path / "worker.py")]
    said = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    assert (said.stdout, said.returncode) == (f"{-signal.SIGKILL}\n", 0)


@pytest.mark.parametrize("fork", [1, 2])
async def test_a_guard_that_cannot_be_started_is_an_error_in_the_worker_alone(fork: int, tmp_path: Path):
    script = f"""
    forks, real = 0, os.fork

    def failing():
        global forks
        forks += 1
        if forks == {fork}:
            raise OSError(11, "no room")
        return real()

    os.fork = failing
    try:
        start_guard(life)
    except OSError as exc:
        say(Aborted(exc.errno))
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        assert await hear_all(worker) == [Aborted(11)]


async def test_a_worker_that_inherits_that_the_end_of_children_is_ignored_is_guarded(tmp_path: Path):
    script = """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    start_guard(life)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    say(Aborted(subprocess.run(["sh", "-c", "exit 3"]).returncode))
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        assert await hear_all(worker) == [Aborted(3)]
