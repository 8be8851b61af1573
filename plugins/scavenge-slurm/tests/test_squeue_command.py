"""Running a command: bounded output, and nothing left of it when it is given up."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio
import trio.testing
from scavenge_slurm.command import MOST_ERROR_BYTES, run_command


async def shell(script: str, most: int = 10_000):
    return await run_command(["/bin/sh", "-c", script], {"PATH": os.defpath}, most)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] not in "ZX"


async def wait_for(path: Path) -> str:
    while not (path.exists() and path.read_text().endswith("\n")):  # noqa: ASYNC110 - a file sets no event
        await trio.sleep(0.005)
    await trio.lowlevel.checkpoint()
    return path.read_text()


async def gone(pids: list[int]) -> bool:
    with trio.move_on_after(5):
        while any(map(is_alive, pids)):  # noqa: ASYNC110 - nor does a process of somebody else
            await trio.sleep(0.005)
        await trio.lowlevel.checkpoint()
        return True
    return False


async def test_output_error_and_code_are_told():
    ended = await shell("echo out; echo err >&2; exit 3")
    assert (ended.code, ended.output, ended.error) == (3, b"out\n", b"err\n")


async def test_a_command_has_no_input():
    assert (await shell("cat; echo $?")).output == b"0\n"


async def test_a_command_that_a_signal_ends_has_its_number():
    assert (await shell("kill -9 $$")).code == -signal.SIGKILL


async def test_what_cannot_be_started_is_an_os_error():
    with pytest.raises(FileNotFoundError):
        await run_command(["/no/such/program"], {}, 1)


async def test_output_up_to_the_limit_is_whole():
    ended = await shell("head -c 10000 /dev/zero")
    assert (ended.code, len(ended.output)) == (0, 10_000)


async def test_a_command_that_prints_without_end_is_given_up():
    with trio.fail_after(10):
        ended = await shell("yes")
    assert ended.code is None
    assert len(ended.output) == 10_000


async def test_errors_without_end_are_read_and_dropped():
    ended = await shell(f"head -c {MOST_ERROR_BYTES * 8} /dev/zero >&2; echo done")
    assert (ended.code, ended.output, len(ended.error)) == (0, b"done\n", MOST_ERROR_BYTES)


async def test_cancelling_ends_the_command_and_its_children_also_those_that_do_not_listen(tmp_path):
    script = f"trap '' TERM; (trap '' TERM; sleep 77; :) & echo $$ $! > {tmp_path}/pids; sleep 77; sleep 77"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shell, script)
        pids = [int(pid) for pid in (await wait_for(tmp_path / "pids")).split()]
        assert all(map(is_alive, pids))
        nursery.cancel_scope.cancel()
    assert await gone(pids)


async def test_a_child_that_keeps_the_output_open_holds_nothing_up_and_is_ended(tmp_path):
    with trio.fail_after(10):
        ended = await shell(f"sleep 77 & echo $! > {tmp_path}/pid; echo out")
    assert (ended.code, ended.output) == (0, b"out\n")
    assert await gone([int((tmp_path / "pid").read_text())])


async def test_a_process_of_another_group_that_keeps_the_output_open_is_left_alone(tmp_path):
    """Such is the connection that ssh shares: it goes into the background, and serves the next call."""
    script = (
        f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 77' & while ! test -s {tmp_path}/pid; do :; done; echo out"
    )
    with trio.fail_after(10):
        ended = await shell(script)
    pid = int((tmp_path / "pid").read_text())
    assert (ended.code, ended.output) == (0, b"out\n")
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
