"""Several evaluations and several servers in one run, and what the summary makes of them."""

from __future__ import annotations

import itertools
import json
import threading
import time
from pathlib import Path

import pytest
from run_kit import Folder, row, run_here, started
from told_server import Ask, Raw, Reply, Server, answered


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def after_a_moment(ask: Ask) -> Reply:
    time.sleep(0.02)
    return answered(ask)


def test_two_evaluations_on_one_pool_share_its_slots_and_keep_their_results_apart(folder):
    folder.dataset(20)
    folder.dataset(12, "other.jsonl")
    folder.evaluation("", ['name = "a"', 'name = "b"\nenv_args = { dataset = "other.jsonl" }'])
    with Server(after_a_moment) as one, Server(after_a_moment) as two:
        folder.list(row(one, max_concurrent=3), row(two, max_concurrent=2))
        done = run_here(folder, "run", "eval.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert (one.peak, two.peak) == (3, 2)
    keys = [key[:2] for key in folder.latest()]
    assert len(folder.lines()) == len(keys) == 32
    assert {(line["eval"], line["ok"]) for line in json.loads(done.stdout)["evals"]} == {("a", 20), ("b", 12)}


def test_two_evaluations_on_two_pools_ask_only_their_own_servers(folder):
    folder.dataset(10)
    evals = ['name = "a"\nendpoint_id = "x"', 'name = "b"\nendpoint_id = "y"\nsampling_args = { temperature = 0 }']
    folder.evaluation("", evals)
    with Server() as one, Server(model="n") as two:
        folder.list(row(one, endpoint_id="x"), row(two, endpoint_id="y", model="n"))
        assert run_here(folder).returncode == 0
        assert {(ask.body["model"], ask.body.get("temperature")) for ask in one.asks} == {("m", None)}
        assert {(ask.body["model"], ask.body.get("temperature")) for ask in two.asks} == {("n", 0)}
        assert len(one.asks) == len(two.asks) == 10
    assert {(line["eval"], line["attempts"][0]["endpoint"]) for line in folder.lines()} == {
        ("a", one.url),
        ("b", two.url),
    }


def test_unequal_caps_are_filled_and_never_passed(folder):
    folder.dataset(40)
    folder.evaluation()
    go = threading.Event()

    def answer(ask: Ask) -> Reply:
        go.wait()
        return answered(ask)

    with Server(answer) as big, Server(answer) as small:
        folder.list(row(big, max_concurrent=4), row(small, max_concurrent=1))
        with started(folder) as running:
            big.wait_asked(4)
            small.wait_asked(1)
            go.set()
            assert running.wait() == 0
    assert (big.peak, small.peak) == (4, 1)
    assert len(folder.lines()) == 40


def test_rollouts_of_an_example_are_results_of_their_own_and_the_summary_has_pass_at_k(folder):
    folder.dataset(4)
    folder.evaluation("", ["rollouts_per_example = 3"])
    seen: dict[str, int] = {}
    lock = threading.Lock()
    right = {"0": 3, "1": 0, "2": 1, "3": 2}

    def answer(ask: Ask) -> Reply:
        number = ask.text.split()[2]
        with lock:
            seen[number] = seen.get(number, 0) + 1
            return answered(ask) if seen[number] <= right[number] else "wrong"

    with Server(answer) as server:
        folder.list(row(server))
        done = run_here(folder)
    assert done.returncode == 0, done.stderr
    assert set(folder.latest()) == {("chat", str(n), rollout) for n in range(4) for rollout in range(3)}
    (figures,) = folder.summary()["evals"]
    assert figures["mean_reward"] == pytest.approx(6 / 12)
    expected = {"1": (1 + 0 + 1 / 3 + 2 / 3) / 4, "2": (1 + 0 + 2 / 3 + 1) / 4, "3": 3 / 4}
    assert figures["pass_at_k"] == pytest.approx(expected)
    assert "pass@" in done.stdout


def test_a_server_killed_over_eight_requests_costs_them_nothing_and_the_other_keeps_its_cap(folder):
    folder.dataset(60)
    folder.evaluation("", ["max_retries = 0"])
    go = threading.Event()
    cut = Raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 900\r\n\r\ndata: ", reset=True)

    asked = itertools.count()

    def dies(ask: Ask) -> Reply:
        if next(asked) < 8:  # so that it opens up for eight at once
            return after_a_moment(ask)
        go.wait()
        return cut

    def waits(ask: Ask) -> Reply:
        go.wait()  # so that not all are done before the first is asked, however late it is let in
        return after_a_moment(ask)

    with Server(dies) as dying, Server(waits) as other:
        folder.list(row(dying, max_concurrent=8), row(other, max_concurrent=8))
        with started(folder) as running:
            dying.wait_asked(16)
            dying.probe_reply = Raw(b"", reset=True)
            go.set()
            assert running.wait() == 0, running.told
    lines = folder.lines()
    assert len(lines) == len(folder.latest()) == 60
    assert other.peak <= 8
    moved = [[attempt["endpoint"] for attempt in line["attempts"]] for line in lines if len(line["attempts"]) > 1]
    assert moved == [[dying.url, other.url]] * 8
    (figures,) = [line for line in folder.summary()["endpoints"] if line["url"] == dying.url]
    assert (figures["requests"], figures["failures"]) == (16, {"lost": 8})
