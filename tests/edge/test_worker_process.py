"""Worker processes: what they say is heard to the last word, and nothing is left of them."""

from __future__ import annotations

import os
import random
import signal
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from worker_process_kit import PATIENCE_S, alive, group_of, hear_all, launcher, nothing_left, wait_until

from scavenge.core.frames import MAX_FRAME_BYTES, BadFrame, FrameTooLong
from scavenge.core.worker_messages import Abort, Aborted, Beat, Load, Ready
from scavenge.edge import running_worker

LONG = Load("env", "x" * 2_000_000, "", "")
"""More than a socket takes."""


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has closed its socket is killed soon."""
    monkeypatch.setattr(running_worker, "GRACE_S", 0.2)


# --- hearing


async def test_all_that_was_written_before_the_end_is_told_after_it(tmp_path: Path):
    script = "say(*map(Aborted, range(2000))); sys.exit(3)"
    async with launcher(tmp_path, script).open_worker("w") as worker:
        with trio.fail_after(PATIENCE_S):
            assert await worker.wait_end() == "exit code 3"
        assert await hear_all(worker) == [Aborted(n) for n in range(2000)]
        assert await worker.receive() is None


async def test_more_than_a_socket_holds_is_heard_while_it_is_written(tmp_path: Path):
    script = """
    for number in range(2000):
        say(Aborted(number), Ready("trio", True, {"x": "y" * 1000}))
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        heard = await hear_all(worker)
        assert len(heard) == 4000
        assert heard[::2] == [Aborted(n) for n in range(2000)]
        assert await worker.wait_end() == "exit code 0"


async def test_one_that_is_killed_while_it_writes_has_said_whole_messages_without_a_gap(tmp_path: Path):
    script = """
    number = 0
    while True:
        say(Aborted(number))
        number += 1
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        heard = [await worker.receive() for _ in range(100)]
        os.kill(worker.pid, signal.SIGKILL)
        heard += await hear_all(worker)
        assert heard == [Aborted(n) for n in range(len(heard))]
        assert await worker.wait_end() == "SIGKILL"


async def test_a_torn_last_frame_is_no_error(tmp_path: Path):
    script = "say(Aborted(1), Aborted(2)); line.sendall(encode(Aborted(3))[:-1])"
    async with launcher(tmp_path, script).open_worker("w") as worker:
        assert await hear_all(worker) == [Aborted(1), Aborted(2)]


@pytest.mark.parametrize(
    ("bytes_", "said"),
    [("b'GET / HTTP/1.1'", "version 71"), ("b'\\2' + encode(Beat())[1:]", "version 2"), ("encode(Abort(1))", "abort")],
    ids=["garbage", "another version", "a message to workers"],
)
async def test_what_is_no_message_is_told_after_those_before_it_and_ends_the_worker(
    bytes_: str, said: str, short_grace: None, tmp_path: Path
):
    script = f"""
    line.sendall(encode(Aborted(1)) + {bytes_} + encode(Aborted(2)))
    time.sleep(1000)
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        assert await worker.receive() == Aborted(1)
        with pytest.raises(BadFrame, match=said), trio.fail_after(PATIENCE_S):
            await worker.receive()
        assert await hear_all(worker) == []
        assert await worker.wait_end() == "SIGKILL"


async def test_garbage_before_the_end_is_told_of_too(tmp_path: Path):
    async with launcher(tmp_path, "say(Beat()); line.sendall(b'GET /')").open_worker("w") as worker:
        assert await worker.receive() == Beat()
        with pytest.raises(BadFrame):
            await worker.receive()
        assert await hear_all(worker) == []
        assert await worker.wait_end() == "exit code 0"


async def test_a_cancelled_receive_loses_nothing(tmp_path: Path):
    script = """
    for number in range(3000):
        frame = encode(Aborted(number))
        line.sendall(frame[:9])
        line.sendall(frame[9:])
    """
    heard = []
    chance = random.Random(6)
    async with launcher(tmp_path, script).open_worker("w") as worker:
        while True:
            with trio.move_on_after(chance.choice([0, 0.0001, 0.001, 1])):
                if (message := await worker.receive()) is None:
                    break
                heard.append(message)
    assert heard == [Aborted(n) for n in range(3000)]


