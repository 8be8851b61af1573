"""The pool of workers as a rollout's task sees it, over processes in memory on a virtual clock."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
import trio
import trio.testing
from worker_kit import MODEL, SETTINGS, Diligent, FakeProcess, WorkersKit, make_pool, open_kit

from scavenge.core.frames import BadFrame
from scavenge.core.supervision import Ticket
from scavenge.core.worker_messages import (
    Abort,
    Aborted,
    Beat,
    Broken,
    Load,
    Play,
    Played,
    PlayFailed,
    ReadRows,
    Ready,
    Rows,
    RowsFailed,
)
from scavenge.errors import ConfigError, EnvironmentBroken, Problem
from scavenge.events import Warned, WorkerEnded, WorkerReady, WorkersChanged, WorkerStarting
from scavenge.rollouts import ErrorInfo, Example, Failure, Rollout
from scavenge.runtime.hosting import Displaced, PlayResult
from scavenge.runtime.workerhost import STOP_GRACE_S, WorkerHost, open_workers
from scavenge.testing import cancel_at_every_step

ROWS = tuple(Example(str(number), {}) for number in range(10))


async def play(kit: WorkersKit, number: int, results: dict[int, list[PlayResult]] | None = None) -> PlayResult:
    """Play one rollout, again after a displacement, as the runner does."""
    ticket = Ticket(number, f"{number} (rollout 0)")
    while isinstance(result := await kit.pool.play(ticket, Example(str(number), {}), MODEL), Displaced):
        if results is not None:
            results.setdefault(number, []).append(result)
    if results is not None:
        results.setdefault(number, []).append(result)
    return result


async def play_many(kit: WorkersKit, count: int, at_once: int) -> dict[int, list[PlayResult]]:
    """Play so many rollouts, so many at once; all that came of each."""
    results: dict[int, list[PlayResult]] = {}
    room = trio.Semaphore(at_once)

    async def one(number: int) -> None:
        await play(kit, number, results)
        room.release()

    async with trio.open_nursery() as nursery:
        for number in range(count):
            await room.acquire()
            nursery.start_soon(one, number)
    return results


def settings(**changes: float):
    return attrs.evolve(SETTINGS, **changes)  # type: ignore[arg-type]


async def serve(process: FakeProcess) -> None:
    """Be ready at once, and leave the rest to the test."""
    assert isinstance(await process.next(), Load)
    process.say(Ready("trio", multi_turn=True))


# --- playing


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
    died = [event for event in kit.of(WorkerEnded) if isinstance(event, WorkerEnded) and event.how == "died serving"]
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
    assert isinstance(ended, WorkerEnded)
    assert (ended.how, ended.why, ended.displaced) == ("died serving", "SIGSEGV", 1)


async def test_a_rollout_that_kills_every_worker_is_played_alone_at_last_and_then_named(autojump_clock):
    alone: list[bool] = []

    async def script(process: FakeProcess) -> None:
        await serve(process)
        process.printed = "double free or corruption"
        here: list[Play] = []
        while True:
            asked = await process.next()
            if not isinstance(asked, Play):
                continue
            here.append(asked)
            if asked.example.id == "13":
                await trio.sleep(0.5)
                alone.append(len(here) == 1)
                process.die("SIGABRT")
            else:
                process.say(Played(asked.rollout, Rollout(asked.example.id, 1.0)))

    async with open_kit(script, settings(max=2, multiplex=4)) as kit:
        results = await play_many(kit, 40, 8)
    (failure,) = [came[-1] for number, came in results.items() if number == 13]
    assert isinstance(failure, Failure)
    assert failure.final
    assert failure.error.type == "PoisonRollout"
    assert "13 (rollout 0)" in failure.error.message
    assert "SIGABRT" in failure.error.message
    assert "double free or corruption" in failure.error.message
    assert len(alone) == 3
    assert alone[-1]
    assert all(results[number][-1] == Rollout(str(number), 1.0) for number in range(40) if number != 13)


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
    assert isinstance(first, WorkerEnded)
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
    assert isinstance(hung, WorkerEnded)
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
    assert isinstance(warned, Warned)
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
    problem = Problem("eval.toml: eval[0].env_args.count", "expected an integer ≥ 0, got -1")

    async def script(process: FakeProcess) -> None:
        await process.next()
        process.say(Broken(str(problem), (problem,)))
        process.die("exit code 1")

    with pytest.raises(ConfigError) as caught:
        async with open_kit(script) as kit:
            await kit.pool.wait_loaded()
    assert caught.value.problems == (problem,)


async def test_a_machine_that_cannot_start_processes_for_a_while_costs_nothing_but_time(autojump_clock):
    kit = make_pool(Diligent())
    kit.launcher.refuse += ["no more processes"] * 5
    async with open_workers([kit.pool]):
        assert await play(kit, 1) == Rollout("1", 1.0)
    assert [event.how for event in kit.of(WorkerEnded) if isinstance(event, WorkerEnded)][:5] == ["not spawned"] * 5


async def test_a_rollout_waits_for_a_worker_as_long_as_the_deadline_says_and_is_then_refused(autojump_clock):
    kit = make_pool(Diligent(), settings(request_deadline_s=40))
    kit.launcher.refuse += ["no more processes"] * 1000
    async with open_workers([kit.pool]):
        result = await play(kit, 1)
    assert isinstance(result, Failure)
    assert result.error.type == "NoWorkersError"
    assert "no more processes" in result.error.message
    assert trio.current_time() == pytest.approx(40, abs=1)


# --- rows


async def read_all(host: WorkerHost) -> list[str]:
    ids: list[str] = []
    while rows := await host.read(3):
        ids += [row.id for row in rows]
    return ids


async def test_the_dataset_is_read_from_a_worker_and_after_its_death_from_another_without_loss(autojump_clock):
    diligent = Diligent(loading_s=1, rows=ROWS)
    async with open_kit(diligent, settings(min=2)) as kit:
        host = WorkerHost(kit.pool, lambda told: None)
        await host.open()
        some = [row.id for row in await host.read(3)]
        kit.launcher.processes[0].die("SIGKILL")
        assert some + await read_all(host) == [row.id for row in ROWS]


async def test_rows_over_which_every_worker_dies_break_the_environment(autojump_clock):
    async def script(process: FakeProcess) -> None:
        await serve(process)
        while not isinstance(asked := await process.next(), ReadRows):
            pass
        if asked.skip == 0:
            process.say(Rows(0, ROWS[:2], last=False))
            await process.next()
        process.die("SIGSEGV")

    async with open_kit(script) as kit:
        host = WorkerHost(kit.pool, lambda told: None)
        await host.open()
        await host.read(2)
        with pytest.raises(EnvironmentBroken, match="3 workers died over what follows row 2"):
            await host.read(2)


async def test_what_a_dataset_raises_in_a_worker_is_told(autojump_clock):
    async def script(process: FakeProcess) -> None:
        await serve(process)
        await process.next()
        process.say(RowsFailed(0, "OSError: disk gone (mine.py, line 9)"))

    async with open_kit(script) as kit:
        host = WorkerHost(kit.pool, lambda told: None)
        await host.open()
        with pytest.raises(EnvironmentBroken, match=r"cannot be read on: OSError: disk gone \(mine.py, line 9\)"):
            await host.read(2)


async def test_reading_gives_up_when_no_worker_comes_back(autojump_clock):
    async with open_kit(Diligent(rows=ROWS), settings(request_deadline_s=20)) as kit:
        host = WorkerHost(kit.pool, lambda told: None)
        await host.open()
        kit.launcher.refuse += ["no more processes"] * 1000
        kit.launcher.processes[0].die("SIGKILL")
        await trio.sleep(0.1)
        with pytest.raises(EnvironmentBroken, match=r"within request_deadline = 20 s.*no more pro"):
            await host.read(2)


async def test_the_host_learns_what_results_depend_on_before_anything_is_played(autojump_clock):
    told: list[object] = []
    async with open_kit(Diligent()) as kit:
        await WorkerHost(kit.pool, told.append).open()
    assert told == [{"data": "1"}]


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


def test_a_pool_says_how_it_is_doing_and_never_just_ok():
    async def main() -> None:
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

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
