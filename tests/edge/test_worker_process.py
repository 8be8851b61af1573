"""Worker processes from their start to their end: how it is noticed and told, and that nothing is left of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from worker_process_kit import PATIENCE_S, alive, group_of, hear_all, launcher, nothing_left, wait_until

from scavenge.core.worker_messages import Aborted, Ready


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


# --- life and death


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("pass", "exit code 0"),
        ("os._exit(255)", "exit code 255"),
        ("raise SystemError", "exit code 1"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("os.kill(os.getpid(), 40)", "signal 40"),
    ],
)
async def test_how_it_ended_is_told(script: str, how: str, tmp_path: Path):
    async with launcher(tmp_path, script).open_worker("w") as worker:
        with trio.fail_after(PATIENCE_S):
            assert await worker.wait_end() == how


async def test_a_native_crash_leaves_its_stack_in_the_log(tmp_path: Path):
    script = "def scoring():\n    os.kill(os.getpid(), signal.SIGSEGV)\nscoring()"
    async with launcher(tmp_path, script).open_worker("w") as worker:
        assert await hear_all(worker) == []
        assert "in scoring" in worker.log_tail()


async def test_death_is_noticed_and_ends_the_group_where_the_system_gives_no_notice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delattr(os, "pidfd_open")
    script = """
    below = subprocess.Popen(["sleep", "1000"])
    say(Aborted(below.pid))
    os._exit(4)
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        (below,) = await hear_all(worker)
        assert await worker.wait_end() == "exit code 4"
        assert isinstance(below, Aborted)
        await wait_until(lambda: not alive(below.rollout))


async def test_what_a_worker_started_dies_with_it(tmp_path: Path):
    script = """
    deaf = "trap '' TERM HUP INT; sleep 1000 & wait"
    below = subprocess.Popen(["sh", "-c", deaf])
    say(Aborted(below.pid))
    signal.pause()
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        await worker.receive()
        pid = worker.pid
        await wait_until(lambda: len(group_of(pid)) == 3)
        os.kill(worker.pid, signal.SIGTERM)
        assert await hear_all(worker) == []
        assert await worker.wait_end() == "SIGTERM"
        await wait_until(lambda: not group_of(pid))


async def test_one_that_is_gone_is_neither_killed_nor_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    async with launcher(tmp_path, "pass").open_worker("w") as worker:
        await hear_all(worker)
        for owner, name in ((os, "killpg"), (Path, "read_bytes")):
            monkeypatch.setattr(owner, name, lambda *_: pytest.fail("its number may be another's"))
        worker.kill()
        assert worker.cpu_s() is None


async def test_its_processor_time_is_told_whatever_it_calls_itself(tmp_path: Path):
    script = """
    Path("/proc/self/comm").write_text("x) R 1 (y")
    say(Beat())
    while True:
        pass
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        await worker.receive()
        before = worker.cpu_s()
        assert before is not None
        await wait_until(lambda: (worker.cpu_s() or 0.0) > before + 0.1)


async def test_processor_time_that_the_system_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    async with launcher(tmp_path, "time.sleep(1000)").open_worker("w") as worker:
        monkeypatch.setattr(Path, "read_bytes", lambda _: b"1 (x) R")
        assert worker.cpu_s() is None


async def test_many_that_will_not_hear_of_an_end_are_gone_once_they_are_left(tmp_path: Path):
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN); say(Beat()); time.sleep(1000)"
    here = launcher(tmp_path, script)
    ready: list[int] = []

    async def live(name: str) -> None:
        async with here.open_worker(name) as worker:
            await worker.receive()
            ready.append(worker.pid)
            await trio.sleep_forever()

    async with trio.open_nursery() as living:
        for number in range(8):
            living.start_soon(live, f"w{number}")
        await wait_until(lambda: len(ready) == 8)
        living.cancel_scope.cancel()
    assert not alive(*ready)


async def test_an_error_in_the_block_comes_out_bare_and_leaves_nothing(tmp_path: Path):
    with pytest.raises(ZeroDivisionError):
        async with launcher(tmp_path, "time.sleep(1000)").open_worker("w"):
            raise ZeroDivisionError


# --- what a worker is given


async def test_no_descriptor_of_ours_but_its_two_reaches_a_worker(tmp_path: Path):
    script = """
    opened = {int(name) for name in os.listdir("/proc/self/fd")}
    opened = sorted(number for number in opened if os.path.exists(f"/proc/self/fd/{number}"))  # not what listed them
    say(Ready("trio", True, {"opened": opened, "given": [0, 1, 2, *sorted([line.fileno(), life])]}))
    """
    ours, theirs = os.pipe()
    os.set_inheritable(ours, True)
    try:
        here = launcher(tmp_path, script)
        async with here.open_worker("first"), here.open_worker("second") as worker:
            (ready,) = await hear_all(worker)
            assert isinstance(ready, Ready)
            assert ready.identity["opened"] == ready.identity["given"]
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("given", "upper", "lower"),
    [
        ({}, "127.0.0.1,localhost", "127.0.0.1,localhost"),
        ({"NO_PROXY": "a, b"}, "a,b,127.0.0.1,localhost", "a,b,127.0.0.1,localhost"),
        ({"no_proxy": "a", "NO_PROXY": "b,localhost"}, "b,localhost,127.0.0.1", "a,127.0.0.1,localhost"),
        ({"no_proxy": "*"}, "*", "*"),
        ({"no_proxy": "", "NO_PROXY": "a"}, "a,127.0.0.1,localhost", "127.0.0.1,localhost"),
    ],
)
async def test_its_clients_reach_the_gateway_without_a_proxy(
    given: dict[str, str], upper: str, lower: str, tmp_path: Path
):
    script = 'say(Ready("trio", True, dict(os.environ)))'
    environ = {"http_proxy": "http://proxy:1", "LC_ALL": "C.UTF-8", **given}
    async with launcher(tmp_path, script, environ).open_worker("w") as worker:
        (ready,) = await hear_all(worker)
    assert isinstance(ready, Ready)
    assert ready.identity == {
        **environ,
        "NO_PROXY": upper,
        "no_proxy": lower,
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }
