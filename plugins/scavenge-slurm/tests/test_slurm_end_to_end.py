"""The installed plugin in an evaluation file: scavenge finds the servers and asks them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import trio
from squeue_double import Cluster, job

from scavenge.testing import FleetPlan, SimulatedServer, open_http_fleet

EVALUATION = """\
elastic = true

[[source]]
type = "slurm"
command = ["{squeue}"]
user = "alice"
job_name = "vllm-*"
state_dir = "servers"
endpoint_id = "glm"
model = "sim"
max_concurrent = "{{comment.slots|4}}"

[[eval]]
env_id = "chat"
endpoint_id = "glm"
env_args = {{ dataset = "questions.jsonl" }}
"""


async def scavenge(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "scavenge", *arguments]
    done = await trio.run_process(command, cwd=folder, capture_stdout=True, capture_stderr=True, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def test_servers_in_jobs_are_found_and_answer(tmp_path, cluster: Cluster):
    (tmp_path / "eval.toml").write_text(EVALUATION.format(squeue=cluster.squeue))
    (tmp_path / "questions.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    (tmp_path / "servers").mkdir()
    plan = FleetPlan([SimulatedServer("ep1"), SimulatedServer("ep2")])
    now = int(time.time())  # as the program has it
    async with open_http_fleet(plan) as fleet:
        first, second = (str(row.url) for row in fleet.rows())
        (tmp_path / "servers" / "2.json").write_text(json.dumps({"url": second}))
        cluster.tell(
            [
                job(1, name="vllm-a", comment=f"url={first} slots=3", start=now, end=now + 36_000),
                job(2, name="vllm-b", comment="", start=0, end=0, limit=None),
                job(3, name="vllm-c", comment="not up yet"),
            ]
        )
        code, output, error = await scavenge(tmp_path, "endpoints", "eval.toml", "--once", "--json")
    assert code == 0, error
    found = {one["url"]: one for one in json.loads(output)["pools"][0]["endpoints"]}
    assert set(found) == {first, second}
    assert {one["state"] for one in found.values()} == {"live"}


async def test_a_wrong_key_is_named_with_its_place(tmp_path, cluster: Cluster):
    wrong = EVALUATION.format(squeue=cluster.squeue).replace("job_name", "jobname").replace('"alice"', '"a b"')
    (tmp_path / "eval.toml").write_text(wrong)
    code, _, error = await scavenge(tmp_path, "endpoints", "eval.toml", "--once")
    assert code == 2
    assert 'eval.toml: source[0].jobname: unknown key; did you mean "job_name"?' in error
    assert "eval.toml: source[0].user: user must be the name of one user" in error
