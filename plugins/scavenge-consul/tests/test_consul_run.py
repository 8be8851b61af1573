"""The program with the installed plugin: simulated servers, found through the stand-in of an agent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import trio
from consul_kit import Double, open_double

from scavenge.testing import EngineSettings, FleetPlan, HttpFleet, SimulatedServer, open_http_fleet

EVALUATION = """\
elastic = true
elastic_poll_interval = 0.1

[[source]]
type = "consul"
address = "{address}"
service = "llm"
endpoint_id = "{{tag.model}}"
model = "{{meta.model}}"
url = "http://{{address}}:{{port}}/v1"

[[eval]]
env_id = "chat"
endpoint_id = "pool"
env_args = {{ dataset = "data.jsonl", scorer = "numeric" }}
"""


async def register(double: Double, fleet: HttpFleet) -> dict[str, int]:
    """Put the servers, and nothing else, into the catalogue; their ports by name."""
    await double.control(reset=True)
    ports = {}
    for number, (name, node) in enumerate(fleet.nodes.items()):
        ports[name] = int(node.url.split(":")[2].partition("/")[0])
        meta, tags = {"model": node.host.server.model}, ["model=pool"]
        await double.serve(f"n{number}", ports[name], Address="127.0.0.1", Meta=meta, Tags=tags)
    return ports


async def scavenge(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "scavenge", *arguments]
    return await trio.run_process(command, cwd=folder, capture_stdout=True, capture_stderr=True, check=False)


def write_files(folder: Path, double: Double, count: int) -> None:
    rows = ({"id": str(n), "question": f"What is {n} + 1 ?", "answer": str(n + 1)} for n in range(count))
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "eval.toml").write_text(EVALUATION.format(address=double.address))


def servers() -> FleetPlan:
    return FleetPlan([SimulatedServer(name, EngineSettings(0.001, 0.0, 8)) for name in ("ep1", "ep2")])


async def test_a_run_is_served_by_the_servers_in_the_catalogue(tmp_path):
    async with open_double() as double, open_http_fleet(servers()) as fleet:
        ports = await register(double, fleet)
        write_files(tmp_path, double, 20)
        done = await scavenge(tmp_path, "run", "eval.toml", "--json", "--no-progress")
        assert done.returncode == 0, done.stderr.decode()
        summary = json.loads(done.stdout)
        assert [(one["ok"], one["error"]) for one in summary["evals"]] == [(20, 0)]
        told = {one["url"] for one in summary["endpoints"]}
        assert told == {f"http://127.0.0.1:{port}/v1" for port in ports.values()}


async def test_the_endpoints_command_shows_one_that_drains(tmp_path):
    async with open_double() as double, open_http_fleet(servers()) as fleet:
        await register(double, fleet)
        check = {"CheckID": "_service_maintenance:llm-n1", "ServiceID": "llm-n1", "Status": "critical"}
        await double.put("catalog/register", {"Node": "n1", "Address": "127.0.0.1", "Check": check})
        write_files(tmp_path, double, 1)
        done = await scavenge(tmp_path, "endpoints", "eval.toml", "--once", "--json")
        assert done.returncode == 0, done.stderr.decode()
        (pool,) = json.loads(done.stdout)["pools"]
        assert sorted(one["state"] for one in pool["endpoints"]) == ["draining", "live"]


async def test_a_trouble_is_told_with_its_remedy(tmp_path):
    async with open_double() as double:
        write_files(tmp_path, double, 1)
        await double.control(tokens={"somebody": None})
        done = await scavenge(tmp_path, "run", "eval.toml", "--no-progress", "--set", "elastic=false")
    assert done.returncode == 2
    assert "name a variable with a token that has service:read and node:read" in done.stderr.decode()


async def test_a_key_that_is_wrong_is_named_before_anything_starts(tmp_path):
    async with open_double() as double:
        write_files(tmp_path, double, 1)
    text = (tmp_path / "eval.toml").read_text().replace("{port}", "{prot}").replace("service =", "servise =")
    (tmp_path / "eval.toml").write_text(text)
    done = await scavenge(tmp_path, "run", "eval.toml", "--dry-run")
    assert done.returncode == 2
    said = done.stderr.decode()
    assert 'no fact "prot"; did you mean "port"?' in said
    assert 'servise: unknown key; did you mean "service"?' in said
