"""The source under scavenge's own checks, and in a run."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import trio
from ec2_double import REGION, Reply, refused
from scavenge_ec2.source import open_ec2

from scavenge.testing import FleetPlan, SimulatedServer, SourceFault, check_endpoint_source, open_http_fleet


async def test_it_keeps_what_scavenge_asks_of_a_source(config, double, launch, pauses):
    double.page_size = 2
    instances = {f"http://127.0.0.1:{port}/v1": launch(port=port) for port in range(1, 4)}

    def expect() -> set[str]:
        return {url for url, instance_id in instances.items() if double.states.get(instance_id) != "stopped"}

    async def change() -> None:
        """Let the third one go, or come back."""
        await trio.lowlevel.checkpoint()
        instance_id = instances["http://127.0.0.1:3/v1"]
        if double.states.pop(instance_id, None) is None:
            double.states[instance_id] = "stopped"

    def fault(name: str, *replies: Reply | None, action: str = "") -> SourceFault:
        @contextlib.asynccontextmanager
        async def apply():
            await trio.lowlevel.checkpoint()
            with double.faulty(*replies, action=action):
                yield
            await trio.lowlevel.checkpoint()

        return SourceFault(name, apply)

    await check_endpoint_source(
        lambda: open_ec2(config),
        expect=expect,
        change=change,
        secrets=["a-secret-for-tests", "AKIDFORTESTS"],
        faults=[
            fault("throttled", refused("RequestLimitExceeded", status=503)),
            fault("out of order on the second page", None, refused("InternalError", status=500), action="Instances"),
            fault("no permission for notices", refused("UnauthorizedOperation", status=403), action="Spot"),
            fault("cut", Reply(200, b"<R><reservationSet/>" + b" " * 99 + b"</R>", cut_after=50)),
        ],
    )


async def test_scavenge_finds_a_server_through_ec2_and_sees_it_drain(config, double, launch, tmp_path):
    plan = FleetPlan([SimulatedServer("one"), SimulatedServer("two")])
    async with open_http_fleet(plan) as fleet:
        one, two = (fleet.nodes[name].url for name in ("one", "two"))
        launch(port=one.rpartition(":")[2].removesuffix("/v1"))
        launch(port=two.rpartition(":")[2].removesuffix("/v1"), **{"scavenge:drain": "2100-01-01T00:00:00Z"})
        write_evaluation(tmp_path, config.filters["tag:role"], double.url)
        done = await scavenge("endpoints", "eval.toml", "--once", "--json", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        (pool,) = json.loads(done.stdout)["pools"]
        assert {found["url"]: found["state"] for found in pool["endpoints"]} == {one: "live", two: "draining"}
        done = await scavenge("run", "eval.toml", "--json", "--no-progress", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert {found["url"]: found["requests"] for found in json.loads(done.stdout)["endpoints"]}[one] == 3


def write_evaluation(folder: Path, role: str, endpoint_url: str) -> None:
    rows = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(3)]
    (folder / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "eval.toml").write_text(f"""
[[source]]
type = "ec2"
region = "{REGION}"
endpoint_url = "{endpoint_url}"
filters = {{ "tag:role" = "{role}" }}
endpoint_id = "pool"
model = "sim"
url = "http://127.0.0.1:{{tag.port}}/v1"

[[eval]]
env_id = "chat"
endpoint_id = "pool"
env_args = {{ dataset = "questions.jsonl", scorer = "numeric" }}
""")


async def scavenge(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scavenge", *arguments]
    done = await trio.run_process(command, cwd=folder, capture_stdout=True, capture_stderr=True, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())
