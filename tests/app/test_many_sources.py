"""Several sources of a file are opened, asked, checked and merged; those that are foreign code may fail in any way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

import scavenge
from scavenge.app import parts
from scavenge.app.check import check_file
from scavenge.app.evaluation import run_evaluation
from scavenge.config import load_run_text
from scavenge.core.redaction import Redactor
from scavenge.errors import ConfigError
from scavenge.events import Event, SourceChanged
from scavenge.plugin import EndpointSourceType, hookimpl
from scavenge.plugins.manager import load_plugins
from scavenge.testing import FleetPlan, SimulatedServer, open_http_fleet
from scavenge.testing.engine import EngineSettings
from scavenge.types import EndpointSpec, Listing


@attrs.frozen
class HowConfig:
    how: str
    url: str = "http://127.0.0.1:9/v1"


@attrs.frozen
class HowSource:
    config: HowConfig
    dead: trio.Event

    async def list_endpoints(self) -> Listing:
        if self.config.how == "hangs":
            await trio.sleep_forever()
        if self.config.how == "dies":
            self.dead.set()
        return Listing([EndpointSpec(endpoint_id="sim", model="sim", url=self.config.url)])


class Plugin:
    """Adds a source that fails as its configuration says."""

    @hookimpl
    def scavenge_endpoint_sources(self) -> list[EndpointSourceType]:
        @asynccontextmanager
        async def open_how(config: HowConfig) -> AsyncIterator[HowSource]:
            if config.how == "cannot be opened":
                raise ConnectionError("nobody there")
            dead = trio.Event()

            async def die() -> None:
                await dead.wait()
                raise ConnectionError("watch lost")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(die)
                yield HowSource(config, dead)
                nursery.cancel_scope.cancel()

        return [EndpointSourceType("how", HowConfig, open_how)]


@pytest.fixture(autouse=True)
def _plugin(monkeypatch) -> None:
    monkeypatch.setattr(parts, "load_plugins", lambda environ: load_plugins(environ, plugins={"how": Plugin()}))


def write(folder: Path, sources: str, elastic: bool = True, rows: int = 1) -> Path:
    (folder / "rows.jsonl").write_text(
        "".join(f'{{"id": "{i}", "question": "What is {i} + 1?", "answer": "{i + 1}"}}\n' for i in range(rows))
    )
    file = folder / "eval.toml"
    file.write_text(
        f"elastic = {str(elastic).lower()}\nelastic_poll_interval = 0.1\n{sources}\n"
        '[[eval]]\nenv_id = "chat"\nendpoint_id = "sim"\nmax_concurrent = 1\n'
        'env_args = { dataset = "rows.jsonl", scorer = "numeric" }\n'
    )
    return file


def how(kind: str, url: str = "http://127.0.0.1:9/v1") -> str:
    return f'[[source]]\ntype = "how"\nhow = "{kind}"\nurl = "{url}"\n'


async def test_a_run_over_a_source_that_dies_after_each_answer_finishes(tmp_path):
    events: list[Event] = []
    async with open_http_fleet(FleetPlan([SimulatedServer("ep1", EngineSettings(0.001, 0.0, 8))])) as fleet:
        (row,) = fleet.rows()
        result = await run_evaluation(write(tmp_path, how("dies", str(row.url)), rows=5), observers=[events.append])
    assert result.exit_code == 0
    told = [event for event in events if isinstance(event, SourceChanged)]
    assert "ConnectionError: watch lost; the last good listing, 1 endpoint, stands" in told[0].message


async def test_sources_that_disagree_about_a_pool_are_told_with_the_later_one_s_place(tmp_path):
    for name, model in (("one", "m"), ("two", "n")):
        text = f'[[endpoint]]\nendpoint_id = "sim"\nmodel = "{model}"\nurl = "http://{name}.invalid/v1"\n'
        (tmp_path / f"{name}.toml").write_text(text)
    files = "".join(f'[[source]]\ntype = "file"\npath = "{name}.toml"\n' for name in ("one", "two"))
    with pytest.raises(ConfigError) as caught:
        await run_evaluation(write(tmp_path, files))
    (problem,) = caught.value.problems
    assert problem.where.startswith(f"{tmp_path / 'two.toml'}: endpoint[0]")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("cannot be opened", "cannot be opened: ConnectionError: nobody there"),
        ("hangs", "no answer within 15 s"),
    ],
)
async def test_a_check_tells_of_a_source_that_cannot_say(tmp_path, autojump_clock, kind, says):
    report = await check_file(write(tmp_path, how(kind)), {}, Redactor())
    (warning,) = report.warnings
    assert warning.endswith(f"{says}; an elastic run waits for it")
    report = await check_file(write(tmp_path, how(kind), elastic=False), {}, Redactor())
    (problem,) = report.problems
    assert (problem.what, report.exit_code) == (says, 2)


@pytest.mark.parametrize("elastic", [True, False])
async def test_a_check_goes_on_when_a_source_dies_after_its_answer(tmp_path, elastic):
    async with open_http_fleet(FleetPlan([SimulatedServer("ep1", EngineSettings(0.001, 0.0, 8))])) as fleet:
        (row,) = fleet.rows()
        report = await check_file(write(tmp_path, how("dies", str(row.url)), elastic=elastic), {}, Redactor())
    assert (report.exit_code, [found.outcome for found in report.endpoints]) == (0, ["healthy"])
    assert any("watch lost, after it had answered" in warning for warning in report.warnings)


async def test_a_pool_of_a_program_may_come_from_settings_with_sources_of_their_own(tmp_path):
    text = '[[source]]\ntype = "simulated"\nservers = 1\n'
    settings = load_run_text(text, tmp_path, "pool.toml", need_evals=False)
    async with scavenge.open_pool(settings) as pool:
        assert (await pool.chat([{"role": "user", "content": "What is 2 + 3?"}])).text
    failing = load_run_text(how("cannot be opened"), tmp_path, "pool.toml", need_evals=False)
    with pytest.raises(ConnectionError, match="nobody there"):
        async with scavenge.open_pool(failing):
            pytest.fail("opened")
