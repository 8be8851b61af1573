"""Ledgers of images, with real files and real processes that are killed."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Barrier, Thread

import pytest

from scavenge.edge.images.ledger import FileLedger, brought, dead_ledgers, default_folder, open_ledger
from scavenge.runtime.ports import ImageLedger

A, B, C = (f"docker.io/library/{letter}:1" for letter in "abc")
ENGINE = "ABCD:EFGH"

KEEPER = """
import sys
from pathlib import Path
from scavenge.edge.images.ledger import open_ledger
with open_ledger(Path(sys.argv[1]), sys.argv[2], "run") as ledger:
    for line in sys.stdin:
        what, *images = line.split()
        if what == "need":
            ledger.need(images)
        elif what == "end":
            break
        else:
            getattr(ledger, what)(images[0])
        print("done", flush=True)
"""


class Keeper:
    """Another process that keeps a ledger."""

    def __init__(self, folder: Path, engine: str = ENGINE) -> None:
        command = [sys.executable, "-c", KEEPER, str(folder), engine]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, *lines: str) -> None:
        """Have it note things, and wait until it has."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for line in lines:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self.process.kill()
        assert self.process.wait() == -signal.SIGKILL

    def end(self) -> None:
        self.process.communicate("end\n")
        assert self.process.returncode == 0


@contextmanager
def keeper(folder: Path, engine: str = ENGINE) -> Iterator[Keeper]:
    one = Keeper(folder, engine)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def left(folder: Path, engine: str = ENGINE) -> list[tuple[str, ...]]:
    """What each dead one left; nothing is changed by looking."""
    return [dead.images for dead in dead_ledgers(folder, engine)]


def die(folder: Path, *lines: bytes) -> Path:
    """The file of a process that died having written this."""
    with open_ledger(folder, ENGINE, "run") as ledger:
        path = ledger_path(ledger)
        path.with_suffix(".kept").write_bytes(path.read_bytes() + b"".join(lines))
    return path.with_suffix(".kept").rename(path)


def ledger_path(ledger: FileLedger) -> Path:
    (path,) = (path for path in files(ledger._folder) if path.samefile(ledger._path))
    return path


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.jsonl"))


# --- processes


def test_what_a_killed_process_brought_is_left_to_the_next(tmp_path: Path) -> None:
    with keeper(tmp_path) as other:
        other.do(f"need {A} {B}", f"bring {A}", f"bring {B}", f"bring {C}", f"let_go {A}")
        assert left(tmp_path) == []
        with open_ledger(tmp_path, ENGINE, "run") as own:
            assert [own.is_needed_elsewhere(image) for image in (A, B, C)] == [True, True, False]
            other.kill()
            assert not own.is_needed_elsewhere(A)
            (dead,) = dead_ledgers(tmp_path, ENGINE)
        assert dead.images == (B, C)
    assert left(tmp_path) == [(B, C)]
    for dead in dead_ledgers(tmp_path, ENGINE):
        with dead:
            dead.let_go(C)
    assert left(tmp_path) == [(B,)]
    for dead in dead_ledgers(tmp_path, ENGINE):
        dead.let_go(B)
    assert files(tmp_path) == []


def test_a_process_that_ends_as_it_should_leaves_a_file_only_if_something_is_left(tmp_path: Path) -> None:
    with keeper(tmp_path) as other:
        other.do(f"bring {A}", f"need {B}", f"let_go {A}")
        other.end()
        assert files(tmp_path) == []
    with open_ledger(tmp_path, ENGINE, "run") as own:
        own.bring(A)
        assert left(tmp_path) == []
    assert left(tmp_path) == [(A,)]


def test_a_process_that_is_killed_while_it_writes_leaves_whole_lines(tmp_path: Path) -> None:
    with keeper(tmp_path) as other:
        other.do(f"bring {A}")
        assert other.process.stdin is not None
        other.process.stdin.write(f"bring {B}\nbring {C}\n" * 50)
        other.process.stdin.flush()
        other.kill()
    (images,) = left(tmp_path)
    assert images[0] == A
    assert set(images) <= {A, B, C}


def test_engines_have_files_of_their_own(tmp_path: Path) -> None:
    die(tmp_path, b'{"bring": "x"}\n')
    assert left(tmp_path, "other") == []
    with open_ledger(tmp_path, "other", "run") as own:
        own.need([A])
        with open_ledger(tmp_path, ENGINE, "run") as here:
            assert not here.is_needed_elsewhere(A)


def test_of_many_who_sweep_at_once_each_ledger_goes_to_one(tmp_path: Path) -> None:
    for number in range(20):
        die(tmp_path, b'{"bring": "%d"}\n' % number)
    taken: list[str] = []
    together = Barrier(4)

    def sweep() -> None:
        together.wait()
        for dead in dead_ledgers(tmp_path, ENGINE):
            with dead:
                for image in dead.images:
                    taken.append(image)
                    dead.let_go(image)

    threads = [Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken, key=int) == [str(number) for number in range(20)]
    assert files(tmp_path) == []


