"""A worker process from its start to its end: loading, what it is told of as broken, beats, signals, stopping."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from worker_child_kit import FOLDER, Child, open_child

from scavenge.core.worker_messages import Abort, Beat, Broken, Load, Played, ReadRows, Ready, Rows, Stop
from scavenge.errors import Problem

TROUBLES = ["Trouble", "AsyncioTrouble", "MainTrouble"]


@pytest.fixture
def child(tmp_path: Path):
    with open_child(tmp_path) as started:
        yield started


def trouble(kind: str) -> str:
    return f'trouble = "{kind}"'


@pytest.mark.parametrize(("name", "backend"), [("OnTrio", "trio"), ("OnAsyncio", "asyncio"), ("OnMain", "sync")])
def test_a_worker_is_ready_once_its_environment_is_open(child: Child, name: str, backend: str):
    assert child.load(name) == Ready(backend, multi_turn=name != "OnTrio")
    child.say(Stop())
    assert child.wait_end() == 0


def test_a_worker_says_what_its_results_depend_on(child: Child):
    assert child.load("Trouble", trouble("none")) == Ready("trio", False, {"digest": "abc", "rows": 10})


def test_an_environment_of_a_plugin_is_loaded_by_its_name(child: Child, tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text('{"question": "1+1?", "answer": "2", "id": "a"}\n')
    ready = child.load("chat", f'dataset = "{tmp_path}/rows.jsonl"')
    assert isinstance(ready, Ready)
    child.say(ReadRows(0, 5))
    assert [row.id for row in child.hear_a(Rows).examples] == ["a"]


@pytest.mark.parametrize(
    ("name", "env_args", "message", "traceback"),
    [
        ("Trouble", trouble("make"), "LookupError: cannot be made (worker_child_envs.py, line ", True),
        ("Trouble", trouble("exit in make"), "SystemExit: 0", True),
        ("Trouble", trouble("identity"), "cannot say what its results depend on: LookupError: cannot say (w", True),
        ("Trouble", trouble("odd identity"), "cannot say what its results depend on: TypeError", True),
        ("Trouble", trouble("open"), "cannot be opened: LookupError: cannot be opened (worker_child_envs.py", True),
        ("Trouble", trouble("exit in open"), "cannot be opened: SystemExit: 0 (worker_child_envs.py", True),
        ("AsyncioTrouble", trouble("open"), "cannot be opened: LookupError: cannot be opened (worker_chi", True),
        ("AsyncioTrouble", trouble("exit in open"), "cannot be opened: SystemExit: 0 (worker_child_envs", True),
        ("MainTrouble", trouble("open"), "cannot be opened: LookupError: cannot be opened (worker_child_", True),
        ("MainTrouble", trouble("exit in open"), "cannot be opened: SystemExit: 0 (worker_child_envs.py", True),
        ("Trouble", "truble = 3", "eval.toml: eval[0].env_args.truble: unknown key", False),
        ("no_such_module:Thing", "", 'eval.toml: eval[0].env_id: no module "no_such_module"', True),
        ("Trouble", "trouble = ", "cannot be made: DocumentError: line 1", True),
    ],
)
def test_an_environment_that_cannot_be_loaded_is_told(
    child: Child, name: str, env_args: str, message: str, traceback: bool
):
    broken = child.load(name, env_args)
    assert isinstance(broken, Broken)
    assert message in broken.message
    assert "\n" not in broken.message
    assert child.wait_end() == 1
    assert ("Traceback" in child.printed()) == traceback


def test_the_problems_of_the_file_are_told_one_by_one(child: Child):
    broken = child.load("Trouble", "other = 1")
    assert isinstance(broken, Broken)
    assert [problem.where for problem in broken.problems] == [
        "eval.toml: eval[0].env_args.other", "eval.toml: eval[0].env_args.trouble",
    ]  # fmt: skip
    assert isinstance(broken.problems[0], Problem)


def test_a_worker_whose_loop_is_blocked_is_heard_all_the_same(child: Child, tmp_path: Path):
    child.load("OnTrio")
    child.play(1, do="block", until=f"{tmp_path}/over")
    while child.hear_beat().loop_late_s < 1.5:
        pass
    (tmp_path / "over").touch()
    assert child.hear_a(Played).rollout == 1


def test_a_worker_without_a_loop_is_heard_too(child: Child):
    child.load("OnMain")
    assert child.hear_beat() == Beat(0.0)


@pytest.mark.parametrize("busy", [None, "wait", "block"])
def test_a_worker_ends_when_the_run_is_gone(child: Child, busy: str | None):
    child.load("OnTrio")
    if busy is not None:
        child.play(1, do=busy, until="/nowhere")
    child.hang_up()
    assert child.process.wait(60) == 1


def test_a_worker_that_nobody_loads_ends_when_the_run_is_gone(child: Child):
    child.hang_up()
    assert child.process.wait(60) == 1


@pytest.mark.parametrize("data", [b"\x01\xff\xff\xff\xff", b"\x02", b"\x01\x00\x00\x00\x02{}"])
def test_a_run_that_talks_nonsense_is_left(child: Child, data: bytes):
    child.load("OnTrio")
    child.write(data)
    assert child.wait_end() == 70
    assert "the conversation with the run has ended" in child.printed()


def test_a_run_that_does_not_begin_with_the_environment_is_left(child: Child):
    child.say(Abort(1))
    assert child.wait_end() == 70
    assert "the run began with Abort" in child.printed()


@pytest.mark.parametrize("name", TROUBLES)
def test_an_environment_is_closed_at_a_stop(child: Child, name: str):
    child.load(name, trouble("none"))
    child.say(Load("again", "", ".", "nowhere"))
    child.say(Stop())
    assert child.wait_end() == 0
    assert "closing\n" in child.printed()
    assert "asked to load again; left alone" in child.printed()


@pytest.mark.parametrize("name", TROUBLES)
def test_an_environment_that_fails_to_close_is_noted(child: Child, name: str):
    child.load(name, trouble("close"))
    child.say(Stop())
    assert child.wait_end() == 0
    assert "LookupError: cannot be closed" in child.printed()
    assert "close() failed" in child.printed()


@pytest.mark.parametrize("name", TROUBLES)
def test_an_environment_that_closes_for_ever_is_left(child: Child, name: str):
    child.load(name, trouble("long close"))
    child.say(Stop())
    assert child.wait_end() == 0
    assert "close() took more than 2 s" in child.printed()


@pytest.mark.parametrize("name", TROUBLES)
def test_a_stop_ends_a_worker_that_is_opening(child: Child, name: str):
    child.say(Load(f"worker_child_envs:{name}", trouble("long open"), str(FOLDER), "eval.toml: eval[0]"))
    child.wait_printed("opening")
    child.say(Stop())
    assert child.wait_end() == 0
    assert "closing" not in child.printed()


@pytest.mark.parametrize("name", TROUBLES)
def test_sigterm_is_a_stop_and_sigint_is_nothing(child: Child, name: str):
    child.load(name, trouble("none"))
    child.process.send_signal(signal.SIGINT)
    child.play(1, do="print")
    assert child.hear_a(Played).rollout == 1
    child.process.send_signal(signal.SIGTERM)
    assert child.wait_end() == 0
    assert "closing" in child.printed()


def test_foreign_processes_have_their_signals_and_none_of_the_workers_descriptors(child: Child, tmp_path: Path):
    assert isinstance(child.load("OnMain"), Ready)
    child.play(1, do="signals")
    result = child.hear_a(Played).result
    assert result.completion == {"forked": -signal.SIGTERM, "started": -signal.SIGINT, "descriptors": []}


def test_a_worker_started_by_hand_says_that_it_is_none():
    ended = subprocess.run([sys.executable, "-m", "scavenge.worker"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "started by a run, not by hand" in ended.stderr


def test_files_of_the_current_folder_are_no_modules_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in ("queue", "select", "trio"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('taken for another')")
    monkeypatch.chdir(tmp_path)
    with open_child(tmp_path) as child:
        assert isinstance(child.load("OnTrio"), Ready)


@pytest.mark.parametrize(("name", "absent"), [("OnTrio", "asyncio"), ("OnAsyncio", "trio"), ("OnMain", "asyncio")])
def test_only_what_the_backend_needs_is_imported(tmp_path: Path, name: str, absent: str):
    backend = {"OnTrio": "trio", "OnAsyncio": "asyncio", "OnMain": "sync"}[name]
    (tmp_path / "lean.py").write_text(
        "import sys\nfrom scavenge import Environment, Example, Rollout\n"
        f"class Lean(Environment):\n    backend = {backend!r}\n"
        "    def examples(self): return [Example('1', {'has': sorted(sys.modules)})]\n"
        f"    {'' if name == 'OnMain' else 'async '}def play(self, example, model): ...\n"
    )
    with open_child(tmp_path) as child:
        child.say(Load("lean:Lean", "", str(tmp_path), "eval.toml: eval[0]"))
        assert isinstance(child.hear(), Ready)
        child.say(ReadRows(0, 1))
        modules = child.hear_a(Rows).examples[0].data["has"]
        assert not {absent, "httpx", "scavenge.plugins.manager"} & set(modules)  # type: ignore[call-overload]
