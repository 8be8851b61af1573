"""Commands in the foreground: started, told of signals, and never left behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from scavenge.edge import child as children
from scavenge.edge.child import Child, open_child

SLEEP = ("sleep", "1000")
DEAF = ("sh", "-c", "trap '' TERM; echo > ready; while :; do sleep 0.05; done")


async def status_of(command: Sequence[str], environ: dict[str, str] | None = None) -> int:
    async with open_child(command, {**os.environ, **(environ or {})}) as child:
        return await child.wait()


async def status_after(number: signal.Signals, command: Sequence[str] = SLEEP) -> int:
    async with open_child(command, os.environ) as child:
        child.signal(number)
        return await child.wait()


async def wait_for(path: Path) -> None:
    """Wait for a file, which the child makes when it is so far."""
    with trio.fail_after(30):
        while not path.exists():  # noqa: ASYNC110 - nobody tells of it
            await trio.sleep(0.005)


def is_there(child: Child) -> bool:
    """Whether a process of that number is there, a zombie included."""
    try:
        os.kill(child.pid, 0)
    except ProcessLookupError:
        return False
    return True


def children_of_ours() -> set[str]:
    """The numbers of our children, of zombies, too."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("code", [0, 3, 255])
async def test_the_exit_status_is_its_own(code: int):
    assert await status_of(["sh", "-c", f"exit {code}"]) == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGPIPE])
async def test_what_a_signal_has_ended_has_the_status_that_shells_give_it(number: signal.Signals):
    assert await status_after(number) == 128 + number


async def test_it_is_given_the_environment_and_no_more(capfdbinary: pytest.CaptureFixture[bytes]):
    async with open_child(["/usr/bin/env"], {"ONE": "1", "ODD": "\udcff"}) as child:
        await child.wait()
    assert capfdbinary.readouterr().out == b"ONE=1\nODD=\xff\n"


async def test_it_has_our_streams_and_our_group(capfd: pytest.CaptureFixture[str]):
    assert await status_of(["sh", "-c", "cut -d ' ' -f 5 /proc/$$/stat; echo warned >&2"]) == 0
    told = capfd.readouterr()
    assert (int(told.out), told.err) == (os.getpgrp(), "warned\n")


async def test_it_is_looked_up_where_its_own_environment_says(tmp_path: Path):
    (tmp_path / "mine").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "mine").chmod(0o755)
    assert await status_of(["mine"], {"PATH": str(tmp_path)}) == 9


@pytest.mark.parametrize(
    ("name", "error"), [("nowhere-to-be-found", FileNotFoundError), ("./plain", PermissionError), ("./", OSError)]
)
async def test_what_cannot_be_started_raises_and_leaves_nothing(name: str, error: type[OSError], tmp_path: Path):
    (tmp_path / "plain").write_text("exit 0\n")
    before = children_of_ours()
    with pytest.raises(error):
        async with open_child([name], os.environ):
            pytest.fail("it was started")
    assert children_of_ours() == before


async def test_no_signal_that_is_not_ignored_here_is_ignored_or_blocked_there(capfd: pytest.CaptureFixture[str]):
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN  # Python's own doing
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert await status_of(["cat", "/proc/self/status"]) == 0
    finally:
        signal.signal(signal.SIGUSR2, before)
    masks = dict(line.split(":") for line in capfd.readouterr().out.splitlines())
    blocked, ignored = int(masks["SigBlk"], 16), int(masks["SigIgn"], 16)
    ours = {number for number in signal.Signals if signal.getsignal(number) is signal.SIG_IGN}
    ours -= {signal.SIGPIPE, signal.SIGXFSZ}
    assert blocked == 0
    assert ignored == sum(1 << (number - 1) for number in ours)


async def test_it_has_the_descriptors_that_we_were_given_and_none_of_ours(capfd: pytest.CaptureFixture[str]):
    given, ours = os.pipe()
    os.set_inheritable(given, True)
    try:
        seen = f"import os; print([os.path.exists(f'/proc/self/fd/{{number}}') for number in ({given}, {ours})])"
        assert await status_of([sys.executable, "-S", "-E", "-c", seen]) == 0
    finally:
        os.close(given)
        os.close(ours)
    assert capfd.readouterr().out == "[True, False]\n"


async def test_a_signal_to_what_has_ended_goes_nowhere():
    async with open_child(["true"], os.environ) as child:
        await child.wait()
        child.signal(signal.SIGKILL)
        assert await child.wait() == 0


async def test_what_still_runs_when_the_block_is_left_is_asked_to_end(tmp_path: Path):
    async with open_child(
        ["sh", "-c", "trap 'echo > asked; exit 4' TERM; echo > ready; while :; do sleep 0.01; done"], os.environ
    ) as child:
        await wait_for(tmp_path / "ready")
    assert (tmp_path / "asked").exists()
    assert not is_there(child)
    assert await child.wait() == 4


async def test_cancelled_it_kills_what_does_not_end_when_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(children, "GRACE_S", 0.1)
    with trio.CancelScope() as scope:
        async with open_child(DEAF, os.environ) as child:
            await wait_for(tmp_path / "ready")
            scope.cancel()
            await child.wait()
    assert scope.cancelled_caught
    assert not is_there(child)
    assert await child.wait() == 128 + signal.SIGKILL


async def test_cancelled_it_ends_what_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(children, "GRACE_S", 0.1)
    with trio.CancelScope() as scope:
        async with open_child(SLEEP, os.environ) as child:
            child.signal(signal.SIGSTOP)
            scope.cancel()
            await child.wait()
    assert not is_there(child)


async def test_cancelled_before_it_is_started_it_leaves_nothing():
    before = children_of_ours()
    with trio.CancelScope() as scope:
        scope.cancel()
        async with open_child(SLEEP, os.environ) as child:
            await child.wait()
    assert scope.cancelled_caught
    assert children_of_ours() == before


async def test_what_has_ended_has_heard_no_terminal():
    async with open_child(["true"], os.environ) as child:
        await child.wait()
        assert not child.has_heard_terminal()
