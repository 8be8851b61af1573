"""``scavenge run`` with environments in worker processes, as a user has them: files, exit codes, leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_kit import Folder, Running, row, run, run_here, started
from told_server import Server, answered

from scavenge.core.redaction import HIDDEN

ENVIRONMENTS = '''
import asyncio, os, signal, time
from pathlib import Path
import trio
from scavenge import Environment, Example, Rollout

class Base(Environment):
    in_worker = True

    def __init__(self, count: int = 12, slow: float = 0.0) -> None:
        Path(f"made-{os.getpid()}").touch()
        self.count, self.slow = count, slow

    def examples(self):
        for number in range(self.count):
            yield Example(id=str(number), data={"question": f"What is {number} + 1 ?"})

    def identity(self):
        return {"digest": Path("digest").read_text() if Path("digest").exists() else "none"}

    def rollout(self, example, reply):
        right = str(int(example.id) + 1) in reply.text.split()
        return Rollout(reply.text, float(right), info={"pid": os.getpid()})

def asked(example):
    return [{"role": "user", "content": example.data["question"]}]

class OnTrio(Base):
    async def play(self, example, model):
        await trio.sleep(self.slow)
        return self.rollout(example, await model.chat(asked(example)))

class OnAsyncio(Base):
    backend = "asyncio"

    async def play(self, example, model):
        await asyncio.sleep(self.slow)
        return self.rollout(example, await model.chat(asked(example)))

class Plain(Base):
    backend = "sync"

    def play(self, example, model):
        time.sleep(self.slow)
        print("played", example.id)
        return self.rollout(example, model.chat(asked(example)))

class Foreign(Base):
    """Asks by hand, as a foreign client would."""
    backend = "sync"

    def play(self, example, model):
        import httpx
        reply = httpx.post(model.base_url + "/chat/completions", json={"model": "any", "messages": asked(example)},
                           headers={"authorization": "Bearer " + model.api_key}, trust_env=False)
        message = reply.raise_for_status().json()["choices"][0]["message"]["content"]
        return Rollout(message, 1.0, info={"key": model.api_key})

class Here(Foreign):
    """The same in the run's own process."""
    in_worker, backend = False, "trio"

    async def play(self, example, model):
        return await trio.to_thread.run_sync(Foreign.play, self, example, model)

class Broken(Base):
    async def open(self):
        print("no such device: gpu0")
        os._exit(7)

    async def play(self, example, model): ...

class Wrong(Base):
    def __init__(self, count: int = 1) -> None:
        if count < 0:
            raise ValueError("count must not be negative")

    async def play(self, example, model): ...
