"""The quickstart example: its servers, its script and how long it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import tomli
import trio

from scavenge.testing import SimulatedConfig, SimulatedFleet
from scavenge.types import ChatRequest, Endpoint, EndpointId, Url

FOLDER = Path(__file__).parents[2] / "examples" / "quickstart"


def read_config() -> SimulatedConfig:
    settings = tomli.loads((FOLDER / "eval.toml").read_text(encoding="utf-8"))
    (keys,) = settings["source"]
    assert keys.pop("type") == "simulated"
    (evaluation,) = settings["eval"]
    assert (FOLDER / evaluation["env_args"]["dataset"]).is_file()
    config = SimulatedConfig(**keys)
    assert evaluation["endpoint_id"] == config.endpoint_id
    return config


async def test_it_takes_a_quarter_of_a_minute_though_a_server_dies(autojump_clock):
    config = read_config()
    lines = (FOLDER / "arithmetic.jsonl").read_bytes().splitlines()
    questions = iter([json.loads(line)["question"] for line in lines])
    again: list[str] = []
    plan = config.plan()
    fleet = SimulatedFleet(plan.servers, plan.script)

    def next_question() -> str | None:
        return again.pop() if again else next(questions, None)

    async def ask_one_after_the_other(name: str) -> None:
        client = fleet.open_client(Endpoint(EndpointId("sim"), config.model, Url(f"http://{name}.sim/v1")))
        for question in iter_until_none():
            answer = await client.ask(ChatRequest([{"role": "user", "content": question}]))
            if answer.outcome.name != "ok":
                again.append(question)
                return

    def iter_until_none() -> Iterator[str]:
        while (question := next_question()) is not None:
            yield question

    async with fleet.open(), trio.open_nursery() as nursery:
        for name, join_at in (("ep1", 0.0), ("ep2", 0.0), ("ep3", 7.5)):
            await trio.sleep_until(join_at)
            for _ in range(config.max_concurrent or 0):
                nursery.start_soon(ask_one_after_the_other, name)
    truth = fleet.truth
    assert sum(server.finished for server in truth.values()) == 300
    assert truth["ep2"].lost == 8
    assert all(server.peak_in_flight == 8 for server in truth.values())
    assert 12 < trio.current_time() < 22
