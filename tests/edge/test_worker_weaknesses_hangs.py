"""A worker that hangs is ended; one that works, or that we ourselves have not listened to, is not."""

from __future__ import annotations

import time
from pathlib import Path

import trio
from worker_story_kit import Story, answers, open_story

from scavenge.rollouts import Rollout

HUNG_AFTER_S = 1.0


async def test_a_worker_that_was_stopped_is_ended_and_what_was_in_it_is_played_elsewhere(tmp_path: Path):
    """One that hung without being dead was never noticed, and what was in it never answered."""

    def prepare(story: Story) -> None:
        story.hold("play")

    async with open_story(tmp_path, prepare, hung_after_s=HUNG_AFTER_S) as story, trio.open_nursery() as nursery:
        held = story.play_soon(nursery, 2, "hold")
        await story.until(lambda: story.began() == 2)
        result = await story.play("stop_once")
        story.release("play")
    assert isinstance(result, Rollout)
    assert len(answers(held)) == 2
    (ended,) = story.ended("died serving")
    assert "hung" in ended.why
    assert ended.displaced == 3


async def test_a_worker_that_computes_and_says_nothing_for_longer_than_one_may_hang_is_left_alone(tmp_path: Path):
    """One whose code held the interpreter's lock was taken for dead, and its rollouts were played again."""
    async with open_story(tmp_path, hung_after_s=HUNG_AFTER_S) as story:
        result = await story.play("compute", seconds=2.5 * HUNG_AFTER_S)
        assert not story.ended("died serving")
    assert isinstance(result, Rollout)
    assert float(str(result.completion)) > 1.5 * HUNG_AFTER_S
    assert (story.starts, story.displaced) == (1, 0)


async def test_that_our_own_loop_stalls_is_no_workers_fault(tmp_path: Path):
    """The time in which nobody listened was counted as their silence."""

    def prepare(story: Story) -> None:
        story.hold("play")

    async with (
        open_story(tmp_path, prepare, hung_after_s=HUNG_AFTER_S, min=2, max=2) as story,
        trio.open_nursery() as nursery,
    ):
        await story.until_ready(2)
        results = story.play_soon(nursery, 4, "hold")
        await story.until(lambda: story.began() == 4)
        for _ in range(2):
            time.sleep(1.5 * HUNG_AFTER_S)  # noqa: ASYNC251 - this is the stall
            await trio.lowlevel.checkpoint()
        story.release("play")
        await story.until(lambda: len(results) == 4)
        assert not story.ended("died serving")
    assert (story.starts, story.displaced, len(answers(results))) == (2, 0, 4)