def test_a_ledger_that_is_being_swept_is_nobody_elses(tmp_path: Path) -> None:
    die(tmp_path, b'{"bring": "x"}\n')
    for dead in dead_ledgers(tmp_path, ENGINE):
        assert left(tmp_path) == []
        dead.close()
        dead.close()
        assert left(tmp_path) == [("x",)]


@pytest.mark.parametrize("torn", [b"", b'{"bring": "'])
def test_the_claims_of_the_dead_hinder_nobody_who_sweeps(tmp_path: Path, torn: bytes) -> None:
    die(tmp_path, b'{"need": ["x"]}\n{"bring": "x"}\n', torn)
    with open_ledger(tmp_path, ENGINE, "run") as own:
        for dead in dead_ledgers(tmp_path, ENGINE):
            assert dead.images == ("x",)
            assert not own.is_needed_elsewhere("x")


def test_a_new_file_may_be_taken_for_a_dead_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = fcntl.flock, list[str]()

    def sweep_first(fd: int, how: int) -> None:
        if not seen and how & fcntl.LOCK_EX:
            seen.append("held")
            other = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
            real(other, how)
            try:
                real(fd, how)
            finally:
                os.close(other)
        elif seen == ["held"]:
            seen.append("deleted")
            seen.extend(str(images) for images in left(tmp_path))
            real(fd, how)
        else:
            real(fd, how)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    with open_ledger(tmp_path, ENGINE, "run") as own:
        own.bring(A)
        assert seen == ["held", "deleted"]
        assert [A in path.read_text() for path in files(tmp_path)] == [True]


def test_a_new_file_that_somebody_always_has_first_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def held(fd: int, how: int) -> None:
        raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))

    monkeypatch.setattr(fcntl, "flock", held)
    warnings: list[str] = []
    with open_ledger(tmp_path, ENGINE, "run", warn=warnings.append) as own:
        own.bring(A)
    assert ["(Device or resource busy)" in warning for warning in warnings] == [True]


def test_what_everybody_brought_can_be_seen(tmp_path: Path) -> None:
    assert brought(tmp_path, ENGINE) == []
    with open_ledger(tmp_path, ENGINE, "run") as own:
        own.bring(A)
        own.bring(B)
        own.let_go(A)
        assert brought(tmp_path, ENGINE) == [B]
        die(tmp_path, b'{"bring": "x"}\n')
        assert sorted(brought(tmp_path, ENGINE)) == [B, "x"]
    assert left(tmp_path).count(("x",)) == 1


# --- lines


def test_a_file_says_whose_it_is(tmp_path: Path) -> None:
    with open_ledger(tmp_path, ENGINE, "a run \ud800") as own:
        own.need([A, B, A])
        own.need([B])
        own.need([])
        own.bring(A)
        own.bring(A)
        own.let_go(A)
        own.let_go(C)
        (path,) = files(tmp_path)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [
        {"run": "a run \ud800", "engine": ENGINE, "pid": os.getpid()},
        {"need": [A, B]},
        {"bring": A},
        {"let_go": A},
    ]
    assert path.name.startswith(f"{os.getpid()}-")
    assert path.parent.name.startswith("abcd-efgh-")


@pytest.mark.parametrize(
    "torn", [b'{"bring": "b"}', b'{"let_go": "a"', b'{"let_go": "a"}', b"\0\0\0\0", b"\xff", b'{"bring": ["b"]}\n']
)
def test_a_torn_line_and_one_of_no_meaning_count_for_nothing(tmp_path: Path, torn: bytes) -> None:
    die(tmp_path, b'{"bring": "a"}\n[]\n{"let_go": 5}\n{"need": "x"}\n{"need": [[]]}\n\xff\n{"new": 1}\n', torn)
    for dead in dead_ledgers(tmp_path, ENGINE):
        assert dead.images == ("a",)
        dead.let_go("other")
    assert left(tmp_path) == [("a",)]
    for dead in dead_ledgers(tmp_path, ENGINE):
        dead.let_go("a")
    assert left(tmp_path) == []


def test_a_torn_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    die(tmp_path, b'{"bring": "a"}\n{"bring": "b"}\n{"let')
    for dead in dead_ledgers(tmp_path, ENGINE):
        dead.let_go("a")
    assert left(tmp_path) == [("b",)]


def test_what_is_brought_again_is_brought(tmp_path: Path) -> None:
    with open_ledger(tmp_path, ENGINE, "run") as own:
        own.bring(A)
        own.let_go(A)
        own.bring(A)
    assert left(tmp_path) == [(A,)]


def test_claims_are_seen_as_they_come(tmp_path: Path) -> None:
    with open_ledger(tmp_path, ENGINE, "run") as own, open_ledger(tmp_path, ENGINE, "run") as other:
        for number in range(5):
            assert not own.is_needed_elsewhere(str(number))
            other.need([str(number)])
            assert own.is_needed_elsewhere(str(number))
        own.need(["mine"])
        assert not own.is_needed_elsewhere("mine")
        assert own.is_needed_elsewhere("0")


