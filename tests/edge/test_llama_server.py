"""Evaluations on real llama.cpp servers that ask for another key or serve another model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_server import MODEL, SLOTS, needs_llama_server, open_servers

pytestmark = needs_llama_server

DEADLINE_S = 120.0
EVALUATION = """
elastic = true
elastic_poll_interval = 0.5
endpoints_path = "endpoints.toml"
health = { interval = 1, backoff_max = 2 }

[[eval]]
env_id = "chat"
endpoint_id = "real"
env_args = { dataset = "rows.jsonl", scorer = "none" }
sampling_args = { max_tokens = 4, temperature = 0, ignore_eos = true }
"""


def write_evaluation(folder: Path, url: str, keys: str = "") -> None:
    (folder / "eval.toml").write_text(EVALUATION, encoding="utf-8")
    (folder / "rows.jsonl").write_text('{"id": "0", "prompt": "Tell me about the number 0."}\n', encoding="utf-8")
    row = '[[endpoint]]\nendpoint_id = "real"\nmodel = "{model}"\nurl = "{url}"\nmax_concurrent = {slots}\n{keys}\n'
    table = row.format(model=MODEL, url=url, slots=SLOTS, keys=keys)
    (folder / "endpoints.toml").write_text(table, encoding="utf-8")


def start_run(folder: Path, *options: str, **environ: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "scavenge", "run", "eval.toml", "--no-progress", "--json", *options]
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, **environ}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, and what it told on standard error."""
    try:
        _, told = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    return process.returncode, told


def results_in(folder: Path) -> list[dict[str, Any]]:
    """The whole lines that are in the results so far."""
    lines = [line for path in folder.glob("runs/*/results.jsonl") for line in path.read_bytes().split(b"\n")[:-1]]
    return [json.loads(line) for line in lines]


def test_a_model_that_the_server_does_not_serve_is_told_with_the_nearest_name(model, tmp_path):
    with open_servers(model, tmp_path, 1) as (server,):
        write_evaluation(tmp_path, server.root)
        endpoints = tmp_path / "endpoints.toml"
        endpoints.write_text(endpoints.read_text(encoding="utf-8").replace(MODEL, "smolm2"), encoding="utf-8")
        code, told = finish(start_run(tmp_path, "--set", "elastic=false"))
    assert code == 1, told
    (result,) = results_in(tmp_path)
    assert result["status"] == "error"
    assert "the server does not list the model 'smolm2'; did you mean 'smollm2'" in told


@pytest.mark.parametrize(("given", "status"), [("right", "ok"), ("wrong", "error")])
def test_a_server_with_an_api_key_wants_the_right_one_and_no_wrong_one_is_shown(model, tmp_path, given, status):
    with open_servers(model, tmp_path, 1, ["--api-key", "right-Aq7s"]) as (server,):
        write_evaluation(tmp_path, server.root, 'key = "LLAMA_TEST_KEY"')
        process = start_run(tmp_path, "--set", "elastic=false", LLAMA_TEST_KEY=f"{given}-Aq7s")
        code, told = finish(process)
    (result,) = results_in(tmp_path)
    assert result["status"] == status, told
    assert code == (status == "error")
    assert "Aq7s" not in told + json.dumps(result)
    if status == "error":
        assert result["attempts"][0]["outcome"] == "misrouted"
        assert result["attempts"][0]["http_status"] == 401