async def test_a_process_that_has_left_the_group_and_holds_the_socket_keeps_nobody_waiting(tmp_path: Path):
    script = """
    away = subprocess.Popen(["sleep", "1000"], start_new_session=True, pass_fds=[line.fileno()])
    say(Aborted(away.pid))
    os._exit(0)
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        (away,) = await hear_all(worker)
        assert isinstance(away, Aborted)
        assert alive(away.rollout)
        os.kill(away.rollout, signal.SIGKILL)


async def test_a_process_that_has_left_the_group_is_not_heard_for_ever(tmp_path: Path):
    script = """
    said, tell = os.pipe()
    if (away := os.fork()) == 0:
        os.setsid()
        os.read(said, 1)
        flood = encode(Beat()) * 1000
        while True:
            line.sendall(flood)
    say(Aborted(away))
    os.write(tell, b"x")
    time.sleep(0.05)
    os._exit(0)
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        heard = await hear_all(worker)
        (away,) = (message.rollout for message in heard if isinstance(message, Aborted))
        os.kill(away, signal.SIGKILL)
        await wait_until(lambda: not alive(away))


async def test_one_that_closes_its_socket_and_lives_on_is_killed(short_grace: None, tmp_path: Path):
    async with launcher(tmp_path, "say(Beat()); line.close(); time.sleep(1000)").open_worker("w") as worker:
        assert await worker.receive() == Beat()
        with trio.fail_after(PATIENCE_S):
            while True:
                with trio.move_on_after(0.02) as impatient:  # cancelled while it waits, it does not start to wait anew
                    assert await worker.receive() is None
                if not impatient.cancelled_caught:
                    break
        assert await hear_all(worker) == []
        assert await worker.wait_end() == "SIGKILL"


# --- speaking

ECHO = """
for message in hear():
    match message:
        case Abort(number):
            say(Aborted(number))
        case Load(_, env_args):
            say(Aborted(len(env_args)))
"""


async def test_messages_of_several_tasks_go_whole(tmp_path: Path):
    async with launcher(tmp_path, ECHO).open_worker("w") as worker:
        async with trio.open_nursery() as speaking:
            for length in range(1, 9):
                speaking.start_soon(worker.send, Load("env", "x" * length * 100_000, "", ""))
            heard = [await worker.receive() for _ in range(8)]
        assert sorted(message.rollout for message in heard if isinstance(message, Aborted)) == [
            length * 100_000 for length in range(1, 9)
        ]


async def test_a_message_that_was_cancelled_before_its_first_byte_costs_nothing(tmp_path: Path):
    async with launcher(tmp_path, ECHO).open_worker("w") as worker:
        with trio.CancelScope() as scope:
            scope.cancel()
            await worker.send(Abort(1))
        assert scope.cancelled_caught
        await worker.send(Abort(2))
        assert await worker.receive() == Aborted(2)


async def test_a_message_that_was_cut_by_cancellation_costs_the_worker(tmp_path: Path):
    async with launcher(tmp_path, "say(Beat()); time.sleep(1000)").open_worker("w") as worker:
        async with trio.open_nursery() as speaking:
            speaking.start_soon(worker.send, LONG)
            await worker.receive()
            await trio.testing.wait_all_tasks_blocked()
            speaking.cancel_scope.cancel()
        assert await hear_all(worker) == []
        assert await worker.wait_end() == "SIGKILL"


async def test_a_message_that_waits_for_its_turn_can_be_cancelled_for_nothing(tmp_path: Path):
    script = "signal.signal(signal.SIGUSR1, lambda *_: None); say(Beat()); signal.pause()\n" + ECHO
    async with launcher(tmp_path, script).open_worker("w") as worker:
        await worker.receive()
        async with trio.open_nursery() as speaking:
            speaking.start_soon(worker.send, LONG)
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(0.01):
                await worker.send(Abort(1))
            os.kill(worker.pid, signal.SIGUSR1)
        await worker.send(Abort(2))
        assert [await worker.receive() for _ in range(2)] == [Aborted(2_000_000), Aborted(2)]


async def test_a_message_that_finds_no_room_can_be_cancelled_for_nothing(tmp_path: Path):
    script = "signal.signal(signal.SIGUSR1, lambda *_: None); say(Beat()); signal.pause()\n" + ECHO
    async with launcher(tmp_path, script).open_worker("w") as worker:
        await worker.receive()
        sent = 0
        while True:
            with trio.move_on_after(0.2) as impatient:
                await worker.send(Abort(sent))
            if impatient.cancelled_caught:
                break
            sent += 1
        os.kill(worker.pid, signal.SIGUSR1)
        await worker.send(Abort(sent))
        assert [await worker.receive() for _ in range(sent + 1)] == [Aborted(number) for number in range(sent + 1)]


