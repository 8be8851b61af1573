"""What is said to worker processes and by them: whole messages, in order, to the last word."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from worker_process_kit import PATIENCE_S, alive, hear_all, launcher, nothing_left, wait_until

from scavenge.core.frames import MAX_FRAME_BYTES, BadFrame, FrameTooLong
from scavenge.core.worker_messages import Abort, Aborted, Beat, Load
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
