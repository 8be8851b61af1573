"""How workers of a pool load, fall silent, break the rules and end, over processes in memory on a virtual clock."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
import trio.testing
from worker_kit import Diligent, FakeProcess, make_pool, open_kit, play, play_many, serve, settings

from scavenge.core.frames import BadFrame
from scavenge.core.worker_messages import Beat, Broken, Play, Played, Ready
from scavenge.errors import ConfigError, EnvironmentBroken, Problem
from scavenge.events import Warned, WorkerEnded
from scavenge.rollouts import Failure, Rollout
from scavenge.runtime.workerhost import STOP_GRACE_S, WorkerHost, open_workers

WRONG = Problem("eval.toml: eval[0].env_args.count", "expected an integer ≥ 0, got -1")

# --- protocol


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (BadFrame("the frame has version 7"), "it broke the protocol: the frame has version 7"),
        (Played(999, Rollout("", 1.0)), "it broke the protocol: it answered rollout 999, which it does not have"),
        (Ready("trio", multi_turn=True), "it broke the protocol: it was ready before"),
    ],
)
async def test_what_a_worker_cannot_mean_costs_that_worker_and_nobody_else(autojump_clock, said, why):
    bad: list[FakeProcess] = []

    async def script(process: FakeProcess) -> None:
        if bad:
            await Diligent(0, 5)(process)
            return
        bad.append(process)
        await serve(process)
        await process.next()
        process.say(said)

    async with open_kit(script, settings(min=2, max=2)) as kit:
        results = await play_many(kit, 8, 4)
    assert all(came[-1] == Rollout(str(number), 1.0) for number, came in results.items())
    assert bad[0].killed
    first = kit.of(WorkerEnded)[0]
    assert first.why == why


async def test_a_silent_worker_without_processor_time_is_hung_and_one_that_computes_is_not(autojump_clock):
    async def silent(process: FakeProcess) -> None:
        await serve(process)
        if len(kit.launcher.processes) > 1:
            asked = await process.next()
            assert isinstance(asked, Play)
            process.say(Played(asked.rollout, Rollout("second", 1.0)))

    async def compute() -> None:
        for _ in range(200):
            await trio.sleep(1)
            kit.launcher.processes[0].processor_s = trio.current_time() - started_at

    async with open_kit(silent, settings(max=1)) as kit, trio.open_nursery() as nursery:
        started_at = trio.current_time()
        nursery.start_soon(compute)
        assert await play(kit, 1) == Rollout("second", 1.0)
        assert 200 < trio.current_time() - started_at < 300
    hung = kit.of(WorkerEnded)[0]
    assert "hung" in hung.why


async def test_an_event_loop_that_is_blocked_is_told_of_once(autojump_clock):
    async def script(process: FakeProcess) -> None:
        await serve(process)
        asked = await process.next()
        assert isinstance(asked, Play)
        for late_s in (10.0, 70.0, 80.0):
            process.say(Beat(late_s))
        process.say(Played(asked.rollout, Rollout("1", 1.0)))

    async with open_kit(script) as kit:
        await play(kit, 1)
    (warned,) = kit.of(Warned)
    assert "has not turned for 70 s" in warned.message
    assert 'backend = "sync"' in warned.message


async def test_a_worker_of_a_sync_environment_has_one_rollout_at_a_time(autojump_clock):
    diligent = Diligent(backend="sync")
    async with open_kit(diligent, settings(min=2, max=2, multiplex=8)) as kit:
        host = WorkerHost(kit.pool, lambda told: None)
        await host.open()
        assert host.room == 2
        await play_many(kit, 10, 10)
    assert set(diligent.most.values()) == {1}


# --- loading


async def test_an_environment_that_no_worker_can_load_ends_the_run_at_once_with_the_end_of_its_log(autojump_clock):
    async def script(process: FakeProcess) -> None:
        await process.next()
        process.printed = "ImportError: no module named torch"
        process.die("exit code 1")

    with pytest.raises(
        EnvironmentBroken, match=r"(?s)eval 'test': no worker can load it.*exit code 1.*no module named torch"
    ):
        async with open_kit(script) as kit:
            await play(kit, 1)
    assert trio.current_time() < 1
    assert len(kit.launcher.processes) == 1


async def test_a_file_that_is_wrong_in_the_eyes_of_a_worker_is_told_as_any_wrong_file(autojump_clock):
    async def script(process: FakeProcess) -> None:
        await process.next()
        process.say(Broken(str(WRONG), (WRONG,)))
        process.die("exit code 1")

    with pytest.raises(ConfigError) as caught:
        async with open_kit(script) as kit:
            await kit.pool.wait_loaded()
    assert caught.value.problems == (WRONG,)


@pytest.mark.parametrize("wrong", [0, 1, 2])
async def test_a_worker_for_which_the_file_is_wrong_ends_no_run_that_others_can_play(autojump_clock, wrong):
    async def script(process: FakeProcess) -> None:
        number = kit.launcher.processes.index(process)
        if number == wrong:
            await process.next()
            process.say(Broken(str(WRONG), (WRONG,)))
            process.die("exit code 1")
        else:
            await Diligent(2, 1)(process)

    kit = make_pool(script, settings(min=2, max=2))
    async with open_workers([kit.pool]):
        if wrong == 2:
            await kit.pool.wait_loaded()
            kit.launcher.processes[0].die("SIGKILL")
            await trio.sleep(1)
        results = await play_many(kit, 8, 4)
    assert all(came[-1] == Rollout(str(number), 1.0) for number, came in results.items())
    assert [event.how for event in kit.of(WorkerEnded)].count("died loading") == 1


async def test_a_worker_that_still_loads_when_the_run_ends_has_not_died(autojump_clock):
    async with open_kit(Diligent(loading_s=100), settings(min=2)) as kit:
        await trio.sleep(1)
    assert Counter(event.how for event in kit.of(WorkerEnded)) == {"retired": 2}


async def test_a_machine_that_cannot_start_processes_for_a_while_costs_nothing_but_time(autojump_clock):
    kit = make_pool(Diligent())
    kit.launcher.refuse += ["no more processes"] * 5
    async with open_workers([kit.pool]):
        assert await play(kit, 1) == Rollout("1", 1.0)
    assert [event.how for event in kit.of(WorkerEnded)][:5] == ["not spawned"] * 5


async def test_a_rollout_waits_for_a_worker_as_long_as_the_deadline_says_and_is_then_refused(autojump_clock):
    kit = make_pool(Diligent(), settings(request_deadline_s=40))
    kit.launcher.refuse += ["no more processes"] * 1000
    async with open_workers([kit.pool]):
        result = await play(kit, 1)
    assert isinstance(result, Failure)
    assert result.error.type == "NoWorkersError"
    assert "no more processes" in result.error.message
    assert trio.current_time() == pytest.approx(40, abs=1)


# --- the end


async def test_all_workers_have_one_grace_to_end_and_what_is_left_is_killed(autojump_clock):
    async def stubborn(process: FakeProcess) -> None:
        await serve(process)
        await trio.sleep_forever()

    async with open_kit(stubborn, settings(min=4)) as kit:
        await kit.pool.wait_ready()
        left_at = trio.current_time()
    assert trio.current_time() - left_at == pytest.approx(STOP_GRACE_S, abs=0.01)
    assert all(process.killed for process in kit.launcher.processes)


async def test_workers_that_end_when_they_are_asked_to_are_not_waited_for(autojump_clock):
    async with open_kit(Diligent(loading_s=0), settings(min=4)) as kit:
        await kit.pool.wait_ready()
        await trio.sleep(1)
        left_at = trio.current_time()
    assert trio.current_time() - left_at < 0.01
    assert Counter(process.ended for process in kit.launcher.processes) == {"exit code 0": 4}


async def test_a_run_that_is_cancelled_from_outside_leaves_no_worker(autojump_clock):
    with trio.move_on_after(5):
        async with open_kit(Diligent(playing_s=100), settings(min=3)) as kit:
            await play_many(kit, 10, 10)
    assert kit.launcher.processes
    assert not kit.launcher.live


async def test_a_pool_says_how_it_is_doing_and_never_just_ok(autojump_clock):
    kit = make_pool(Diligent(loading_s=1))
    assert kit.pool.status().state == "empty"
    async with open_workers([kit.pool]):
        await trio.testing.wait_all_tasks_blocked()
        assert kit.pool.status().state == "starting"
        await kit.pool.wait_ready()
        assert (kit.pool.status().state, kit.pool.status().ready) == ("ready", 1)
        kit.launcher.refuse += ["no more processes"] * 100
        kit.launcher.live[0].die("SIGKILL")
        await trio.sleep(0.5)
        assert kit.pool.status().state == "empty"
        assert "no more processes" in kit.pool.status().why
    assert kit.pool.status().state == "closed"
