"""``run_evaluation`` inside somebody else's Trio program: it keeps to its scope, and leaves nothing behind."""

from __future__ import annotations

import json
import logging
import signal
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from scavenge.app.evaluation import run_evaluation
from scavenge.app.options import RunOptions
from scavenge.errors import ConfigError
from scavenge.events import Event, RolloutFinished, RolloutStarted, RunStarted, Warned
from scavenge.testing.engine import EngineSettings
from scavenge.testing.served import SimulatedServer
from scavenge.testing.server import FleetPlan, open_http_fleet

COUNT = 40


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    rows = ({"id": str(n), "question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(COUNT))
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "eval.toml").write_text(
        'elastic = true\nelastic_poll_interval = 0.1\nendpoints_path = "endpoints.toml"\n'
        '[[eval]]\nenv_id = "chat"\nendpoint_id = "sim"\nenv_args = { dataset = "data.jsonl", scorer = "none" }\n'
    )
    return tmp_path / "eval.toml"


def plan(token_s: float = 0.0005) -> FleetPlan:
    return FleetPlan([SimulatedServer("ep1", EngineSettings(token_s, 0.0, 8), max_concurrent=8)])


def list_in(folder: Path, url: str) -> None:
    (folder / "endpoints.toml").write_text(
        f'[[endpoint]]\nendpoint_id = "sim"\nmodel = "sim"\nurl = "{url}"\nmax_concurrent = 8\n'
    )


def results(folder: Path) -> list[dict[str, object]]:
    (run_dir,) = (folder / "runs").iterdir()
    return [json.loads(line) for line in (run_dir / "results.jsonl").read_bytes().splitlines()]


class Counter:
    """An observer that counts, and tells when enough have finished."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.started = self.finished = 0
        self.reached = trio.Event()

    def __call__(self, event: Event) -> None:
        self.started += isinstance(event, RolloutStarted)
        self.finished += isinstance(event, RolloutFinished)
        if self.finished >= self.enough:
            self.reached.set()


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def wait_tasks(number: int) -> None:
    """Wait until no more tasks than that are left; the servers notice closed connections when they get to it."""
    with trio.fail_after(10):
        while tasks() > number:
            await trio.testing.wait_all_tasks_blocked(0.01)


async def test_it_returns_how_the_run_ended_and_leaves_no_task_and_no_handler(evaluation):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    log_handlers = logging.getLogger().handlers[:]
    async with open_http_fleet(plan()) as fleet:
        list_in(evaluation.parent, fleet.nodes["ep1"].url)
        before = tasks()
        result = await run_evaluation(evaluation)
        await wait_tasks(before)
    assert (result.exit_code, result.why) == (0, None)
    assert result.summary.evals[0].ok == len(results(evaluation.parent)) == COUNT
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert logging.getLogger().handlers == log_handlers


async def test_cancelled_by_its_callers_scope_it_keeps_what_was_finished_and_passes_the_cancellation_on(evaluation):
    counter = Counter(5)
    async with open_http_fleet(plan(0.02)) as fleet:
        list_in(evaluation.parent, fleet.nodes["ep1"].url)
        before = tasks()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def cancel() -> None:
                    await counter.reached.wait()
                    scope.cancel()

                nursery.start_soon(cancel)
                await run_evaluation(evaluation, observers=[counter])
                pytest.fail("it swallowed the cancellation")
        assert scope.cancelled_caught
        await wait_tasks(before)
        lines = results(evaluation.parent)
        assert 5 <= counter.finished == len(lines) < COUNT
        assert fleet.truth["ep1"].peak_in_flight <= 8
    (run_dir,) = (evaluation.parent / "runs").iterdir()
    async with open_http_fleet(plan()) as fleet:
        list_in(evaluation.parent, fleet.nodes["ep1"].url)
        again = await run_evaluation(None, options=RunOptions(resume=run_dir))
    assert again.exit_code == 0
    assert again.summary.evals[0].ok == len(results(evaluation.parent)) == COUNT


async def test_cancelled_while_it_waits_for_an_endpoint_it_ends_at_once(evaluation):
    with trio.fail_after(20):
        with trio.move_on_after(0.3) as scope:
            await run_evaluation(evaluation)
        assert scope.cancelled_caught


async def test_a_wrong_file_raises_bare_before_anything_is_made(evaluation):
    evaluation.write_text(evaluation.read_text().replace("elastic =", "elastik ="))
    with pytest.raises(ConfigError, match="elastik"):
        await run_evaluation(evaluation)
    assert not (evaluation.parent / "runs").exists()


async def test_two_runs_side_by_side_in_one_program_keep_apart(evaluation):
    found = []

    async def play(name: str) -> None:
        found.append(await run_evaluation(evaluation, options=RunOptions(name=name)))

    async with open_http_fleet(plan()) as fleet:
        list_in(evaluation.parent, fleet.nodes["ep1"].url)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(play, "one")
            nursery.start_soon(play, "two")
    assert [result.exit_code for result in found] == [0, 0]
    assert len({result.run_dir for result in found}) == 2
    assert [result.summary.evals[0].ok for result in found] == [COUNT, COUNT]


def test_it_runs_in_a_thread_that_is_not_the_main_one(evaluation):
    found: list[object] = []

    async def play() -> None:
        async with open_http_fleet(plan()) as fleet:
            list_in(evaluation.parent, fleet.nodes["ep1"].url)
            found.append((await run_evaluation(str(evaluation))).exit_code)

    def work() -> None:
        try:
            trio.run(play)
        except BaseException as exc:
            found.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert found == [0]


async def test_what_an_observer_raises_is_not_swallowed(evaluation):
    def broken(event: Event) -> None:
        if isinstance(event, RolloutFinished):
            raise ZeroDivisionError

    async with open_http_fleet(plan()) as fleet:
        list_in(evaluation.parent, fleet.nodes["ep1"].url)
        with pytest.raises(ZeroDivisionError):
            await run_evaluation(evaluation, observers=[broken])


async def test_figures_that_cannot_be_kept_up_to_date_are_told_once_and_do_not_end_the_run(evaluation, monkeypatch):
    monkeypatch.setattr("scavenge.app.evaluation.SUMMARY_EVERY_S", 0.01)
    warnings: list[str] = []

    def in_the_way(event: Event) -> None:
        if isinstance(event, RunStarted):
            (Path(event.run_dir) / "summary.json").mkdir()
        elif isinstance(event, Warned):
            warnings.append(event.message)
        elif isinstance(event, RolloutFinished) and warnings:
            for folder in (evaluation.parent / "runs").glob("*/summary.json"):
                if folder.is_dir():
                    folder.rmdir()

    async with open_http_fleet(plan()) as fleet:
        list_in(evaluation.parent, fleet.nodes["ep1"].url)
        result = await run_evaluation(evaluation, observers=[in_the_way])
    assert result.exit_code == 0
    assert [text.partition(":")[0] for text in warnings] == ["the figures are not kept up to date"]
    assert json.loads((result.run_dir / "summary.json").read_text())["evals"][0]["ok"] == COUNT
