"""Ctrl-C and SIGTERM at the moments that hurt."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from run_kit import Folder, resume_arguments, row, run_here, started
from told_server import Ask, Reply, Server, answered

HANGING = """
from contextlib import asynccontextmanager

import attrs
import trio

from scavenge.plugin import EndpointSourceType, hookimpl


@attrs.frozen
class Config:
    where: str


class Source:
    async def list_endpoints(self):
        print("asked", flush=True)
        await trio.sleep_forever()


@asynccontextmanager
async def open_hanging(config):
    if config.where == "open":
        print("asked", flush=True)
        await trio.sleep_forever()
    yield Source()


@hookimpl
def scavenge_endpoint_sources():
    return [EndpointSourceType(name="hanging", config=Config, open=open_hanging)]
"""

STUCK = """
import sys
import time

import scavenge.plugin
import trio


class Reading(scavenge.plugin.Environment):
    def examples(self):
        print("stuck", file=sys.stderr, flush=True)
        time.sleep(1000)
        yield

    async def play(self, example, model):
        raise AssertionError("there is no example")


class Opening(scavenge.plugin.Environment):
    def examples(self):
        return ()

    async def open(self):
        print("stuck", file=sys.stderr, flush=True)
        await trio.sleep_forever()

    async def play(self, example, model):
        raise AssertionError("there is no example")


class Closing(scavenge.plugin.Environment):
    def examples(self):
        yield scavenge.plugin.Example("1", {})

    async def play(self, example, model):
        print("stuck", file=sys.stderr, flush=True)
        await trio.sleep_forever()

    async def close(self):
        await trio.sleep_forever()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


class Stopping:
    """Answers the first few requests, and holds the others until it is let go."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.go = threading.Event()

    def __call__(self, ask: Ask) -> Reply:
        if ask.number > self.first:
            self.go.wait()
        return answered(ask)


@pytest.mark.parametrize(("first", "second", "code"), [("SIGINT", "SIGTERM", 130), ("SIGTERM", "SIGINT", 143)])
def test_a_signal_keeps_what_is_finished_and_a_second_one_changes_nothing(folder, first, second, code):
    folder.dataset(20)
    folder.evaluation()
    stopping = Stopping(6)
    with Server(stopping) as server:
        folder.list(row(server, max_concurrent=4))
        with started(folder) as running:
            server.wait_asked(10)
            running.signal(signal.Signals[first])
            running.wait_told("stopping")
            for _ in range(5):
                running.signal(signal.Signals[second])
            assert running.wait() == code
        stopping.go.set()
        assert "Traceback" not in running.told
        assert [line["status"] for line in folder.lines()] == ["ok"] * 6
        assert (folder.summary()["evals"][0]["ok"], folder.summary()["evals"][0]["owed"]) == (6, 14)
        asked = len(server.asks)
        done = run_here(folder, *resume_arguments(running.told))
        assert done.returncode == 0
        assert len(server.asks) - asked == 14
    assert len(folder.lines()) == len(folder.latest()) == 20


def test_ctrl_c_before_there_is_any_endpoint(folder):
    folder.dataset(2)
    folder.evaluation()
    with started(folder) as running:
        running.wait_told("waiting for an endpoint")
        running.signal(signal.SIGINT)
        assert running.wait() == 130
    assert resume_arguments(running.told) == ["run", "--resume", str(folder.run_dir)]
    assert "Traceback" not in running.told


@pytest.mark.parametrize("elastic", ["true", "false"])
@pytest.mark.parametrize("where", ["open", "list"])
def test_ctrl_c_while_a_source_hangs_at_the_start(folder, where, elastic):
    plugin = folder.path / "plugin"
    metadata = plugin / "hanging-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[scavenge]\nhanging = hanging_plugin\n")
    (plugin / "hanging_plugin.py").write_text(HANGING)
    folder.dataset(2)
    (folder.path / "eval.toml").write_text(
        f'elastic = {elastic}\n[[source]]\ntype = "hanging"\nwhere = "{where}"\n'
        '[[eval]]\nenv_id = "chat"\nendpoint_id = "pool"\nenv_args = { dataset = "data.jsonl" }\n'
    )
    with started(folder, environ={"PYTHONPATH": os.pathsep.join([str(plugin), *sys.path])}) as running:
        running.wait_out("asked")
        running.signal(signal.SIGINT)
        assert running.wait() == 130
    assert resume_arguments(running.told) == ["run", "--resume", str(folder.run_dir)]
    assert "Traceback" not in running.told


@pytest.mark.parametrize("what", ["Reading", "Opening", "Closing"])
def test_ctrl_c_while_an_environment_hangs(folder, what):
    (folder.path / "stuck_environments.py").write_text(STUCK)
    (folder.path / "eval.toml").write_text(
        f'[[eval]]\nenv_id = "stuck_environments:{what}"\nmodel = "m"\napi_base_url = "http://127.0.0.1:9/v1"\n'
        "[health]\nprobe = false\n"
    )
    with started(folder) as running:
        running.wait_told("stuck")
        running.signal(signal.SIGINT)
        assert running.wait() == 130
    assert resume_arguments(running.told)
    assert "Traceback" not in running.told


def test_sigterm_while_the_program_is_still_loading_leaves_no_folder_without_a_configuration(folder):
    folder.dataset(2)
    folder.evaluation()
    with started(folder) as running:
        running.signal(signal.SIGTERM)
        assert running.wait() in (143, -signal.SIGTERM)
    assert "Traceback" not in running.told
    runs = folder.path / "runs"
    assert not runs.exists() or all((run_dir / "config.toml").exists() for run_dir in runs.iterdir())