'''


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "mine.py").write_text(ENVIRONMENTS)
    return Folder(tmp_path)


def evaluate(folder: Folder, *classes: str, keys: str = "", args: str = "") -> None:
    evals = [f'env_id = "mine:{name}"\nendpoint_id = "pool"\nenv_args = {{ {args} }}\n' for name in classes]
    head = 'endpoints_path = "endpoints.toml"\nelastic = true\nelastic_poll_interval = 0.1\n'
    (folder.path / "eval.toml").write_text(head + "".join(f"[[eval]]\n{one}" for one in evals) + keys)


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def workers_of(running: Running) -> list[int]:
    """The processes of the run's workers that it has told of."""
    told = [line for line in running.lines if "is ready after" in line]
    return [int(line.rpartition("(process ")[2].rstrip().rstrip(")")) for line in told]


def made(folder: Folder) -> set[int]:
    """The processes in which an environment was made."""
    return {int(path.name.removeprefix("made-")) for path in folder.path.glob("made-*")}


def wait_until(condition, what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)


def test_environments_of_every_backend_are_played_in_workers_and_made_nowhere_else(folder):
    with Server(answered) as server:
        folder.list(row(server))
        evaluate(folder, "OnTrio", "OnAsyncio", "Plain")
        done = run(folder)
    assert done.returncode == 0, done.stderr
    lines = folder.lines()
    assert len({(line["eval"], line["example_id"]) for line in lines}) == len(lines) == 36
    assert all(line["reward"] == 1.0 and len(line["attempts"]) == 1 for line in lines)
    players = {line["info"]["pid"] for line in lines}
    assert players <= made(folder)
    assert len(players) >= 3
    logs = "".join(path.read_text() for path in (folder.run_dir / "logs").iterdir())
    assert logs.count("played ") == 12
    wait_until(lambda: not any(map(is_alive, made(folder))), "workers are left")


@pytest.mark.parametrize("name", ["Foreign", "Here"])
def test_a_foreign_client_finds_the_model_by_its_address_and_the_key_is_in_no_file(folder, name):
    with Server(answered) as server:
        folder.list(row(server))
        evaluate(folder, name)
        done = run(folder)
        assert done.returncode == 0, done.stderr
        assert len(server.asks) == 12
    assert {line["info"]["key"] for line in folder.lines()} == {HIDDEN}


def test_a_run_that_is_killed_leaves_no_worker_and_goes_on_where_it_was(folder):
    with Server(answered) as server:
        folder.list(row(server))
        evaluate(folder, "Plain", args="count = 30, slow = 0.1", keys="[workers]\nmin = 2\n")
        with started(folder) as running:
            server.wait_asked(6)
            running.signal(signal.SIGKILL)
            running.wait()
            workers = made(folder)
            assert workers
            wait_until(lambda: not any(map(is_alive, workers)), "workers are left")
        before = len(folder.lines(torn=True))
        done = run(folder, "run", "--resume", str(folder.run_dir), "--no-progress")
    assert done.returncode == 0, done.stderr
    assert 0 < before < 30
    assert sorted(int(str(line["example_id"])) for line in folder.lines()) == list(range(30))


def test_ctrl_c_ends_a_run_and_its_workers_at_once(folder):
    with Server(answered) as server:
        folder.list(row(server))
        evaluate(folder, "Plain", args="count = 1000, slow = 0.05", keys="[workers]\nmin = 2\n")
        with started(folder) as running:
            server.wait_asked(6)
            running.signal(signal.SIGINT)
            assert running.wait() == 130
            assert "resume with: " in running.told
    wait_until(lambda: not any(map(is_alive, made(folder))), "workers are left")


def test_a_worker_that_is_killed_costs_no_result(folder):
    with Server(answered) as server:
        folder.list(row(server))
        evaluate(folder, "OnAsyncio", args="count = 60, slow = 0.2", keys="[workers]\nmultiplex = 4\n")
        with started(folder) as running:
            for kill in range(3):
                server.wait_asked(10 * (kill + 1))
                wait_until(lambda: any(map(is_alive, workers_of(running))), "no worker is ready")
                os.kill([worker for worker in workers_of(running) if is_alive(worker)][-1], signal.SIGKILL)
                running.wait_told("died serving (SIGKILL)", kill + 1)
            assert running.wait() == 0, running.told
    assert sorted(int(str(line["example_id"])) for line in folder.lines()) == list(range(60))
    (figures,) = folder.summary()["evals"]
    assert (figures["ok"], figures["workers_died"]) == (60, 3)


def test_an_environment_that_no_worker_can_open_ends_the_run_with_its_exit_code_and_its_log(folder):
    with Server(answered) as server:
        folder.list(row(server))
        evaluate(folder, "Broken")
        done = run(folder)
    assert done.returncode == 1
    assert "no worker can load it" in done.stderr
    assert "exit code 7" in done.stderr
    assert "no such device: gpu0" in done.stderr


def test_arguments_that_only_the_environment_can_refuse_are_told_at_their_place(folder):
    with Server(answered) as server:
        folder.list(row(server))
        evaluate(folder, "Wrong", args="count = -1")
        done = run(folder)
    assert done.returncode == 2
    assert 'eval.toml: eval[0].env_args: "mine:Wrong" cannot be made' in done.stderr
    assert "count must not be negative (mine.py, line" in done.stderr


def test_a_run_is_not_gone_on_with_when_what_an_environment_in_a_worker_depends_on_has_changed(folder):
    (folder.path / "digest").write_text("one")
    with Server(answered) as server:
        folder.list(row(server))
        evaluate(folder, "OnTrio", args="count = 1000, slow = 0.05")
        with started(folder) as running:
            server.wait_asked(20)
            running.signal(signal.SIGINT)
            running.wait()
        (folder.path / "digest").write_text("two")
        before = folder.lines()
        done = run(folder, "run", "--resume", str(folder.run_dir), "--no-progress")
        assert done.returncode == 2
        assert 'data.digest: the results in the run folder were made with "one", not "two"' in done.stderr
        assert folder.lines() == before
        (folder.path / "digest").write_text("one")
        with started(folder, "run", "--resume", str(folder.run_dir), "--no-progress"):
            server.wait_more(20)


def test_a_worker_finds_the_modules_that_the_program_which_runs_the_evaluation_finds(folder):
    beside = folder.path / "program"
    beside.mkdir()
    (folder.path / "mine.py").rename(beside / "mine.py")
    program = "import trio, scavenge, sys\nprint(trio.run(scavenge.run_evaluation, sys.argv[1]).exit_code)\n"
    (beside / "evaluate.py").write_text(program)
    with Server(answered) as server:
        folder.list(row(server))
        evaluate(folder, "OnTrio")
        arguments = [sys.executable, str(beside / "evaluate.py"), str(folder.path / "eval.toml")]
        done = subprocess.run(arguments, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "0\n", done.stderr


def test_workers_can_be_turned_off_where_the_environment_allows_it(folder):
    with Server(answered) as server:
        folder.list(row(server))
        evaluate(folder, "OnTrio", keys="[workers]\nenabled = false\n")
        done = run_here(folder)
        assert done.returncode == 0, done.stderr
        assert {line["info"]["pid"] for line in folder.lines()} == {os.getpid()}
        evaluate(folder, "Plain", keys="[workers]\nenabled = false\n")
        refused = run_here(folder)
    assert refused.returncode == 2
    assert "enabled" in refused.stderr


def test_the_chat_environment_can_be_played_in_workers_too(folder):
    folder.dataset(20)
    with Server(answered) as server:
        folder.list(row(server))
        folder.evaluation(evals=["in_worker = true"])
        done = run(folder)
    assert done.returncode == 0, done.stderr
    assert len({line["example_id"] for line in folder.lines()}) == len(folder.lines()) == 20
    assert all(line["reward"] == 1.0 for line in folder.lines())
