"""The program with the installed plugin: environments played in worker processes, at simulated servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import trio
from verifiers_kit import needs_classic

from scavenge.testing import EngineSettings, FleetPlan, SimulatedServer, open_http_fleet

CLASSIC = 'env_id = "somebody/plus-one"\nenv_args = { count = 6, turns = 2 }'
NEWER = """\
env_id = "somebody/plus-one-tasks"

[eval.env_args.taskset]
count = 4
ids = true

[eval.env_args.agent]
runtime = { type = "subprocess" }
harness = { id = "plus-one-tasks" }
"""


def servers(script: str = "") -> FleetPlan:
    return FleetPlan([SimulatedServer("ep1", EngineSettings(0.001, 0.0, 8))], script)


def write_files(folder: Path, urls: list[str], evaluation: str) -> None:
    rows = [f'[[endpoint]]\nendpoint_id = "pool"\nmodel = "sim"\nurl = "{url}"\n' for url in urls]
    (folder / "endpoints.toml").write_text("".join(rows))
    head = 'endpoints_path = "endpoints.toml"\nendpoint_id = "pool"\n[sampling_args]\nmax_tokens = 50\n[[eval]]\n'
    (folder / "eval.toml").write_text(head + evaluation)


async def scavenge(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "scavenge", *arguments]
    return await trio.run_process(command, cwd=folder, capture_stdout=True, capture_stderr=True, check=False)


async def run(folder: Path, evaluation: str, script: str = "") -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, the result lines and what was said."""
    async with open_http_fleet(servers(script)) as fleet:
        write_files(folder, [node.url for node in fleet.nodes.values()], evaluation)
        done = await scavenge(folder, "run", "eval.toml", "--no-progress")
    files = list(folder.glob("runs/*/results.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return done.returncode, lines, done.stderr.decode()


async def test_a_taskset_is_evaluated(tmp_path):
    code, lines, said = await run(tmp_path, NEWER)
    assert code == 0, said
    assert len({line["example_id"] for line in lines}) == 4
    assert {line["status"] for line in lines} == {"ok"}
    assert {line["reward"] for line in lines} <= {0.0, 2.0}
    assert all(line["metrics"].keys() == {"correct", "length"} for line in lines)
    assert all(len(line["attempts"]) == 1 for line in lines)


async def test_a_request_that_is_turned_down_is_an_error_without_a_reward(tmp_path):
    code, lines, said = await run(tmp_path, NEWER, "t=0 error ep1 status=422")
    assert code == 1, said
    assert {(line["status"], line["reward"], line["error"]["type"]) for line in lines} == {
        ("error", None, "RequestFailed")
    }
    assert all("422" in line["error"]["message"] for line in lines)
    assert all([attempt["http_status"] for attempt in line["attempts"]] == [422] for line in lines)


async def test_arguments_that_verifiers_refuses_end_the_run_with_their_names(tmp_path):
    code, lines, said = await run(tmp_path, NEWER.replace("count = 4", "cuont = 4"))
    assert code != 0
    assert not lines
    assert "taskset.cuont" in said


async def test_a_name_that_is_wrong_is_told_before_anything_starts(tmp_path):
    write_files(tmp_path, ["http://127.0.0.1:9/v1"], 'env_id = "somebody/plus-one-task"')
    done = await scavenge(tmp_path, "run", "eval.toml")
    assert done.returncode == 2
    assert 'did you mean "somebody/plus-one-tasks"?' in done.stderr.decode()


@needs_classic
async def test_an_environment_of_the_classic_api_is_evaluated(tmp_path):
    code, lines, said = await run(tmp_path, CLASSIC)
    assert code == 0, said
    assert sorted(line["example_id"] for line in lines) == ["0", "1", "2", "3", "4", "5"]
    assert {line["reward"] for line in lines} <= {0.0, 1.0}
    assert all(len(line["attempts"]) == line["metrics"]["num_turns"] for line in lines)


@needs_classic
async def test_an_argument_that_is_wrong_is_told_before_anything_starts(tmp_path):
    evaluation = 'env_id = "somebody/plus-one"\nenv_args = { count = "six", score = "corect" }'
    write_files(tmp_path, ["http://127.0.0.1:9/v1"], evaluation)
    done = await scavenge(tmp_path, "run", "eval.toml", "--dry-run")
    assert done.returncode == 2
    said = done.stderr.decode()
    assert "eval[0].env_args.count: expected int, got str 'six'" in said
    assert "eval[0].env_args.score: expected 'correct' or" in said
