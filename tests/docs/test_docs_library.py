"""The library page names what the package offers, with its defaults, and its programs run."""

from __future__ import annotations

import inspect
import json
import runpy
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import tomli_w
import trio
from pages import FENCE, blocks, keyed, read, words

import scavenge
from scavenge.config.load import load_run
from scavenge.testing import EngineSettings, FleetPlan, HttpFleet, SimulatedServer, open_http_fleet

PAGE = read("reference/library.md")
PROSE = FENCE.sub("", PAGE)
TABLES = keyed(PROSE)
POOL, OBSERVED, EVALUATION, ERRORS = blocks(PAGE, "python")
VALUES = (
    "Attempt", "Completion", "Endpoint", "EndpointSpec", "EndpointStatus", "Example", "FleetStatus",
    "GateView", "Listing", "PoolStatus", "Problem", "Rollout", "SessionsStatus", "SourceStatus", "Usage",
)  # fmt: skip


@pytest.fixture
async def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpFleet]:
    """Two servers, and the tutorial's files in the current folder, which lead to them."""
    monkeypatch.chdir(tmp_path)
    _, evaluation = blocks(read("tutorial/own-servers.md"), "toml")
    (questions,) = blocks(read("tutorial/own-servers.md"), "json")
    save("eval.toml", evaluation)
    save("questions.jsonl", questions)
    engine = EngineSettings(0.0005, 0.0, 8)
    servers = [SimulatedServer(name, engine, endpoint_id="my-model") for name in ("ep1", "ep2")]
    async with open_http_fleet(FleetPlan(servers)) as fleet:
        rows = [attrs.asdict(row, filter=lambda _, value: value is not None) for row in fleet.rows()]
        save("endpoints.toml", tomli_w.dumps({"endpoint": rows}))
        yield fleet


def save(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")


async def run_program(code: str) -> None:
    """Run a whole program, event loop and all, in a thread of its own."""
    save("program.py", code)
    with trio.fail_after(30):
        await trio.to_thread.run_sync(runpy.run_path, "program.py")


async def test_the_program_with_a_pool_asks_talks_borrows_and_looks(fleet, capsys):
    await run_program(POOL)
    completion, *rest, first, second = capsys.readouterr().out.splitlines()
    urls = {str(row.url) for row in fleet.rows()}
    assert "Usage(prompt_tokens=" in completion
    assert any(url in completion for url in urls)
    assert rest[-1] in {f"{url} 200" for url in urls}
    assert {first.split()[0], second.split()[0]} == urls
    assert {line.split()[2] for line in (first, second)} == {"0"}
    assert sum(server.finished for server in fleet.truth.values()) == 3


async def test_the_program_with_an_observer_hears_of_health_and_looks_at_the_source(fleet, capsys):
    await run_program(OBSERVED)
    *told, source = capsys.readouterr().out.splitlines()
    assert {line.split(" ", 2)[1] for line in told} == {"live"}
    assert {line.split()[0] for line in told} <= {str(row.url) for row in fleet.rows()}
    assert source == "endpoints.toml 2 None"


async def test_the_program_with_an_evaluation_plays_it_and_hears_of_each_result(fleet, capsys):
    await run_program(EVALUATION)
    *results, last = capsys.readouterr().out.splitlines()
    exit_code, run_dir, _ = last.split()
    lines = [json.loads(line) for line in (Path(run_dir) / "results.jsonl").read_text().splitlines()]
    assert exit_code == "0"
    assert sorted(results) == sorted(f"{line['example_id']} {line['reward']}" for line in lines)
    assert len(results) == 2


async def test_the_program_that_catches_errors_tells_how_a_reply_ended(fleet, capsys):
    await run_program(ERRORS)
    assert capsys.readouterr().out.strip() in ("stop", "length")


async def test_settings_that_were_loaded_are_a_source_of_a_pool(fleet):
    async with scavenge.open_pool(load_run("eval.toml")) as pool:
        assert (await pool.chat([{"role": "user", "content": "What is 2 + 3?"}])).text


def test_every_public_name_is_on_the_page():
    told = {word.split("(")[0] for word in words(PROSE)}
    assert {name for name in scavenge.__all__ if name not in told} == set()


@pytest.mark.parametrize("name", VALUES)
def test_every_field_of_a_value_is_there(name):
    fields = {field.name for field in attrs.fields(getattr(scavenge, name))}
    assert {word for word in words(TABLES[name][0]) if word in fields} == fields


def test_every_value_is_looked_at():
    frozen = {name for name in scavenge.__all__ if attrs.has(getattr(scavenge, name))}
    assert frozen - {"ClientLease", "ModelPool", "RunOptions", "RunResult"} == set(VALUES)


def test_every_argument_of_open_pool_is_there_with_its_default():
    for name, argument in inspect.signature(scavenge.open_pool).parameters.items():
        required = argument.default is inspect.Parameter.empty
        assert TABLES[name][0] == ("required" if required else f"`{argument.default!r}`"), name


def test_every_argument_of_run_evaluation_is_there_with_its_default():
    arguments = inspect.signature(scavenge.run_evaluation).parameters.values()
    optional = [f"{one.name}={one.default!r}" for one in arguments if one.kind is inspect.Parameter.KEYWORD_ONLY]
    assert f"`run_evaluation(source, *, {', '.join(optional)})`" in PAGE


def test_every_option_of_a_run_is_there_with_its_default():
    _, _, part = PAGE.partition("| field of `RunOptions` |")
    table = keyed(part.partition("\n\n")[0])
    assert {name: cells[0] for name, cells in table.items()} == {
        field.name: f"`{field.default!r}`" for field in attrs.fields(scavenge.RunOptions)
    }


def test_every_field_of_a_result_of_a_run_is_there():
    _, _, part = PAGE.partition("| field of `RunResult` |")
    table = keyed(part.partition("\n\n")[0])
    assert set(table) == {field.name for field in attrs.fields(scavenge.RunResult)}


@pytest.mark.parametrize("kind", [scavenge.ModelPool, scavenge.Environment, scavenge.ModelSession])
def test_every_public_method_is_there(kind):
    methods = [name for name, value in vars(kind).items() if inspect.isfunction(value) and name[0] != "_"]
    told = {part for word in words(PROSE) for part in word.replace("(", " ").split()}
    assert methods
    assert set(methods) <= told


def test_a_lease_has_what_the_page_says():
    assert {field.name for field in attrs.fields(scavenge.ClientLease)} == {"endpoint", "client"}
    assert "A `ClientLease` has `endpoint` and `client`" in PAGE
