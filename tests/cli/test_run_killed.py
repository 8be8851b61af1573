"""A run that is killed with SIGKILL, its folder damaged, and gone on with: every sample has exactly one result."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from random import Random

import pytest
from run_kit import Folder, row, run_here, started
from told_server import Ask, Reply, Says, Server, answered

COUNT = 80
REFUSED = {"3", "17", "40"}
"""Samples that the server refuses until it is cured."""
TAILS = [b"", b'{"eval":"chat","env_id"', b"\x00\xff\xfe garbage", b'{"a":"\xe2\x80', b"[1, 2]\n", b"\n"]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


class Moody:
    """Answers after a moment, and refuses a few samples until it is cured."""

    def __init__(self) -> None:
        self.cured = False

    def __call__(self, ask: Ask) -> Reply:
        time.sleep(0.01)
        if not self.cured and number_of(ask) in REFUSED:
            return Says(400, b'{"error": {"message": "not this one"}}')
        return answered(ask)


def number_of(ask: Ask) -> str:
    return ask.text.split()[2]


def settled(folder: Folder) -> set[object]:
    """The samples that have an ok line."""
    return {line["example_id"] for line in folder.lines(torn=True) if line["status"] == "ok"}


def test_killed_again_and_again_at_any_moment_a_run_ends_with_one_result_for_every_sample(folder):
    moody, random = Moody(), Random(7)
    folder.dataset(COUNT)
    folder.evaluation('order.by = "file"')
    arguments: tuple[str, ...] = ("run", "eval.toml", "--no-progress")
    done_before: set[object] = set()
    with Server(moody) as server:
        folder.list(row(server, max_concurrent=8))
        for tail in TAILS:
            before = len(server.asks)
            with started(folder, *arguments) as running:
                server.wait_asked(before + random.randint(1, 12))
                running.signal(signal.SIGKILL)
                assert running.wait() == -signal.SIGKILL
            assert done_before.isdisjoint(map(number_of, server.asks[before:]))
            with open(folder.run_dir / "results.jsonl", "ab") as results:
                results.write(tail)
            done_before = settled(folder)
            arguments = ("run", "--resume", str(folder.run_dir), "--no-progress")
        moody.cured = True
        before = len(server.asks)
        done = run_here(folder, *arguments)
        asked = set(map(number_of, server.asks[before:]))
    everything = {str(number) for number in range(COUNT)}
    assert done.returncode == 0, done.stderr
    assert (done_before & asked, done_before | asked) == (set(), everything)
    assert {key[1]: line["status"] for key, line in folder.latest().items()} == dict.fromkeys(everything, "ok")
    assert sum(line["status"] == "ok" for line in folder.lines()) == COUNT
    (figures,) = folder.summary()["evals"]
    assert (figures["ok"], figures["error"], figures["owed"]) == (COUNT, 0, 0)
    assert (figures["mean_reward"], figures["completion_tokens"]) == (1.0, 2 * COUNT)


def test_a_run_that_was_killed_before_its_first_result_is_gone_on_with(folder):
    folder.dataset(3)
    folder.evaluation()
    with Server() as server:
        with started(folder) as running:
            running.wait_told("no such file")
            running.signal(signal.SIGKILL)
            running.wait()
        folder.list(row(server))
        assert run_here(folder, "run", "--resume", str(folder.run_dir)).returncode == 0
    assert len(folder.latest()) == 3


def test_requests_of_all_parts_are_in_the_summary(folder):
    moody = Moody()
    folder.dataset(COUNT)
    folder.evaluation("max_consecutive_failures = 0")
    with Server(moody) as server:
        folder.list(row(server))
        assert run_here(folder).returncode == 1
        first = folder.summary()
        assert (first["evals"][0]["error"], first["endpoints"][0]["requests"]) == (len(REFUSED), COUNT)
        moody.cured = True
        assert run_here(folder, "run", "--resume", str(folder.run_dir)).returncode == 0
    both = folder.summary()
    assert both["endpoints"][0]["requests"] == COUNT + len(REFUSED) == len(server.asks)
    assert both["endpoints"][0]["failures"] == {"rejected": len(REFUSED)}
    assert both["evals"][0]["wall_s"] > first["evals"][0]["wall_s"]
