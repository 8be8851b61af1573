"""Workers and rollouts that are ended: nothing that was done is lost, and nobody is waited for in vain."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from worker_process_kit import alive
from worker_story_kit import Story, answers, open_story

from scavenge.calls import Call, Relayed
from scavenge.core.supervision import need
from scavenge.rollouts import Rollout
from scavenge.runtime import workerhost
from scavenge.runtime.ports import ReplySink


async def test_a_cancelled_rollout_ends_in_its_worker_with_its_request_and_then_its_place_is_free(tmp_path: Path):
    """There was no way to cancel: rollouts and requests that nobody waited for went on."""

    def prepare(story: Story) -> None:
        async def never(call: Call, sink: ReplySink | None) -> Relayed:
            await trio.sleep_forever()
            raise AssertionError

        story.door.does = never

    async with open_story(tmp_path, prepare, multiplex=1) as story:
        await _play_and_cancel(story, "ask", lambda: story.door.under_way == 1)
        assert isinstance(await story.play(), Rollout)
        assert (story.door.cancelled, story.door.under_way) == (1, 0)
    assert (story.starts, story.displaced) == (1, 0)


async def test_a_cancelled_rollout_that_goes_on_keeps_its_place_until_it_has_ended(tmp_path: Path):
    """Its place was given away while it was still at work."""

    def prepare(story: Story) -> None:
        story.hold("play")

    async with open_story(tmp_path, prepare, multiplex=1) as story, trio.open_nursery() as nursery:
        await _play_and_cancel(story, "hold_whatever_comes", lambda: story.began() == 1)
        results = story.play_soon(nursery, 1)
        await story.until(lambda: story.pool.status().parked == 1)
        await trio.sleep(0.1)
        assert (story.pool.status().playing, story.began()) == (1, 1)
        story.release("play")
        await story.until(lambda: results)
    assert (story.starts, story.displaced) == (1, 0)


async def test_a_worker_that_somebody_else_tells_to_end_costs_no_rollout(tmp_path: Path):
    """What it dropped then was lost, or was given to it again without end."""

    def prepare(story: Story) -> None:
        story.hold("play")

    async with open_story(tmp_path, prepare) as story, trio.open_nursery() as nursery:
        results = story.play_soon(nursery, 4, "hold")
        await story.until(lambda: story.began() == 4)
        os.kill(*story.pids.values(), signal.SIGTERM)
        await story.until(lambda: len(story.ended("died serving")) == 1)
        story.release("play")
        await story.until(lambda: len(results) == 4)
    assert len(answers(results)) == 4
    assert (story.starts, story.displaced) == (2, 4)


async def test_a_worker_that_is_needed_no_more_is_retired_and_those_at_work_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """A retired worker took along what it had not answered, or what it had been given meanwhile."""
    monkeypatch.setattr(need, "IDLE_AFTER_S", 0.02)

    def prepare(story: Story) -> None:
        story.hold("first", "last")

    async with open_story(tmp_path, prepare, max=3, multiplex=1) as story, trio.open_nursery() as nursery:
        story.play_soon(nursery, 1, "hold", until="first")
        await story.until_ready(2)  # there is one to spare
        story.play_soon(nursery, 1, "hold", until="first")
        await story.until(lambda: story.began() == 2)
        await story.until_ready(3)
        last = story.play_soon(nursery, 1, "hold", until="last")  # in the worker that would go first
        await story.until(lambda: story.began() == 3)
        story.release("first")
        for _ in range(3):
            others = story.play_soon(nursery, 6)
            await story.until_done(others, 6)
            await story.until_ready(2)
        await story.until(lambda: story.ended("retired"))
        assert not last
        story.release("last")
        await story.until_done(last, 1)
    assert {event.why for event in story.ended("retired")} == {"exit code 0"}
    assert story.displaced == 0


async def test_eight_workers_that_do_not_end_take_the_time_of_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """They were waited for one after the other, ten seconds each."""
    monkeypatch.setattr(workerhost, "STOP_GRACE_S", 1.0)
    async with open_story(tmp_path, env="Stubborn", min=8, max=8) as story, trio.open_nursery() as nursery:
        story.play_soon(nursery, 8)
        await story.until(lambda: len(list(story.folder.glob("began-*"))) == 8)
        pids = list(story.pids.values())
        nursery.cancel_scope.cancel()
        left_at = trio.current_time()
    assert trio.current_time() - left_at < 5
    assert not alive(*pids)


async def _play_and_cancel(story: Story, do: str, when: Callable[[], object]) -> None:
    """Begin to play a rollout, and cancel it when something has come about."""
    async with trio.open_nursery() as nursery:
        results = story.play_soon(nursery, 1, do)
        await story.until(when)
        nursery.cancel_scope.cancel()
    assert not results
