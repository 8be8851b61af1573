"""The installed plugin in scavenge's own commands, with simulated servers behind the clouds' addresses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import trio
from gpucloud_double import TOKEN, Double, Machine, status

from scavenge.testing import FleetPlan, SimulatedServer, open_http_fleet

EVALUATION = """
[[source]]
type = "runpod"
name_prefix = "runpod-"
endpoint_id = "pool"
model = "{model}"
url = "http://{{address}}:{{port.8000}}/v1"
api_url = "{api}/v1"

[[source]]
type = "vast"
name_prefix = "vast-"
endpoint_id = "pool"
model = "{model}"
url = "http://{{address}}:{{port.8000}}/v1"
api_url = "{api}"

[[source]]
type = "prime"
name_prefix = "prime-"
endpoint_id = "pool"
model = "{model}"
url = "http://{{address}}:{{port.8000}}/v1"
api_url = "{api}"

[[eval]]
env_id = "chat"
endpoint_id = "pool"
env_args = {{ dataset = "questions.jsonl" }}
"""
SERVERS = [SimulatedServer("runpod-1"), SimulatedServer("vast-1"), SimulatedServer("prime-1")]


async def scavenge(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    keys = {"RUNPOD_API_KEY": TOKEN, "VAST_API_KEY": TOKEN, "PRIME_API_KEY": TOKEN, **environ}
    with trio.fail_after(60):
        return await trio.run_process(
            [sys.executable, "-m", "scavenge", *arguments],
            cwd=folder,
            env={**os.environ, **keys},
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )


def write(folder: Path, double: Double, model: str) -> None:
    (folder / "eval.toml").write_text(EVALUATION.format(api=double.url, model=model))
    (folder / "questions.jsonl").write_text('{"id": "1", "question": "two?", "answer": "2"}\n')


async def test_servers_of_three_clouds_are_one_pool(double: Double, tmp_path: Path):
    async with open_http_fleet(FleetPlan(SERVERS)) as fleet:
        rows = {str(row.url): row for row in fleet.rows()}
        for number, (server, url) in enumerate(zip(SERVERS, rows, strict=True), 1):
            double.machines.append(Machine(number, urlsplit(url).port or 0, name=server.name))
        double.machines.append(Machine(9, 1, name="train"))
        write(tmp_path, double, str(next(iter(rows.values())).model))
        with double.failing(status(429, 2)):
            done = await scavenge(tmp_path, "endpoints", "eval.toml", "--once", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert {(one["url"], one["state"]) for one in shown["pools"][0]["endpoints"]} == {(url, "live") for url in rows}
    assert [source["trouble"] for source in shown["sources"]] == [None, None, None]
    assert TOKEN.encode() not in done.stdout + done.stderr


async def test_a_run_without_an_api_key_does_not_start_and_says_which_variable_it_misses(
    double: Double, tmp_path: Path
):
    write(tmp_path, double, "m")
    done = await scavenge(tmp_path, "endpoints", "eval.toml", "--once", VAST_API_KEY="")
    assert done.returncode == 2
    assert b"VAST_API_KEY is not set" in done.stderr


async def test_wrong_keys_are_named_with_a_remedy_and_without_what_may_be_secret(double: Double, tmp_path: Path):
    write(tmp_path, double, "m")
    text = (tmp_path / "eval.toml").read_text().replace("name_prefix", "name_prefx", 1)
    text = text.replace('type = "vast"', 'type = "vast"\ntoken_var = 987654').replace(
        'type = "prime"', 'type = "prime"\ntoken_var = "pit-4711"'
    )
    (tmp_path / "eval.toml").write_text(text)
    done = await scavenge(tmp_path, "check", "eval.toml")
    assert done.returncode == 2
    told = done.stderr + done.stdout
    assert b'did you mean "name_prefix"?' in told
    assert told.count(b"token_var") >= 2
    assert b"987654" not in told
    assert b"4711" not in told


async def test_the_plugin_is_found(tmp_path: Path):
    done = await scavenge(tmp_path, "plugins")
    assert done.returncode == 0
    for word in (b"scavenge-gpucloud", b"runpod", b"vast", b"prime"):
        assert word in done.stdout
