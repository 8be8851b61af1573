"""How a run ends, what may change between its parts, and who may go on with it."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from run_kit import Folder, resume_arguments, row, run, run_here, started
from told_server import Ask, Reply, Says, Server, answered


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_everything_that_is_wrong_is_told_at_once_and_nothing_is_made(folder, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    folder.dataset(2)
    folder.list(
        row("http://a:1/v1", max_concurrent=True),
        row("ftp://b/v1"),
        row("http://c/v1", key="NO_SUCH_KEY"),
        row("http://d/v1", max_concurrrent=3),
    )
    (folder.path / "eval.toml").write_text(
        'endpoints_path = "endpoints.toml"\nstall_timeoot = 3\nelastic_poll_interval = 0\n'
        '[admission]\npolicy = "fixt"\n'
        '[[eval]]\nenv_id = "chat"\nendpoint_id = "pool"\nmax_retries = "three"\n'
        '[[eval]]\nenv_id = "chat"\nname = "b"\nendpoint_id = "pool"\nenv_args = { dataset = "data.jsonl" }\n'
    )
    done = run_here(folder)
    assert (done.returncode, done.stdout) == (2, "")
    for place in ("stall_timeoot", "elastic_poll_interval", "eval[0].max_retries"):
        assert place in done.stderr
    text = (folder.path / "eval.toml").read_text()
    text = text.replace("stall_timeoot = 3\nelastic_poll_interval = 0\n", "").replace('max_retries = "three"\n', "")
    (folder.path / "eval.toml").write_text(text)
    done = run_here(folder)
    assert (done.returncode, done.stdout) == (2, "")
    for place in (*(f"endpoint[{number}]" for number in range(4)), "NO_SUCH_KEY", "fixt", "eval[0].env_args"):
        assert place in done.stderr, place
    assert "Traceback" not in done.stderr
    assert not (folder.path / "runs").exists()


def test_one_failed_sample_is_1_and_the_told_command_makes_it_0(folder):
    folder.dataset(5)
    folder.evaluation()
    cured: list[bool] = []

    def answer(ask: Ask) -> Reply:
        return answered(ask) if cured or not ask.text.startswith("What is 2 ") else Says(422, b'{"detail": "no"}')

    with Server(answer) as server:
        folder.list(row(server))
        first = run_here(folder)
        assert first.returncode == 1
        assert "1 of 5 samples failed" in first.stderr
        cured.append(True)
        again = run_here(folder, *resume_arguments(first.stderr), "--json")
        assert again.returncode == 0
        assert json.loads(again.stdout)["evals"][0]["ok"] == 5
        assert len(server.asks) == 6


def test_a_complete_run_is_gone_on_with_at_once_and_nobody_is_asked(folder):
    folder.dataset(4)
    folder.evaluation()
    with Server() as server:
        folder.list(row(server))
        assert run_here(folder).returncode == 0
    again = run_here(folder, "run", "--resume", str(folder.run_dir), "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["evals"][0]["ok"] == 4
    assert len(folder.lines()) == len(server.asks) == 4


def test_what_changes_results_may_not_change_and_the_rest_may(folder):
    folder.dataset(4)
    folder.dataset(4, "other.jsonl")
    one_server = 'model = "m"\napi_base_url = "{}"'
    with Server() as server, Server() as other:
        folder.evaluation("", ["sampling_args = { temperature = 0.5 }"], one_server.format(server.url))
        assert run_here(folder, "run", "eval.toml", "--limit", "2").returncode == 0
        resume = ("run", "--resume", str(folder.run_dir))
        before = (folder.run_dir / "results.jsonl").read_bytes()
        for change in (
            'eval.model="n"',
            "eval.sampling_args.temperature=0.7",
            'eval.sampling_args.stop="x"',
            'eval.env_args.dataset="other.jsonl"',
            'eval.env_args.system="be brief"',
        ):
            done = run_here(folder, *resume, "--set", change)
            key = change.partition("=")[0].removeprefix("eval.")
            assert done.returncode == 2, change
            assert f"eval 'chat': {key}: " in done.stderr
        assert (folder.run_dir / "results.jsonl").read_bytes() == before
        changes = [f'eval.api_base_url="{other.url}"', "eval.max_concurrent=1", "eval.request_timeout=9"]
        changes += ["eval.max_retries=0", "eval.num_examples=-1", "stall_timeout=77"]
        done = run_here(folder, *resume, *(word for change in changes for word in ("--set", change)))
        assert done.returncode == 0, done.stderr
        assert (len(server.asks), len(other.asks)) == (2, 2)
    assert len(folder.latest()) == 4


def test_a_second_process_is_refused_while_the_first_one_runs_and_changes_nothing(folder):
    folder.dataset(3)
    folder.evaluation()
    go = threading.Event()

    def answer(ask: Ask) -> Reply:
        go.wait()
        return answered(ask)

    with Server(answer) as server:
        folder.list(row(server))
        with started(folder) as running:
            server.wait_asked(3)
            second = run(folder, "run", "--resume", str(folder.run_dir))
            assert second.returncode == 2
            assert f"pid {running.process.pid}" in second.stderr
            assert len(server.asks) == 3
            go.set()
            assert running.wait() == 0
    assert len(folder.lines()) == 3


def test_no_usable_endpoint_is_4_and_the_told_command_goes_on(folder):
    folder.dataset(3)
    folder.evaluation("stall_timeout = 0.3")
    folder.list()
    first = run_here(folder)
    assert first.returncode == 4
    assert "no endpoint is listed" in first.stderr
    with Server() as server:
        folder.list(row(server))
        again = run_here(folder, *resume_arguments(first.stderr))
    assert again.returncode == 0, again.stderr
    assert len(folder.lines()) == 3


def test_a_circuit_that_broke_is_3_and_what_failed_is_asked_again(folder):
    folder.dataset(12)
    folder.evaluation("max_consecutive_failures = 4")
    cured: list[bool] = []
    with Server(lambda ask: answered(ask) if cured else Says(400, b"{}")) as server:
        folder.list(row(server, max_concurrent=1))
        first = run_here(folder)
        assert first.returncode == 3
        assert len(folder.lines()) >= 4
        cured.append(True)
        assert run_here(folder, *resume_arguments(first.stderr)).returncode == 0
    assert {line["status"] for line in folder.latest().values()} == {"ok"}
    assert len(folder.latest()) == 12


@pytest.mark.parametrize(("flags", "code"), [((), 2), (("--allow-empty",), 0)])
def test_no_sample_at_all(folder, flags, code):
    folder.dataset(0)
    folder.evaluation()
    with Server() as server:
        folder.list(row(server))
        assert run_here(folder, "run", "eval.toml", *flags).returncode == code


def test_an_id_that_nobody_has_is_2_with_the_nearest_one_unless_it_may_still_come(folder):
    folder.dataset(2)
    folder.evaluation("stall_timeout = 0.3")
    with Server() as server:
        folder.list(row(server, endpoint_id="pool-a"))
        done = run_here(folder, "run", "eval.toml", "--set", "elastic=false")
        assert done.returncode == 2
        assert "did you mean 'pool-a'" in done.stderr
        assert not list((folder.path / "runs").iterdir())
        done = run_here(folder)
        assert done.returncode == 4
        assert "'pool-a'" in done.stderr
