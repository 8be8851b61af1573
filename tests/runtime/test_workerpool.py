"""Rollouts in a pool of workers as their tasks see them, over processes in memory on a virtual clock."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from worker_kit import Diligent, FakeProcess, WorkersKit, open_kit, play, play_many, serve, settings

from scavenge.core.worker_messages import Abort, Aborted, Play, Played, PlayFailed
from scavenge.events import WorkerEnded, WorkerReady, WorkersChanged, WorkerStarting
from scavenge.rollouts import ErrorInfo, Failure, Rollout
from scavenge.runtime.hosting import Displaced, PlayResult
from scavenge.testing import cancel_at_every_step


async def test_the_first_rollout_waits_until_a_worker_has_loaded_the_environment(autojump_clock):
    async with open_kit(Diligent(loading_s=5, playing_s=1)) as kit:
        assert await play(kit, 1) == Rollout("1", 1.0)
    assert trio.current_time() == pytest.approx(6, abs=0.01)
    assert [type(event) for event in kit.events if not isinstance(event, WorkersChanged)] == [
        WorkerStarting,
        WorkerReady,
        WorkerEnded,
    ]


async def test_what_a_worker_could_not_play_is_that_rollouts_failure(autojump_clock):
    failure = Failure(ErrorInfo("ValueError", "no such thing (mine.py, line 3)"))

    async def script(process: FakeProcess) -> None:
        await serve(process)
        asked = await process.next()
        assert isinstance(asked, Play)
        process.say(PlayFailed(asked.rollout, failure))

    async with open_kit(script) as kit:
        assert await play(kit, 1) == failure


async def test_a_thousand_rollouts_through_workers_of_which_one_dies_every_second_come_once_each(autojump_clock):
    diligent = Diligent(loading_s=0.3, playing_s=0.2)
    async with open_kit(diligent, settings(min=4, multiplex=4)) as kit, trio.open_nursery() as killers:

        async def kill_one_every_second() -> None:
            while True:
                await trio.sleep(1)
                if kit.launcher.live:
                    kit.launcher.live[0].die("SIGKILL")

        killers.start_soon(kill_one_every_second)
        results = await play_many(kit, 1000, 16)
        killers.cancel_scope.cancel()
    ends = {number: [one for one in came if not isinstance(one, Displaced)] for number, came in results.items()}
    assert len(ends) == 1000
    assert all(end == [Rollout(str(number), 1.0)] for number, end in ends.items())
    displaced = sum(isinstance(one, Displaced) for came in results.values() for one in came)
    died = [event for event in kit.of(WorkerEnded) if event.how == "died serving"]
    assert len(died) > 5
    assert displaced == sum(event.displaced for event in died) > 5


async def test_replies_that_were_written_before_a_death_count_and_only_the_others_are_played_again(autojump_clock):
    lives = 0

    async def script(process: FakeProcess) -> None:
        nonlocal lives
        lives += 1
        await serve(process)
        first, second = [await process.next() for _ in range(2)]
        assert isinstance(first, Play)
        assert isinstance(second, Play)
        process.say(Played(first.rollout, Rollout(f"life {lives}", 1.0)))
        if lives == 1:
            process.die("SIGSEGV")
        process.say(Played(second.rollout, Rollout(f"life {lives}", 1.0)))

    results: dict[int, list[PlayResult]] = {}
    async with open_kit(script, settings(max=1)) as kit, trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(play, kit, number, results)
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(2)
        nursery.start_soon(play, kit, 2, results)  # the second life waits for two
    assert results[0] == [Rollout("life 1", 1.0)]
    assert isinstance(results[1][0], Displaced)
    assert results[1][1:] == [Rollout("life 2", 1.0)]
    ended = kit.of(WorkerEnded)[0]
    assert (ended.how, ended.why, ended.displaced) == ("died serving", "SIGSEGV", 1)


async def test_a_rollout_that_kills_every_worker_is_played_alone_at_last_and_then_named(autojump_clock):
    alone: list[bool] = []

    async def script(process: FakeProcess) -> None:
        await serve(process)
        process.printed = "double free or corruption"
        while isinstance(asked := await process.next(), Play):
            if asked.example.id == "13":
                await trio.sleep(0.5)
                alone.append(process.heard[-1] is asked)  # those before it were answered at once
                process.die("SIGABRT")
            process.say(Played(asked.rollout, Rollout(asked.example.id, 1.0)))

    async with open_kit(script, settings(max=2, multiplex=4)) as kit:
        results = await play_many(kit, 40, 8)
    failure = results.pop(13)[-1]
    assert isinstance(failure, Failure)
    assert (failure.error.type, failure.final) == ("PoisonRollout", True)
    for said in ("13 (rollout 0)", "SIGABRT", "double free or corruption"):
        assert said in failure.error.message
    assert len(alone) == 3
    assert alone[-1]
    assert all(came[-1] == Rollout(str(number), 1.0) for number, came in results.items())


async def test_a_cancelled_rollout_is_aborted_in_its_worker_and_its_place_is_free_once_that_has_answered(
    autojump_clock,
):
    told: list[object] = []

    async def script(process: FakeProcess) -> None:
        await serve(process)
        while True:
            told.append(await process.next())
            if isinstance(told[-1], Abort):
                await trio.sleep(2)
                process.say(Aborted(told[-1].rollout))

    async with open_kit(script, settings(max=1, multiplex=1)) as kit:
        with trio.move_on_after(1) as impatient:
            await play(kit, 1)
        assert impatient.cancelled_caught
        status = kit.pool.status()
        assert (status.playing, status.parked) == (1, 0), "its place is taken until the worker has answered"
        with trio.move_on_after(1):
            await play(kit, 2)
        assert [type(one) for one in told] == [Play, Abort], "the second one waited"
        await trio.sleep(1.5)
        assert kit.pool.status().playing == 0


async def test_a_worker_that_does_not_end_a_cancelled_rollout_is_killed(autojump_clock):
    async with open_kit(serve, settings(max=1)) as kit:
        with trio.move_on_after(1):
            await play(kit, 1)
        await trio.sleep(20)
        assert kit.launcher.processes[0].killed
        assert kit.pool.status().playing == 0


async def test_a_rollout_that_its_worker_drops_by_itself_counts_as_one_that_the_worker_died_of(autojump_clock):
    async def script(process: FakeProcess) -> None:
        await serve(process)
        asked = await process.next()
        assert isinstance(asked, Play)
        process.say(Aborted(asked.rollout))

    async with open_kit(script, settings(max=1)) as kit:
        result = await play(kit, 1)
    assert isinstance(result, Failure)
    assert result.error.type == "PoisonRollout"
    assert "nobody had cancelled" in result.error.message
    assert len(kit.launcher.processes) == 3


@pytest.mark.parametrize("ready_s", [0, 1])
def test_cancelling_a_rollout_at_any_step_leaves_no_place_taken(ready_s):
    async def use() -> None:
        async with open_kit(Diligent(loading_s=ready_s, playing_s=1)) as kit:
            kits.append(kit)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(play, kit, 1)
                await play(kit, 2)

    kits: list[WorkersKit] = []

    def check() -> None:
        kit = kits.pop()
        assert not kit.launcher.live
        assert len(kit.pool._asks) == 0
        assert not kit.pool._lives

    cancel_at_every_step(use, check)
