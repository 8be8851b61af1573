"""A pool of workers comes back whatever befell it, by itself, and says meanwhile how it is doing."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from worker_story_kit import Story, answers, open_story

from scavenge.core.supervision.settings import BUDGET, FIRST_BACKOFF_S
from scavenge.events import WorkerEnded, WorkersChanged, WorkerStarting
from scavenge.rollouts import Failure, Rollout


@pytest.mark.parametrize(("slots", "times"), [pytest.param(1, 2, id="one"), pytest.param(2, 1, id="a fixed number")])
async def test_a_pool_whose_slots_are_exhausted_serves_again_as_soon_as_processes_can_be_started(
    slots: int, times: int, tmp_path: Path
):
    """A slot that had used up its restarts never came back, and every later request was refused for ever."""
    async with open_story(tmp_path, min=slots, max=slots) as story, trio.open_nursery() as nursery:
        await story.until_ready(slots)
        for _ in range(times):  # the second time as if it were the first: success makes up for all that was before
            story.machine.fail()
            before = len(story.ended("not spawned"))
            story.kill_all()
            await story.until(lambda: story.exhausted() == slots)
            assert len(story.ended("not spawned")) >= before + BUDGET * slots
            results = story.play_soon(nursery, 1)
            await trio.testing.wait_all_tasks_blocked()
            story.machine.recover()
            await story.until_done(results, 1)
            await story.until_ready(slots)
            assert len(answers(results)) == 1
            assert not story.exhausted()


async def test_exhausted_slots_are_no_capacity_and_are_filled_without_another_request(tmp_path: Path):
    """Two dead slots and a live one were taken for three, so a pool for three had one for ever. And growth that had
    failed was only tried again when another request came."""

    def prepare(story: Story) -> None:
        story.hold("play")

    async with open_story(tmp_path, prepare, max=3, multiplex=1) as story, trio.open_nursery() as nursery:
        await story.until_ready(1)
        story.machine.fail()
        results = story.play_soon(nursery, 3, "hold")
        await story.until(lambda: story.exhausted() == 2)
        status = story.pool.status()
        assert (status.state, status.ready, status.wanted, status.parked) == ("degraded", 1, 3, 2)
        assert "no such file" in status.why.lower()
        story.machine.recover()
        await story.until(lambda: story.began() == 3)  # nothing has been asked meanwhile
        assert story.pool.status().ready == 3
        story.release("play")
    assert len(answers(results)) == 3


async def test_a_wave_of_death_takes_all_workers_and_all_of_them_come_back(tmp_path: Path):
    """Several that died at once were restored in part, and what was in them was lost."""

    def prepare(story: Story) -> None:
        story.hold("play")

    async with open_story(tmp_path, prepare, min=3, max=3, multiplex=3) as story, trio.open_nursery() as nursery:
        await story.until_ready(3)
        results = story.play_soon(nursery, 7, "hold")
        await story.until(lambda: story.began() == 7)
        story.machine.fail()
        story.kill_all()
        await story.until(lambda: len(story.ended("not spawned")) > 3)
        assert not results
        story.machine.recover()
        story.release("play")
        await story.until_ready(3)
        await story.until(lambda: len(results) == 7)
    assert answers(results) == [f"answer to r{n}" for n in range(1, 8)]
    assert story.displaced == sum(event.displaced for event in story.ended("died serving")) >= 7


async def test_workers_that_die_over_and_over_are_started_after_longer_and_longer_pauses(tmp_path: Path):
    """A request that killed its worker had the next one started at once, for as long as it was sent."""
    async with open_story(tmp_path, restart_backoff_max_s=30.0) as story:
        poison = await story.play("poison")
        assert isinstance(await story.play("leave_once", status=3), Rollout)
        starts, ends = story.times(WorkerStarting), story.times(WorkerEnded)
    assert isinstance(poison, Failure)
    assert poison.error.type == "PoisonRollout"
    pauses = [start - end for start, end in zip(starts[1:], ends, strict=True)]
    assert len(pauses) == 4
    for number, pause in enumerate(pauses):
        assert pause >= 0.5 * FIRST_BACKOFF_S * 2**number


async def test_what_waits_while_no_worker_can_be_had_is_refused_in_the_end_and_told_why(tmp_path: Path):
    """That no worker came back was an error in a task that nobody looked at: what waited, waited for ever."""
    async with open_story(tmp_path, request_deadline_s=1.0) as story:
        await story.until_ready(1)
        story.machine.fail()
        story.kill_all()
        await story.until(lambda: story.ended("not spawned"))
        result = await story.play()
    assert isinstance(result, Failure)
    assert result.error.type == "NoWorkersError"
    assert "request_deadline = 1 s" in result.error.message
    assert "no such file" in result.error.message.lower()


async def test_a_pool_says_in_each_state_how_many_workers_are_ready_and_what_is_wrong(tmp_path: Path):
    """A pool without any worker said that it was well."""

    def prepare(story: Story) -> None:
        story.hold("loading-1")
        story.hold("loading-3")
        assert story.pool.status().state == "empty"

    async with open_story(tmp_path, prepare, min=2, max=2) as story:
        await story.until(lambda: story.pool.status().starting == 2)
        assert story.pool.status().state == "starting"
        await story.until_ready(1)
        story.release("loading-1")
        await story.until_ready(2)
        assert (story.pool.status().state, story.pool.status().why) == ("ready", "")
        story.machine.fail()
        story.kill_all()
        await story.until(lambda: len(story.ended("not spawned")) >= 2 and not story.pool.status().starting)
        status = story.pool.status()
        assert (status.state, status.ready, status.wanted) == ("empty", 0, 2)
        assert "not spawned" in status.why
        story.machine.recover()
        await story.until_ready(1)
        await story.until(lambda: (story.folder / "life-4").exists())
        assert isinstance(await story.play(), Rollout)
        story.release("loading-3")
        await story.until_ready(2)
        assert story.pool.status().state == "ready"
    states = [(event.status.state, event.status.ready) for event in story.of(WorkersChanged)]
    assert states[-1][0] == "closed"
    assert ("empty", 0) in states[3:]
