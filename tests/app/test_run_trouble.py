"""Plugins and environments that fail are named, and what was not begun leaves nothing behind."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from scavenge.app import parts
from scavenge.app.evaluation import run_evaluation
from scavenge.app.options import RunOptions
from scavenge.errors import EnvironmentBroken, PluginError, UsageError
from scavenge.events import Event, Warned
from scavenge.plugin import AdmissionPolicyType, EndpointSourceType, hookimpl
from scavenge.plugins.manager import load_plugins
from scavenge.testing import FleetPlan, HttpFleet, SimulatedServer, open_http_fleet
from scavenge.testing.engine import EngineSettings

ROWS = '{"id": "1", "question": "What is 1 + 1?", "answer": "2"}\n'


@attrs.frozen
class NoKeys:
    """Nothing to set."""


class Policy:
    """Fails where it is told to."""

    def __init__(self, where: str) -> None:
        self.where = where

    def observe(self, event: object, now: float) -> None:
        if self.where == "observe":
            raise KeyError("observed")

    def limit(self, now: float) -> int:
        return 0 if self.where == "limit" else 4

    def next_wake_at(self, now: float) -> float | None:
        if self.where == "next_wake_at":
            raise ZeroDivisionError
        return None


class Breaking:
    """A plugin whose policies break, each in its own place, and whose source cannot be opened."""

    @hookimpl
    def scavenge_admission_policies(self) -> list[AdmissionPolicyType]:
        def create(where: str) -> AdmissionPolicyType:
            return AdmissionPolicyType(where, NoKeys, lambda config: made(where))

        def made(where: str) -> Policy:
            if where == "create":
                raise OSError("cannot be made")
            return Policy(where)

        return [create(where) for where in ("create", "observe", "limit", "next_wake_at")]

    @hookimpl
    def scavenge_endpoint_sources(self) -> list[EndpointSourceType]:
        @asynccontextmanager
        async def open_broken(config: NoKeys):
            raise ConnectionError("nobody there")
            yield

        return [EndpointSourceType("broken", NoKeys, open_broken)]


@pytest.fixture(autouse=True)
def _plugin(monkeypatch) -> None:
    monkeypatch.setattr(parts, "load_plugins", lambda environ: load_plugins(environ, plugins={"breaking": Breaking()}))


def plan(**settings: object) -> FleetPlan:
    return FleetPlan([SimulatedServer("ep1", EngineSettings(0.0005, 0.0, 8), **settings)])  # type: ignore[arg-type]


def write(folder: Path, fleet: HttpFleet, head: str = 'endpoints_path = "."') -> Path:
    (row,) = fleet.rows()
    endpoint = f'[[endpoint]]\nendpoint_id = "sim"\nmodel = "{row.model}"\nurl = "{row.url}"\n'
    (folder / "endpoints.toml").write_text(endpoint)
    (folder / "rows.jsonl").write_text(ROWS)
    file = folder / "eval.toml"
    file.write_text(
        f'{head}\n[[eval]]\nenv_id = "chat"\nendpoint_id = "sim"\n'
        'env_args = { dataset = "rows.jsonl", scorer = "numeric" }\n'
    )
    return file


@pytest.mark.parametrize("where", ["create", "observe", "limit", "next_wake_at"])
async def test_an_admission_policy_that_breaks_is_named_with_its_plugin(tmp_path, where):
    async with open_http_fleet(plan()) as fleet:
        options = RunOptions(overrides=(f"admission.policy={where}",))
        with pytest.raises(PluginError, match=rf"^plugin breaking: admission policy '{where}' failed: ") as caught:
            await run_evaluation(write(tmp_path, fleet), options=options)
    placed = re.search(r"\(test_run_trouble\.py, line \d+\)$", str(caught.value)) is not None
    assert placed == (where != "limit")  # what it raises, not what it says
    if where == "create":  # before the run began
        assert list((tmp_path / "runs").iterdir()) == []


async def test_a_source_that_cannot_be_opened_is_named_and_leaves_no_run_folder(tmp_path):
    async with open_http_fleet(plan()) as fleet:
        file = write(tmp_path, fleet, '[[source]]\ntype = "broken"')
        with pytest.raises(PluginError, match=r"breaking: .* cannot be opened: ConnectionError: nobody there"):
            await run_evaluation(file)
    assert list((tmp_path / "runs").iterdir()) == []


async def test_an_output_folder_that_cannot_be_made_is_a_usage_error(tmp_path):
    (tmp_path / "file").touch()
    async with open_http_fleet(plan()) as fleet:
        with pytest.raises(UsageError, match="choose another output_dir"):
            await run_evaluation(write(tmp_path, fleet), options=RunOptions(output_dir=tmp_path / "file" / "runs"))


async def test_a_fixed_server_that_refuses_the_key_is_waited_for_by_nobody(tmp_path):
    async with open_http_fleet(plan(secret="k")) as fleet:
        (row,) = fleet.rows()
        file = write(tmp_path, fleet, "elastic = true")
        text = file.read_text().replace('endpoint_id = "sim"', f'model = "{row.model}"\napi_base_url = "{row.url}"')
        file.write_text(text)
        events: list[Event] = []
        result = await run_evaluation(file, observers=[events.append])
    assert (result.exit_code, result.summary.evals[0].error) == (1, 1)
    assert any(isinstance(event, Warned) and "elastic has no effect" in event.message for event in events)


async def test_what_looks_like_a_secret_in_the_settings_is_warned_of(tmp_path):
    async with open_http_fleet(plan()) as fleet:
        file = write(tmp_path, fleet)
        file.write_text(file.read_text() + 'sampling_args = { user = "sk-0123456789abcdef0123" }\n')
        events: list[Event] = []
        await run_evaluation(file, observers=[events.append])
    (told,) = [event.message for event in events if isinstance(event, Warned)]
    assert told.startswith("eval[0].sampling_args.user looks like a secret")
    assert "0123456789abcdef" not in told


async def test_settings_that_a_resumed_part_changes_hold_for_the_next_part_too(tmp_path):
    async with open_http_fleet(plan()) as fleet:
        run_dir = (await run_evaluation(write(tmp_path, fleet))).run_dir
        changed = RunOptions(resume=run_dir, overrides=("stall_timeout=17", "eval.max_retries=9"))
        await run_evaluation(None, options=changed)
        kept = (run_dir / "config.toml").read_text()
    assert "stall_timeout = 17" in kept
    assert "max_retries = 9" in kept


@pytest.mark.parametrize("raised", ["LookupError", "SystemExit"])
async def test_an_environment_that_cannot_say_what_its_results_depend_on_is_named(tmp_path, raised):
    module = f"silent_by_{raised}"
    (tmp_path / f"{module}.py").write_text(
        "import scavenge\n"
        "class Silent(scavenge.Environment):\n"
        "    def examples(self):\n"
        "        return []\n"
        "    def identity(self):\n"
        f"        raise {raised}('no data')\n"
        "    async def play(self, example, model):\n"
        "        raise AssertionError\n"
    )
    async with open_http_fleet(plan()) as fleet:
        change = RunOptions(overrides=(f"eval.env_id={module}:Silent", "eval.env_args={}"))
        told = rf"cannot say what its results depend on: {raised}: no data \({module}\.py, line 6\)$"
        with pytest.raises(EnvironmentBroken, match=told):
            await run_evaluation(write(tmp_path, fleet), options=change)
