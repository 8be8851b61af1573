"""This machine is short of something: disk, permissions, file descriptors. It is told, and nobody else is blamed."""

from __future__ import annotations

import json
import resource
import shutil
import threading
from pathlib import Path

import pytest
from run_kit import Folder, resume_arguments, row, run, run_here, started
from told_server import Ask, Reply, Server, answered

LONG = "word " * 200


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def at_length(ask: Ask) -> Reply:
    return f"{LONG}{int(ask.text.split()[2]) + 1}"


def test_a_disk_that_fills_up_ends_the_run_with_nothing_counted_that_is_not_on_it(folder):
    folder.dataset(60)
    folder.evaluation("", ['env_args = { dataset = "data.jsonl", scorer = "numeric" }\nmax_concurrent = 4'])
    with Server(at_length) as server:
        folder.list(row(server))
        done = run(folder, limits=[(resource.RLIMIT_FSIZE, 40_000)])
        assert done.returncode == 1, done.stderr
        assert "results.jsonl: cannot be written: File too large; make room, then resume the run" in done.stderr
        assert "Traceback" not in done.stderr
        on_disk = len(folder.lines())
        assert 0 < on_disk == folder.summary()["evals"][0]["ok"] < 60
        assert (folder.run_dir / "results.jsonl").stat().st_size <= 40_000
        again = run_here(folder, *resume_arguments(done.stderr), "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["evals"][0]["mean_reward"] == 1.0
    assert len(folder.lines()) == len(folder.latest()) == 60


def test_a_disk_with_no_room_for_anything_is_told_before_anybody_is_asked(folder):
    folder.dataset(60)
    folder.evaluation("", ['env_args = { dataset = "data.jsonl", scorer = "numeric" }\nmax_concurrent = 4'])
    with Server(at_length) as server:
        folder.list(row(server))
        done = run(folder, limits=[(resource.RLIMIT_FSIZE, 100)])
        assert done.returncode == 2
        assert "config.toml: cannot be written: File too large" in done.stderr
        assert "Traceback" not in done.stderr
        assert server.asks == []


def test_an_output_folder_that_cannot_be_made_is_told_before_anybody_is_asked(folder):
    folder.dataset(3)
    (folder.path / "occupied").write_text("a file")
    folder.evaluation('output_dir = "occupied/runs"')
    with Server() as server:
        folder.list(row(server))
        done = run_here(folder)
    assert done.returncode == 2
    assert "occupied/runs" in done.stderr
    assert "output_dir" in done.stderr
    assert server.asks == server.probes == []


def test_results_that_became_unwritable_are_told_on_resume(folder):
    folder.dataset(3)
    folder.evaluation()
    with Server() as server:
        folder.list(row(server))
        assert run_here(folder, "run", "eval.toml", "--limit", "1").returncode == 0
        results = folder.run_dir / "results.jsonl"
        results.rename(folder.run_dir / "kept")
        results.mkdir()
        resume = ("run", "--resume", str(folder.run_dir), "--set", "eval.num_examples=-1")
        done = run_here(folder, *resume)
        assert done.returncode == 1
        assert "results.jsonl: " in done.stderr
        assert "Traceback" not in done.stderr
        results.rmdir()
        (folder.run_dir / "kept").rename(results)
        assert run_here(folder, *resume).returncode == 0
    assert len(folder.latest()) == len(server.asks) == 3


def test_an_event_log_that_cannot_be_written_costs_no_result(folder):
    folder.dataset(3)
    folder.evaluation()
    with Server() as server:
        folder.list(row(server))
        assert run_here(folder, "run", "eval.toml", "--limit", "1").returncode == 0
        (folder.run_dir / "events.jsonl").unlink()
        (folder.run_dir / "events.jsonl").mkdir()
        done = run_here(folder, "run", "--resume", str(folder.run_dir), "--set", "eval.num_examples=-1")
    assert done.returncode == 0
    assert done.stderr.count("events are not recorded") == 1
    assert len(folder.latest()) == 3


def test_few_descriptors_for_many_slots_cost_time_and_nobody_is_ejected(folder):
    folder.dataset(400)
    folder.evaluation("", ["max_retries = 0"])
    short = threading.Event()

    def unhurriedly(ask: Ask) -> Reply:
        short.wait(1.0)  # until there are no more descriptors, so that they run out however slowly they are taken
        return answered(ask)

    many = ["--set", 'admission.policy="fixed"']  # as many as the rows allow, at once
    arguments = ("run", "eval.toml", "--log-level", "debug", *many)
    with Server(unhurriedly) as one, Server(unhurriedly) as two:
        folder.list(row(one, max_concurrent=100), row(two, max_concurrent=100))
        with started(folder, *arguments, limits=[(resource.RLIMIT_NOFILE, 64)]) as running:
            running.wait_told("Too many open files")
            short.set()
            assert running.wait() == 0, running.told[-3000:]
    assert " is ejected" not in running.told
    assert len(folder.lines()) == len(folder.latest()) == 400
    assert one.peak + two.peak < 64
    assert "Traceback" not in running.told


def test_a_run_folder_that_is_deleted_under_a_run_ends_it_instead_of_losing_every_further_result(folder):
    folder.dataset(100_000)
    folder.evaluation()
    with Server(answered) as server:
        folder.list(row(server, max_concurrent=2))
        with started(folder) as running:
            server.wait_asked(10)
            shutil.rmtree(folder.run_dir)
            assert running.wait() == 1
    assert "results.jsonl: was deleted" in running.told
    assert "Traceback" not in running.told
