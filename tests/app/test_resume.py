"""A run is resumed only where it would give the results that are there already."""

from __future__ import annotations

from pathlib import Path

import pytest

from scavenge.app.evaluation import run_evaluation
from scavenge.app.options import RunOptions
from scavenge.errors import ConfigError
from scavenge.events import Event, PoolWaiting, SourceChanged
from scavenge.testing import FleetPlan, HttpFleet, SimulatedServer, open_http_fleet
from scavenge.testing.engine import EngineSettings

ROWS = (
    '{"id": "1", "question": "What is 1 + 1?", "answer": "2"}\n'
    '{"id": "2", "question": "What is 2 + 2?", "answer": "4"}\n'
)


def plan(model: str = "sim") -> FleetPlan:
    return FleetPlan([SimulatedServer("ep1", EngineSettings(0.0005, 0.0, 8), model)])


def write(folder: Path, fleet: HttpFleet, endpoint_id: str = "sim") -> Path:
    (row,) = fleet.rows()
    endpoint = f'[[endpoint]]\nendpoint_id = "{endpoint_id}"\nmodel = "{row.model}"\nurl = "{row.url}"\n'
    (folder / "endpoints.toml").write_text(endpoint)
    (folder / "rows.jsonl").write_text(ROWS)
    file = folder / "eval.toml"
    file.write_text(
        'endpoints_path = "."\n[[eval]]\nenv_id = "chat"\nendpoint_id = "sim"\n'
        'env_args = { dataset = "rows.jsonl", scorer = "numeric" }\n'
    )
    return file


async def first_part(folder: Path, fleet: HttpFleet) -> Path:
    result = await run_evaluation(write(folder, fleet), options=RunOptions(limit=1))
    assert (result.exit_code, result.summary.evals[0].ok) == (0, 1)
    return result.run_dir


def again(run_dir: Path, *overrides: str) -> RunOptions:
    return RunOptions(resume=run_dir, overrides=("eval.num_examples=-1", *overrides))


async def test_what_is_the_same_goes_on_also_with_other_limits_and_endpoints(tmp_path):
    async with open_http_fleet(plan()) as fleet:
        run_dir = await first_part(tmp_path, fleet)
    async with open_http_fleet(plan()) as fleet:
        write(tmp_path, fleet, "renamed")
        limits = ("admission.policy=fixed", "admission.limit=3", "sessions.policy=off")
        changes = ("eval.max_retries=7", *limits, "eval.endpoint_id=renamed")
        result = await run_evaluation(None, options=again(run_dir, *changes))
    assert (result.exit_code, result.summary.evals[0].ok) == (0, 2)
    assert len((run_dir / "results.jsonl").read_bytes().splitlines()) == 2


async def test_a_dataset_that_changed_is_refused_by_name(tmp_path):
    async with open_http_fleet(plan()) as fleet:
        run_dir = await first_part(tmp_path, fleet)
        (tmp_path / "rows.jsonl").write_text(ROWS.replace("2 + 2", "2 + 3"))
        with pytest.raises(ConfigError, match=r"eval 'chat': data.dataset"):
            await run_evaluation(None, options=again(run_dir))
        (tmp_path / "rows.jsonl").write_text(ROWS)
        assert (await run_evaluation(None, options=again(run_dir))).exit_code == 0


async def test_endpoints_with_another_model_are_refused_and_the_results_stay(tmp_path):
    async with open_http_fleet(plan()) as fleet:
        run_dir = await first_part(tmp_path, fleet)
    async with open_http_fleet(plan("other")) as fleet:
        write(tmp_path, fleet)
        with pytest.raises(ConfigError, match=r"pool .sim. has the model .sim., got .other."):
            await run_evaluation(None, options=again(run_dir))
    assert len((run_dir / "results.jsonl").read_bytes().splitlines()) == 1


async def test_another_model_that_joins_a_resumed_run_later_is_left_out(tmp_path):
    async with open_http_fleet(plan()) as fleet:
        run_dir = await first_part(tmp_path, fleet)
    (tmp_path / "endpoints.toml").unlink()
    events: list[Event] = []
    async with open_http_fleet(plan("other")) as fleet:

        def list_it(event: Event) -> None:
            events.append(event)
            if isinstance(event, PoolWaiting):
                write(tmp_path, fleet)

        changes = ("elastic=true", "elastic_poll_interval=0.1", "stall_timeout=3")
        result = await run_evaluation(None, options=again(run_dir, *changes), observers=[list_it])
    assert result.exit_code == 4
    assert any(isinstance(event, SourceChanged) and 'has the model "sim"' in event.message for event in events)
    assert len((run_dir / "results.jsonl").read_bytes().splitlines()) == 1


async def test_an_environment_in_python_may_say_what_its_results_depend_on(tmp_path):
    (tmp_path / "own_env.py").write_text(
        "import scavenge\n"
        "class Own(scavenge.Environment):\n"
        "    version = 1\n"
        "    def examples(self):\n"
        "        return [scavenge.Example(id='1', data={})]\n"
        "    def identity(self):\n"
        "        return {'version': self.version}\n"
        "    async def play(self, example, model):\n"
        "        reply = await model.chat([{'role': 'user', 'content': 'hi'}])\n"
        "        return scavenge.Rollout(completion=reply.text, reward=1.0)\n"
    )
    async with open_http_fleet(plan()) as fleet:
        file = write(tmp_path, fleet)
        change = RunOptions(overrides=("eval.env_id=own_env:Own", "eval.env_args={}"))
        result = await run_evaluation(file, options=change)
        assert result.exit_code == 0
        import own_env  # type: ignore[import-not-found]  # found beside the evaluation file by now

        own_env.Own.version = 2
        with pytest.raises(ConfigError, match=r"data.version: .* made with 1, not 2"):
            await run_evaluation(None, options=RunOptions(resume=result.run_dir))