def test_many_claims_are_one_line(tmp_path: Path) -> None:
    with open_ledger(tmp_path, ENGINE, "run") as own, open_ledger(tmp_path, ENGINE, "run") as other:
        own.need([f"docker.io/library/x:{number}" for number in range(10_000)])
        assert other.is_needed_elsewhere("docker.io/library/x:9999")
        assert not other.is_needed_elsewhere("docker.io/library/x:10000")


# --- what hinders


def test_a_folder_that_cannot_be_made_is_told_once_and_hinders_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    with open_ledger(tmp_path / "file", ENGINE, "run", warn=warnings.append) as own:
        own.need([A])
        own.bring(A)
        own.let_go(A)
        own.bring(B)
        assert not own.is_needed_elsewhere(A)
    (warning,) = warnings
    assert "cannot note which container images this run brings (Not a directory)" in warning
    assert "if it is killed, they stay until they are removed by hand" in warning
    assert list(dead_ledgers(tmp_path / "file", ENGINE)) == []


def test_nobody_needs_to_listen(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with open_ledger(tmp_path / "file", ENGINE, "run") as own:
        own.bring(A)


def test_a_full_disk_is_told_once_and_what_could_not_be_written_goes_with_the_next_line(tmp_path: Path) -> None:
    warnings: list[str] = []
    with open_ledger(tmp_path, ENGINE, "run", warn=warnings.append) as own, ExitStack() as stack:
        own.bring(A)
        kept, full = os.dup(own._fd), os.open("/dev/full", os.O_RDWR)
        stack.callback(os.close, kept)
        stack.callback(os.close, full)
        os.dup2(full, own._fd)
        own.bring(B)
        own.let_go(A)
        os.dup2(kept, own._fd)
        (path,) = files(tmp_path)
        assert [warning.partition(" (")[2][:23] for warning in warnings] == ["No space left on device"]
        assert A in path.read_text()
        own.bring(C)
    assert left(tmp_path) == [(B, C)]


def test_half_a_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, warnings = os.write, list[str]()

    def run_full(fd: int, data: memoryview) -> int:
        if len(data) < 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[:10])

    with open_ledger(tmp_path, ENGINE, "run", warn=warnings.append) as own:
        own.bring(A)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", run_full)
            own.bring(B)
        (path,) = files(tmp_path)
        assert path.read_bytes().count(b"\n") == 2
        assert path.read_bytes().endswith(b"\n")
    assert len(warnings) == 1
    assert left(tmp_path) == [(A,)]


def test_a_file_system_without_locks_is_told_and_its_ledgers_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    die(tmp_path, b'{"bring": "x"}\n{"need": ["y"]}\n')

    def no_locks(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    warnings: list[str] = []
    with open_ledger(tmp_path, ENGINE, "run", warn=warnings.append) as own:
        own.bring(A)
        assert own.is_needed_elsewhere("y")
        assert left(tmp_path) == []
    assert [warning.partition(" (")[2].partition(")")[0] for warning in warnings] == ["its file system has no locks"]
    assert len(files(tmp_path)) == 1


def test_what_is_no_ledger_is_left_alone(tmp_path: Path) -> None:
    path = die(tmp_path, b'{"bring": "x"}\n')
    folder = path.parent
    (folder / "note.txt").write_text('{"bring": "y"}\n')
    (folder / "a.jsonl").mkdir()
    (folder / "b.jsonl").symlink_to(folder / "note.txt")
    assert left(tmp_path) == [("x",)]
    with open_ledger(tmp_path, ENGINE, "run") as own:
        assert not own.is_needed_elsewhere("x")
    assert (folder / "b.jsonl").is_symlink()


def test_a_file_that_cannot_be_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = die(tmp_path, b'{"bring": "x"}\n')

    def broken(fd: int, count: int, offset: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", broken)
        assert left(tmp_path) == []
    assert path.exists()
    assert left(tmp_path) == [("x",)]


def test_a_sweep_that_is_given_up_gives_the_ledger_up(tmp_path: Path) -> None:
    die(tmp_path, b'{"bring": "x"}\n')
    before = sorted(os.listdir("/proc/self/fd"))
    sweep = dead_ledgers(tmp_path, ENGINE)
    next(sweep)
    del sweep
    assert left(tmp_path) == [("x",)]
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_the_folder_is_where_a_programs_state_belongs() -> None:
    assert default_folder({"XDG_STATE_HOME": "/state", "HOME": "/h"}) == Path("/state/scavenge/images")
    assert default_folder({"XDG_STATE_HOME": "relative", "HOME": "/h"}) == Path("/h/.local/state/scavenge/images")
    assert default_folder({"HOME": "/h"}) == Path("/h/.local/state/scavenge/images")
    assert default_folder({}).is_absolute()


def test_it_is_what_the_pool_expects(tmp_path: Path) -> None:
    with open_ledger(tmp_path, ENGINE, "run") as own:
        ledger: ImageLedger = own
        assert not ledger.is_needed_elsewhere(A)
