"""``scavenge report``: the page of a run that was, of one that goes on, and of folders that are no run's."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from run_kit import Folder, Running, command, row, run, run_here, started
from told_server import Ask, Reply, Server, answered


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run that ended well."""
    folder = Folder(tmp_path_factory.mktemp("played"))
    folder.dataset(12)
    folder.evaluation()
    with Server() as one, Server() as two:
        folder.list(row(one), row(two))
        assert run_here(folder).returncode == 0
    return folder.run_dir


@pytest.fixture
def run_dir(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "runs" / "eval-1"))


def report(*arguments: str | Path, cwd: Path = Path()) -> subprocess.CompletedProcess[str]:
    return run_here(Folder(cwd), "report", *map(str, arguments))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_page_is_in_the_folder_its_path_on_standard_output_and_all_else_as_it_was(run_dir):
    before = content(run_dir)
    done = subprocess.run(command("report", str(run_dir)), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{run_dir}/report.html\n", "")
    after = content(run_dir)
    page = after.pop("report.html").decode()
    assert after == before
    for part in ("<h1>eval-1</h1>", "evaluations", "Rollouts finished", "Tokens per second", "Limits", "Endpoints"):
        assert part in page
    assert "left out" not in page


def test_the_page_can_be_elsewhere_and_an_old_one_is_replaced(run_dir, tmp_path):
    (tmp_path / "page.html").write_text("old")
    done = report("runs/eval-1", "--output", "page.html", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "page.html\n")
    first = (tmp_path / "page.html").read_bytes()
    assert first.startswith(b"<!DOCTYPE html>")
    assert report("runs/eval-1", "--output", "page.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "page.html").read_bytes() == first
    assert not (run_dir / "report.html").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def wait_written(path: Path, what: bytes, running: Running) -> None:
    """Wait until a file has some bytes, for as long as the run goes on."""
    while not (path.exists() and what in path.read_bytes()):
        assert running.process.poll() is None
        time.sleep(0.01)


def test_a_run_that_goes_on_has_a_report_too(tmp_path):
    folder = Folder(tmp_path)
    folder.dataset(200)
    folder.evaluation()
    go_on = threading.Event()

    def held_up(ask: Ask) -> Reply:
        if ask.number > 20:
            go_on.wait()
        return answered(ask)

    with Server(held_up) as server:
        folder.list(row(server, max_concurrent=4))
        with started(folder) as running:
            server.wait_asked(22)
            wait_written(folder.run_dir / "events.jsonl", b"RolloutFinished", running)
            done = run(folder, "report", str(folder.run_dir))
            go_on.set()
    assert done.returncode == 0, done.stderr
    page = (folder.run_dir / "report.html").read_text()
    assert "There is no summary.json that can be read" in page
    assert "Rollouts finished" in page


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"evals": 3}', b"\x00"])
def test_a_summary_that_cannot_be_read_is_said_on_the_page(run_dir, content):
    (run_dir / "summary.json").write_bytes(content)
    assert report(run_dir).returncode == 0
    page = (run_dir / "report.html").read_text()
    assert "so the tables that it ends with are missing" in page


def test_garbage_among_the_events_is_counted_and_the_rest_is_shown(run_dir):
    with (run_dir / "events.jsonl").open("ab") as file:
        file.write(
            b'\n\x00\xff\n{"time": 3, "event": []}\n{"event": "AttemptEnded", "time": "2030-01-01T00:00:00Z"}\n{"a'
        )
    done = report(run_dir)
    assert (done.returncode, done.stderr) == (0, "")
    page = (run_dir / "report.html").read_text()
    assert "left out: 3." in page
    assert "The last line is not whole" in page


def spoil(run_dir: Path, how: str) -> None:
    events = run_dir / "events.jsonl"
    match how:
        case "absent":
            shutil.rmtree(run_dir)
        case "a file":
            shutil.rmtree(run_dir)
            run_dir.write_text("")
        case "no events":
            events.unlink()
        case "nothing":
            shutil.rmtree(run_dir)
            run_dir.mkdir()
        case "empty":
            events.write_bytes(b"")
        case "garbage":
            events.write_bytes(os.urandom(5000))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("absent", "no such folder; name the folder of a run"),
        ("a file", "not a folder; name the folder of a run"),
        ("no events", "has no events.jsonl yet; wait"),
        ("nothing", "not a run folder; name one of those"),
        ("empty", "has no event that can be used; wait"),
        ("garbage", "has no event that can be used; wait"),
    ],
)
def test_what_is_no_run_with_events_is_exit_code_2_with_the_place_and_what_to_do(run_dir, how, says):
    spoil(run_dir, how)
    done = report(run_dir)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"scavenge: {run_dir}" in done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not run_dir.is_dir() or not (run_dir / "report.html").exists()


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("runs/eval-1/results.jsonl", "ends in .html"),
        ("link.html", "which leads to"),
        ("absent/page.html", "make it first"),
        ("folder.html", "is not a file"),
        ("/dev/stdout", "ends in .html"),
    ],
)
def test_a_page_never_takes_the_place_of_what_is_none(run_dir, tmp_path, output, says):
    (tmp_path / "link.html").symlink_to(run_dir / "results.jsonl")
    (tmp_path / "folder.html").mkdir()
    before = content(run_dir)
    done = report("runs/eval-1", "--output", output, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert content(run_dir) == before


def test_a_page_that_cannot_be_written_is_told_with_the_way_out(run_dir):
    done = report(run_dir, "--output", "/proc/page.html")
    assert done.returncode == 1
    assert "/proc/page.html: cannot be written" in done.stderr
    assert "--output" in done.stderr


def test_an_event_log_that_is_a_pipe_is_refused_without_waiting(run_dir):
    (run_dir / "events.jsonl").unlink()
    os.mkfifo(run_dir / "events.jsonl")
    done = report(run_dir)
    assert done.returncode == 1
    assert "is not a file of lines" in done.stderr


def test_without_plotly_the_command_says_how_to_get_it(run_dir, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['plotly'] = None\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    wanted = command("report", str(run_dir))
    done = subprocess.run(wanted, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 2
    assert "pip install 'scavenge[report]'" in done.stderr
