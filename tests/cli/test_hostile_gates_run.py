"""Whole runs, with each admission policy, against a server that refuses what is too much and asks for no patience."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import attrs
import pytest
from run_kit import Folder, row, run_here
from told_server import Ask, Reply, Says, Server, answered

POLICIES = ["tide", "gradient2", "aimd", "pi", "fixed"]
ALLOWED = 3
SAMPLES = 30


def folder_of(path: Path, policy: str) -> Folder:
    folder = Folder(path)
    folder.dataset(SAMPLES)
    folder.evaluation("stall_timeout = 20", ("max_concurrent = 12",))
    limit = "limit = 12\n" if policy == "fixed" else ""
    with (path / "eval.toml").open("a") as file:
        file.write(f'\n[admission]\npolicy = "{policy}"\n{limit}')
    return folder


@attrs.define(eq=False)
class Refusing:
    """Refuses at once whatever is beyond ALLOWED in flight, and says when to come back."""

    retry_after: str
    busy: int = 0
    refused: int = 0
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def __call__(self, ask: Ask) -> Reply:
        with self.lock:
            if self.busy >= ALLOWED:
                self.refused += 1
                return Says(429, b'{"error": {"message": "too many"}}', {"retry-after": self.retry_after})
            self.busy += 1
        try:
            time.sleep(0.01)  # the server's own work; nothing is decided by how long it takes
            return answered(ask)
        finally:
            with self.lock:
                self.busy -= 1


@pytest.mark.parametrize(("policy", "retry_after"), [*((policy, "0") for policy in POLICIES), ("tide", "nan")])
def test_a_server_that_refuses_what_is_beyond_three_is_asked_seldom_and_answers_all(tmp_path, policy, retry_after):
    folder = folder_of(tmp_path, policy)
    answer = Refusing(retry_after)
    with Server(answer) as server:
        folder.list(row(server))
        done = run_here(folder)
    assert done.returncode == 0, done.stderr
    assert sorted(int(key[1]) for key in folder.latest()) == list(range(SAMPLES))
    assert len(folder.lines()) == SAMPLES
    assert answer.refused <= 10 * SAMPLES
