"""The lookout: an event loop that is held up is seen and its stacks are kept; one that is merely stopped is not."""

from __future__ import annotations

import logging
import queue
import subprocess
import sys
import threading
import time

import pytest
import trio

from scavenge.edge.lookout import Lookout


class Watched:
    """A lookout without its thread, which looks when it is told to."""

    def __init__(self, folder):
        self.told: list[str] = []
        self.lookout = Lookout(folder, self.told.append)
        self.now = time.monotonic()

    def pass_s(self, seconds: int, *, beating: bool = False) -> None:
        for _ in range(seconds):
            self.now += 1
            if beating:
                self.lookout.beat()
            self.lookout.look(self.now)


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path)


def test_a_loop_that_beats_is_never_told(watched):
    watched.pass_s(1000, beating=True)
    assert watched.told == []


def test_a_loop_that_stops_is_told_once_a_stretch(watched, tmp_path):
    watched.pass_s(5, beating=True)
    watched.pass_s(29)
    assert watched.told == []
    watched.pass_s(500)
    assert len(watched.told) == 1
    watched.pass_s(5, beating=True)
    watched.pass_s(35)
    assert len(watched.told) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocked-1.txt", "blocked-2.txt"]


def test_a_process_that_was_stopped_is_not_blocked(watched):
    watched.pass_s(3, beating=True)
    for _ in range(10):
        watched.now += 3600
        watched.pass_s(1)
        watched.pass_s(1, beating=True)
    assert watched.told == []


def test_the_line_says_how_long_where_and_in_which_file(watched, tmp_path):
    watched.pass_s(40)
    (line,) = watched.told
    assert line.startswith("the event loop has not turned for 30 s: it is held up in ")
    assert line.endswith(f"; see {tmp_path / 'blocked-1.txt'}")


def test_a_file_that_is_there_from_an_earlier_part_is_kept(watched, tmp_path):
    (tmp_path / "blocked-1.txt").write_text("earlier")
    watched.pass_s(40)
    assert (tmp_path / "blocked-1.txt").read_text() == "earlier"
    assert (tmp_path / "blocked-2.txt").exists()


def test_a_folder_that_cannot_be_written_costs_the_file_and_not_the_line(tmp_path):
    watched = Watched(tmp_path / "missing")
    watched.pass_s(40)
    assert "its stacks cannot be written to" in watched.told[0]
    assert watched.told[0].endswith(": No such file or directory")


def test_a_loop_whose_thread_has_ended_is_told_as_that(watched):
    thread = threading.Thread(target=watched.lookout.__enter__)
    thread.start()
    thread.join()
    watched.lookout.__exit__(None, None, None)
    watched.pass_s(40)
    assert "its thread has ended" in watched.told[0]


def block_the_loop(until: queue.Queue[str]) -> None:
    """Hold up the loop until somebody has noticed."""
    while until.empty():
        time.sleep(0.01)


def test_a_loop_that_is_really_held_up_is_caught_with_the_line_that_holds_it_up(tmp_path):
    told: queue.Queue[str] = queue.Queue()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lookout.run_beats)
            await trio.lowlevel.checkpoint()
            block_the_loop(told)
            nursery.cancel_scope.cancel()

    with Lookout(tmp_path, told.put, blocked_after_s=0.2, look_every_s=0.02) as lookout:
        trio.run(main)
    assert told.qsize() == 1
    assert "test_lookout.py:" in told.get()
    text = (tmp_path / "blocked-1.txt").read_text()
    assert text.startswith("thread MainThread, the event loop:\n")
    assert "block_the_loop(told)" in text
    assert "in _stacks" not in text


def test_the_thread_ends_with_the_block_and_leaving_does_not_wait_for_its_next_look(tmp_path):
    with Lookout(tmp_path, pytest.fail, look_every_s=3600.0) as lookout:
        assert lookout._thread.is_alive()
    assert not lookout._thread.is_alive()


async def test_beats_come_once_a_second(autojump_clock, tmp_path):
    lookout = Lookout(tmp_path)
    with trio.move_on_after(9.5):
        await lookout.run_beats()
    assert lookout._beats == 10


def test_it_speaks_through_the_log(tmp_path, caplog):
    lookout = Lookout(tmp_path)
    with caplog.at_level(logging.WARNING, "scavenge"):
        lookout.tell("100 % blocked")
    assert caplog.messages == ["100 % blocked"]


def test_a_lookout_that_is_never_left_does_not_keep_the_process_alive(tmp_path):
    code = (
        "import pathlib, sys; from scavenge.edge.lookout import Lookout; Lookout(pathlib.Path(sys.argv[1])).__enter__()"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0
