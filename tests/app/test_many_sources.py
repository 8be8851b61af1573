"""Several sources of a file are opened, asked, checked and merged; those that are foreign code may fail in any way."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
import trio

import scavenge
from scavenge.app import parts
from scavenge.app.check import check_file, report_text
from scavenge.app.check_sources import SOURCE_WITHIN_S
from scavenge.app.evaluation import run_evaluation
from scavenge.app.pool_opening import opening_of_settings, opening_of_source
from scavenge.config import load_run, parse_run
from scavenge.core.redaction import Redactor
from scavenge.errors import ConfigError, SourceError
from scavenge.events import Event, SourceChanged
from scavenge.listings import EndpointSpec, Listing, placed
from scavenge.plugin import EndpointSourceType, hookimpl
from scavenge.plugins.manager import load_plugins
from scavenge.testing import FleetPlan, SimulatedServer, open_http_fleet
from scavenge.testing.engine import EngineSettings


@attrs.frozen
class HowConfig:
    how: str
    url: str = "http://127.0.0.1:9/v1"
    cap: int | None = None


@attrs.frozen
class HowSource:
    config: HowConfig
    dead: trio.Event

    async def list_endpoints(self) -> Listing:
        if self.config.how == "hangs":
            await trio.sleep_forever()
        if self.config.how == "is slow":
            await trio.sleep(1)
        if self.config.how == "dies":
            self.dead.set()
        if self.config.how == "raises":
            raise OSError("no answer")
        row = EndpointSpec(endpoint_id="sim", model="sim", url=self.config.url, max_concurrent=self.config.cap)
        if self.config.how == "drains":
            row = attrs.evolve(row, drain_deadline=datetime(2100, 1, 1, tzinfo=UTC))
        if self.config.how == "gives no listing":
            return [row]  # type: ignore[return-value]
        return Listing(3 if self.config.how == "lists no list" else [row])  # type: ignore[arg-type]


class Plugin:
    """Adds a source that fails as its configuration says; ``open_now`` counts those that are open."""

    open_now = 0

    @hookimpl
    def scavenge_endpoint_sources(self) -> list[EndpointSourceType]:
        @asynccontextmanager
        async def open_how(config: HowConfig) -> AsyncIterator[HowSource]:
            if config.how == "cannot be opened":
                raise ConnectionError("nobody there")
            if config.how == "yields nothing":
                yield None  # type: ignore[misc]
                return
            dead = trio.Event()

            async def die() -> None:
                await dead.wait()
                raise ConnectionError("watch lost")

            self.open_now += 1
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(die)
                    yield HowSource(config, dead)
                    nursery.cancel_scope.cancel()
            finally:
                self.open_now -= 1

        return [EndpointSourceType("how", HowConfig, open_how)]


@pytest.fixture(autouse=True)
def plugin(monkeypatch) -> Plugin:
    plugin = Plugin()
    monkeypatch.setattr(parts, "load_plugins", lambda environ: load_plugins(environ, plugins={"how": plugin}))
    return plugin


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


def how(kind: str, url: str = "http://127.0.0.1:9/v1", cap: int | None = None) -> str:
    text = f'[[source]]\ntype = "how"\nhow = "{kind}"\nurl = "{url}"\n'
    return text if cap is None else f"{text}cap = {cap}\n"


async def test_a_run_over_a_source_that_dies_after_each_answer_finishes(tmp_path):
    events: list[Event] = []
    async with open_http_fleet(FleetPlan([SimulatedServer("ep1", EngineSettings(0.001, 0.0, 8))])) as fleet:
        (row,) = fleet.rows()
        result = await run_evaluation(write(tmp_path, how("dies", str(row.url)), rows=5), observers=[events.append])
    assert result.exit_code == 0
    told = [event for event in events if isinstance(event, SourceChanged)]
    place = r"\(test_many_sources\.py, line \d+\)"
    assert re.search(
        f"ConnectionError: watch lost {place}; the last good listing, 1 endpoint, stands$", told[0].message
    )


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
        ("hangs", "no answer within 15 s"),
        (
            "raises",
            f"OSError: no answer (test_many_sources.py, line {HowSource.list_endpoints.__code__.co_firstlineno + 8})",
        ),
        ("lists no list", "expected a list of endpoints, got 3"),
        ("gives no listing", "list_endpoints() returned list, not a Listing"),
    ],
)
async def test_a_check_tells_of_a_source_that_cannot_say(tmp_path, autojump_clock, kind, says):
    started_at = trio.current_time()
    report = await check_file(write(tmp_path, how(kind) + how("hangs")), {}, Redactor())
    assert trio.current_time() - started_at < 2 * SOURCE_WITHIN_S
    assert report.warnings[0].endswith(f"{says}; an elastic run waits for it")
    assert (len(report.warnings), report.problems, report.exit_code) == (2, (), 4)
    report = await check_file(write(tmp_path, how(kind), elastic=False), {}, Redactor())
    (problem,) = report.problems
    assert problem.what.endswith(says)
    assert report.exit_code == 2


async def test_a_wrong_row_of_a_listing_without_a_place_is_told_with_its_source(tmp_path):
    file = write(tmp_path, how("lists") + how("lists", cap=0), elastic=False)
    place = f"{file}: source[1]: endpoint[0].max_concurrent"
    report = await check_file(file, {}, Redactor())
    assert [problem.where for problem in report.problems] == [place]
    with pytest.raises(ConfigError) as caught:
        await run_evaluation(file)
    assert [problem.where for problem in caught.value.problems] == [place]
    with pytest.raises(ConfigError) as caught:
        await opening_of_settings(attrs.evolve(load_run(file), evals=()), None)
    assert [problem.where for problem in caught.value.problems] == [place]


async def test_a_wrong_row_of_a_source_of_a_program_is_told_with_its_class():
    source = HowSource(HowConfig("lists", cap=0), trio.Event())
    with pytest.raises(ConfigError) as caught:
        await opening_of_source(source, None)
    assert [problem.where for problem in caught.value.problems] == ["HowSource: endpoint[0].max_concurrent"]


def test_a_listing_that_names_its_place_keeps_it():
    assert placed(Listing([], "hosts.json"), "source") == Listing([], "hosts.json")
    assert placed(Listing([]), "source") == Listing([], "source")


@pytest.mark.parametrize("elastic", [True, False])
async def test_a_source_that_cannot_be_opened_is_refused_by_the_check_as_by_the_run(tmp_path, elastic):
    file = write(tmp_path, how("cannot be opened"), elastic=elastic)
    report = await check_file(file, {}, Redactor())
    (what,) = [problem.what for problem in report.problems]
    assert what.startswith("cannot be opened: ConnectionError: nobody there (test_many_sources.py, line ")
    with pytest.raises(scavenge.PluginError) as caught:
        await run_evaluation(file)
    assert caught.value.exit_code == report.exit_code == 2


async def test_a_cancelled_check_closes_the_sources_that_it_has_opened(tmp_path, autojump_clock, plugin):
    file = write(tmp_path, how("hangs") + how("lists"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(check_file, file, {}, Redactor())
        await trio.sleep(1)
        assert plugin.open_now == 2
        nursery.cancel_scope.cancel()
    assert plugin.open_now == 0


OTHER = "http://127.0.0.1:10/v1"


@pytest.mark.parametrize("elastic", [True, False])
@pytest.mark.parametrize(
    "sources",
    [how("lists", cap=4) + how("lists", OTHER), how("lists") + how("lists", OTHER, cap=4)],
    ids=["the first has caps", "the second has caps"],
)
async def test_sources_that_disagree_about_caps_are_refused_by_the_check_as_by_the_run(tmp_path, sources, elastic):
    file = write(tmp_path, sources, elastic=elastic)
    report = await check_file(file, {}, Redactor())
    with pytest.raises(ConfigError) as caught:
        await run_evaluation(file)
    assert (report.exit_code, report.problems) == (caught.value.exit_code, caught.value.problems)
    assert [found.url for found in report.endpoints] == ["http://127.0.0.1:9/v1"]


async def test_an_endpoint_that_two_sources_list_is_looked_at_once_as_the_first_of_them_lists_it(tmp_path):
    sources = how("lists", cap=4) + how("lists", cap=9) + how("lists", OTHER, cap=2)
    report = await check_file(write(tmp_path, sources), {}, Redactor())
    eval_file = tmp_path / "eval.toml"
    assert [(found.url, found.max_concurrent, found.source) for found in report.endpoints] == [
        ("http://127.0.0.1:9/v1", 4, f"{eval_file}: source[0]"),
        (OTHER, 2, f"{eval_file}: source[2]"),
    ]
    assert report.slots == 6
    head, *rows = report_text(report).splitlines()
    assert "  source" in head
    assert "eval.toml: source[2]" in rows[1]


async def test_the_first_source_of_the_file_wins_also_when_it_answers_last(tmp_path, autojump_clock):
    report = await check_file(write(tmp_path, how("is slow", cap=4) + how("lists", cap=9)), {}, Redactor())
    assert [found.max_concurrent for found in report.endpoints] == [4]


async def test_an_endpoint_that_will_be_taken_away_is_draining_for_the_check_as_for_the_run(tmp_path):
    async with open_http_fleet(FleetPlan([SimulatedServer("ep1", EngineSettings(0.001, 0.0, 8))])) as fleet:
        (row,) = fleet.rows()
        report = await check_file(write(tmp_path, how("drains", str(row.url))), {}, Redactor())
    assert ([found.state for found in report.endpoints], report.exit_code) == (["draining"], 4)


@pytest.mark.parametrize("elastic", [True, False])
async def test_a_check_goes_on_when_a_source_dies_after_its_answer(tmp_path, elastic):
    async with open_http_fleet(FleetPlan([SimulatedServer("ep1", EngineSettings(0.001, 0.0, 8))])) as fleet:
        (row,) = fleet.rows()
        report = await check_file(write(tmp_path, how("dies", str(row.url)), elastic=elastic), {}, Redactor())
    assert (report.exit_code, [found.outcome for found in report.endpoints]) == (0, ["healthy"])
    told = r"watch lost \(test_many_sources\.py, line \d+\), after it had answered"
    assert any(re.search(told, warning) for warning in report.warnings)


async def test_a_pool_of_a_program_may_come_from_settings_with_sources_of_their_own(tmp_path):
    text = '[[source]]\ntype = "simulated"\nservers = 1\n'
    settings = parse_run(text.encode(), tmp_path, "pool.toml", need_evals=False)
    async with scavenge.open_pool(settings) as pool:
        assert (await pool.chat([{"role": "user", "content": "What is 2 + 3?"}])).text
    empty = parse_run(how("yields nothing").encode(), tmp_path, "pool.toml", need_evals=False)
    with pytest.raises(SourceError, match=r"its open\(\) yielded None; yield the source"):
        async with scavenge.open_pool(empty):
            pytest.fail("opened")
    failing = parse_run(how("cannot be opened").encode(), tmp_path, "pool.toml", need_evals=False)
    with pytest.raises(ConnectionError, match="nobody there"):
        async with scavenge.open_pool(failing):
            pytest.fail("opened")