@pytest.mark.parametrize("keeper", ["[]", "[line.fileno()]"], ids=["nobody", "one that left the group"])
async def test_death_ends_the_sending_without_an_error(keeper: str, tmp_path: Path):
    script = f"""
    away = subprocess.Popen(["sleep", "1000"], start_new_session=True, pass_fds={keeper})
    say(Aborted(away.pid))
    signal.pause()
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        (away,) = [await worker.receive()]
        assert isinstance(away, Aborted)
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as speaking:
                speaking.start_soon(worker.send, LONG)
                speaking.start_soon(worker.send, LONG)
                await trio.testing.wait_all_tasks_blocked()
                worker.kill()
            await worker.wait_end()
            await worker.send(LONG)
        os.kill(away.rollout, signal.SIGKILL)


async def test_what_is_sent_to_one_that_hears_no_more_goes_nowhere(tmp_path: Path):
    script = "line.shutdown(socket.SHUT_RD); say(Beat()); time.sleep(1000)"
    async with launcher(tmp_path, script).open_worker("w") as worker:
        assert await worker.receive() == Beat()
        with trio.fail_after(PATIENCE_S):
            await worker.send(LONG)
            await worker.send(LONG)


async def test_a_message_that_is_too_long_is_refused_and_costs_nothing(tmp_path: Path):
    async with launcher(tmp_path, ECHO).open_worker("w") as worker:
        with pytest.raises(FrameTooLong):
            await worker.send(Load("env", "x" * MAX_FRAME_BYTES, "", ""))
        await worker.send(Abort(1))
        assert await worker.receive() == Aborted(1)


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


async def test_many_are_left_in_the_time_of_one(tmp_path: Path):
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
        began = trio.current_time()
        living.cancel_scope.cancel()
    assert trio.current_time() - began < PATIENCE_S / 2
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


# --- its log


async def test_what_it_prints_does_not_disturb_what_it_says(tmp_path: Path):
    script = """
    for number in range(10):
        print(f"{number} " * 1000 * 500)
    say(Beat())
    print("in the end")
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        assert await hear_all(worker) == [Beat()]
        assert worker.log_tail() == "in the end"
    assert (tmp_path / "logs" / "w.log").stat().st_size > 10_000_000


async def test_the_end_of_a_huge_log_is_read_within_bounds(tmp_path: Path):
    script = """
    os.truncate(1, 2**30)
    print("x" * 9000)
    print(*range(100), sep="\\n")
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        await hear_all(worker)
        tracemalloc.start()
        try:
            assert worker.log_tail() == "\n".join(map(str, range(80, 100)))
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()


async def test_the_end_of_the_log_is_what_this_start_printed_made_fit_to_be_shown(tmp_path: Path):
    script = r"""
    sys.stdout.buffer.write(b"\x1b[31mred\x1b[0m \xff\0 a\tb\r\n 10 %\r 20 %\r 30 %\r\n\n\x1b]0;title\x07no line end")
    """
    async with launcher(tmp_path, "print('before'); raise SystemExit('sorry')").open_worker("w") as worker:
        await hear_all(worker)
        assert worker.log_tail() == "before\nsorry"
    async with launcher(tmp_path, script).open_worker("w") as worker:
        await hear_all(worker)
        assert worker.log_tail() == "red \N{REPLACEMENT CHARACTER} a    b\n 30 %\nno line end"
    async with launcher(tmp_path, "pass").open_worker("w") as worker:
        await hear_all(worker)
        assert worker.log_tail() == ""
    log = (tmp_path / "logs" / "w.log").read_text(errors="replace")
    assert log.count("--- 'w' started ") == 3


async def test_a_log_that_is_gone_or_was_emptied_has_no_end(tmp_path: Path):
    async with launcher(tmp_path, "print('x' * 100)").open_worker("w") as worker:
        await hear_all(worker)
        (tmp_path / "logs" / "w.log").write_text("short")
        assert worker.log_tail() == ""
        (tmp_path / "logs" / "w.log").unlink()
        assert worker.log_tail() == ""


@pytest.mark.parametrize(
    "name", ["../../out", "a/b", ".hidden", "-rf", "", "nul\0", "lone \udc80", "x" * 1000, "two\nlines", "ü"]
)
async def test_any_name_gives_a_log_file_in_the_folder(name: str, tmp_path: Path):
    async with launcher(tmp_path, "print('here')").open_worker(name) as worker:
        await hear_all(worker)
        assert worker.log_tail() == "here"
    (log,) = (tmp_path / "logs").iterdir()
    assert log.suffix == ".log"
    assert not log.name.startswith((".", "-"))


async def test_names_that_are_alike_when_made_safe_have_files_of_their_own(tmp_path: Path):
    here = launcher(tmp_path, "pass")
    for name in ("a/b", "a_b", "a b"):
        async with here.open_worker(name) as worker:
            await hear_all(worker)
    assert len(list((tmp_path / "logs").iterdir())) == 3
