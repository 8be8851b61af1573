"""The installed plugin in scavenge's own program, with servers behind it that answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import trio
from kube_kit import pod, write_kubeconfig

from scavenge.testing import FleetPlan, SimulatedServer, open_http_fleet

TOKEN = "t0ken-0f-mine"


def server_pod(name: str, url: str, **meta: object) -> dict[str, object]:
    """A ready pod whose server is this one."""
    parts = urlsplit(url)
    item = pod(name, parts.hostname, **meta)
    item["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": parts.port}]
    return item


def write_evaluation(folder: Path) -> None:
    rows = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(3)]
    (folder / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "eval.toml").write_text("""
elastic = true
elastic_poll_interval = 0.5

[[source]]
type = "kubernetes"
kubeconfig = "kubeconfig"
selector = "app=vllm"
endpoint_id = "pool"
model = "sim"
url = "http://{address}:{port}/v1"

[[eval]]
env_id = "chat"
endpoint_id = "pool"
env_args = { dataset = "questions.jsonl", scorer = "numeric" }
""")


async def scavenge(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scavenge", *arguments]
    done = await trio.run_process(
        command, cwd=folder, env=dict(os.environ), capture_stdout=True, capture_stderr=True, check=False
    )
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


async def test_scavenge_finds_pods_sees_one_leave_and_runs_on_the_other(kube, tmp_path):
    kube.tokens = {TOKEN}
    write_kubeconfig(tmp_path, kube.url, {"token": TOKEN})
    write_evaluation(tmp_path)
    for name in "ab":
        kube.store.delete("pods", "ml", name)
    async with open_http_fleet(FleetPlan([SimulatedServer("one"), SimulatedServer("two")])) as fleet:
        one, two = (fleet.nodes[name].url for name in ("one", "two"))
        kube.store.put("pods", server_pod("one", one))
        kube.store.put("pods", server_pod("two", two, deletionTimestamp="2100-01-01T00:00:00Z"))
        done = await scavenge("endpoints", "eval.toml", "--once", "--json", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        (pool,) = json.loads(done.stdout)["pools"]
        assert {found["url"]: found["state"] for found in pool["endpoints"]} == {one: "live", two: "draining"}
        done = await scavenge("run", "eval.toml", "--json", "--no-progress", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert {found["url"]: found["requests"] for found in json.loads(done.stdout)["endpoints"]}[one] == 3
    written = [path.read_text() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert not any(TOKEN in text for text in [*written, done.stdout, done.stderr])


async def test_scavenge_says_what_the_cluster_refuses(kube, tmp_path):
    kube.denied.add(("list", "pods"))
    write_kubeconfig(tmp_path, kube.url)
    write_evaluation(tmp_path)
    done = await scavenge("endpoints", "eval.toml", "--once", "--json", folder=tmp_path)
    (source,) = json.loads(done.stdout)["sources"]
    assert 'it needs a Role with the verbs "list" and "watch" on the resource "pods"' in source["trouble"]
