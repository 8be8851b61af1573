"""Whole evaluations whose environment lives in workers: fake processes that ask the real pool through the desk."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import attrs
import pytest
import trio
from fleet_kit import Kit, open_kit
from in_place import InPlace
from worker_kit import SETTINGS, FakeLauncher, FakeProcess

from scavenge.calls import Call
from scavenge.core.plan import OrderSettings, Plan
from scavenge.core.retry import RetrySettings
from scavenge.core.supervision import SupervisorSettings
from scavenge.core.worker_messages import Abort, Aborted, Load, Play, Played, PlayFailed, ReadRows, Ready, Rows, Stop
from scavenge.errors import ConfigError, Problem, UnknownSession
from scavenge.rollouts import ErrorInfo, Example, Failure, Rollout
from scavenge.runtime.desk import SessionDesk
from scavenge.runtime.runner import EvalJob, EvalRun
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import SessionPorts
from scavenge.runtime.workerhost import WorkerHost, open_workers
from scavenge.runtime.workerpool import WorkerPool
from scavenge.testing import EngineSettings, SimulatedFleet, SimulatedServer
from scavenge.types import ApiType, Json, ModelAddress


@attrs.define(eq=False)
class Asking:
    """The script of a worker whose rollouts ask the model ``turns`` times, with some computing before each."""

    desk: SessionDesk
    count: int = 40
    turns: int = 2
    computing_s: float = 0.1
    multi_turn: bool = True
    fail: dict[str, Failure] = attrs.field(factory=dict)
    aborted: list[str] = attrs.field(factory=list)
    playing: int = 0
    most: int = 0

    async def __call__(self, process: FakeProcess) -> None:
        assert isinstance(await process.next(), Load)
        await trio.sleep(0.5)
        process.say(Ready("trio", multi_turn=self.multi_turn))
        scopes: dict[int, trio.CancelScope] = {}
        async with trio.open_nursery() as nursery:
            while True:
                match await process.next():
                    case Play() as play:
                        scopes[play.rollout] = trio.CancelScope()
                        nursery.start_soon(self._play, process, play, scopes[play.rollout])
                    case Abort(number):
                        scopes[number].cancel()
                    case ReadRows(skip, count):
                        rows = tuple(Example(str(n), {}) for n in range(skip, min(skip + count, self.count)))
                        process.say(Rows(skip, rows, last=skip + len(rows) >= self.count))
                    case Stop():
                        nursery.cancel_scope.cancel()
                        break
        process.die("exit code 0")

    async def _play(self, process: FakeProcess, play: Play, scope: trio.CancelScope) -> None:
        self.playing += 1
        self.most = max(self.most, self.playing)
        try:
            with scope:
                text = await self._ask(play)
        finally:
            self.playing -= 1
        if scope.cancelled_caught:
            self.aborted.append(play.example.id)
            process.say(Aborted(play.rollout))
        elif play.example.id in self.fail:
            process.say(PlayFailed(play.rollout, self.fail[play.example.id]))
        else:
            process.say(Played(play.rollout, Rollout(text, 1.0)))

    async def _ask(self, play: Play) -> str:
        text = ""
        for _ in range(self.turns):
            await trio.sleep(self.computing_s)
            try:
                session_id = play.model.base_url.split("/")[-2]
                text = (await self.desk.answer(attrs.evolve(ASKED, session_id=session_id), None)).reply.text
            except UnknownSession:
                await trio.sleep_forever()  # as one whose own cancellation is on its way
        return text


ASKED = Call(
    ApiType.CHAT_COMPLETIONS,
    b'{"messages": [{"role": "user", "content": "hi"}]}',
    {"messages": [{"role": "user", "content": "hi"}]},
)


@attrs.define(eq=False)
class Stage:
    """A run in memory with one evaluation in workers."""

    kit: Kit
    desk: SessionDesk
    launcher: FakeLauncher
    pool: WorkerPool
    run: EvalRun
    told: list[Json]

    async def play(self) -> None:
        async with open_workers([self.pool]):
            await self.kit.play(self.run)

    def results(self) -> Counter[object]:
        return Counter(key[1] for key in self.kit.lines.keys)


@asynccontextmanager
async def open_stage(
    simulated: SimulatedFleet, settings: SupervisorSettings = SETTINGS, rollout_retries: int = 0, **script: object
) -> AsyncIterator[tuple[Stage, Asking]]:
    ids = itertools.count()
    desk = SessionDesk(lambda one: ModelAddress(f"http://gateway/session/{one}/v1", "t"), lambda: f"s{next(ids)}")
    asking = Asking(desk, **script)  # type: ignore[arg-type]
    async with open_kit(simulated) as kit:
        launcher, told = FakeLauncher(asking), list[Json]()
        load = Load("mine:Env", "", "/", "eval.toml: eval[0]")
        pool = WorkerPool("test", load, launcher, settings, Random(3), InPlace(), kit.events.append)
        host = WorkerHost(pool, told.append)
        plan = Plan("test", "mine:Env", settings=OrderSettings("file"))
        requests = RequestSettings(retry=RetrySettings())
        job = EvalJob("test", "mine:Env", host, plan, kit.pool, requests, rollout_retries=rollout_retries)
        ports = SessionPorts(kit.events.append, Random(8), kit.ports.wall_clock, desk)
        run = EvalRun(job, kit.sink, ports, itertools.count().__next__, kit.images)
        yield Stage(kit, desk, launcher, pool, run, told), asking


def two_servers(script: str = "") -> SimulatedFleet:
    return SimulatedFleet(
        [SimulatedServer("a", EngineSettings(slots=8)), SimulatedServer("b", EngineSettings(slots=8))], script
    )


async def test_every_rollout_has_one_result_and_its_attempts_are_on_record(autojump_clock):
    async with open_stage(two_servers()) as (stage, _):
        await stage.play()
        assert stage.results() == {str(n): 1 for n in range(40)}
        assert len(stage.kit.lines.attempts()) == 80
        assert stage.told == [{}]


async def test_workers_and_servers_that_die_cost_no_result(autojump_clock):
    async with (
        open_stage(two_servers("t=3 kill a; t=6 restart a"), attrs.evolve(SETTINGS, min=2), count=200) as (stage, _),
        trio.open_nursery() as killers,
    ):

        async def kill_now_and_then() -> None:
            while True:
                await trio.sleep(1.3)
                if stage.launcher.live:
                    stage.launcher.live[-1].die("SIGKILL")

        killers.start_soon(kill_now_and_then)
        await stage.play()
        killers.cancel_scope.cancel()
        assert stage.results() == {str(n): 1 for n in range(200)}
        assert len(stage.launcher.processes) > 4
        assert stage.kit.pool.dispatcher.held() == [], "no slot is left with a rollout of a dead worker"


async def test_no_more_rollouts_are_under_way_than_all_workers_have_places(autojump_clock):
    async with open_stage(two_servers(), attrs.evolve(SETTINGS, max=2, multiplex=3)) as (stage, asking):
        assert stage.run.job.host.room == 6
        await stage.play()
        assert asking.most == 6


async def test_a_rollout_that_computes_before_its_only_request_holds_no_slot(autojump_clock):
    held: list[int] = []
    async with (
        open_stage(two_servers(), turns=1, computing_s=5, multi_turn=False) as (stage, asking),
        trio.open_nursery() as nursery,
    ):

        async def look() -> None:
            await trio.sleep(3)
            assert asking.playing
            held.append(len(stage.kit.pool.dispatcher.held()))

        nursery.start_soon(look)
        await stage.play()
    assert held == [0]


async def test_a_rollout_that_failed_in_its_environment_is_played_again_and_a_final_failure_is_not(autojump_clock):
    again, final = Failure(ErrorInfo("ValueError", "odd")), Failure(ErrorInfo("RequestFailed", "no"), final=True)
    async with open_stage(two_servers(), rollout_retries=2, count=2, fail={"0": again, "1": final}) as (stage, _):
        await stage.play()
        attempts = Counter(len(line["attempts"]) for line in stage.kit.lines.written)
        assert attempts == {6: 1, 2: 1}


async def test_a_run_that_stops_aborts_what_is_in_the_workers_and_gives_every_slot_back(autojump_clock):
    async with open_stage(two_servers(), computing_s=2, turns=5) as (stage, asking):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.play)
            await trio.sleep(5)
            stage.kit.run.stop(ConfigError([Problem("here", "enough")]))
        assert stage.kit.pool.dispatcher.held() == []
        assert stage.results() == {}
        assert len(asking.aborted) + asking.playing > 0
        assert not stage.launcher.live


async def test_what_the_results_depend_on_can_refuse_the_run_before_anything_is_played(autojump_clock):
    async with open_stage(two_servers()) as (stage, asking):

        def refuse(told: Json) -> None:
            raise ConfigError([Problem("eval 'test': data.digest", "differs")])

        stage.run.job.host.learn = refuse
        with pytest.raises(ConfigError, match="differs"):
            await stage.play()
        assert asking.most == 0
