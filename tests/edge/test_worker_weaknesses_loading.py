"""While workers load: nobody waits for more than he needs, and what goes wrong is told at once."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
import trio
from worker_story_envs import LOG_BYTES
from worker_story_kit import PATIENCE_S, Story, answers, open_story

from scavenge.errors import EnvironmentBroken
from scavenge.rollouts import Rollout


async def test_workers_load_side_by_side_and_one_that_dies_of_it_costs_nobody_anything(tmp_path: Path):
    """One of several that failed to load failed the start of all, and they were waited for one after the other."""

    def prepare(story: Story) -> None:
        story.mark("dies-2")
        story.hold("loading-1", "loading-3", "loading-4")

    # none of the four gets on before all have begun
    async with open_story(tmp_path, prepare, env_args={"together": 4}, min=4, max=4) as story:
        await story.until(lambda: story.ended("died loading"))
        story.release("loading-1")
        assert isinstance(await story.play(), Rollout)
        story.release("loading-3", "loading-4")
        await story.until_ready(4)
    assert [event.why for event in story.ended("died loading")] == ["exit code 3"]
    assert story.starts == 5


async def test_what_is_asked_while_the_only_worker_is_replaced_waits_for_the_replacement(tmp_path: Path):
    """What came while a replacement loaded failed at once."""

    def prepare(story: Story) -> None:
        story.hold("loading-2")

    async with open_story(tmp_path, prepare) as story, trio.open_nursery() as nursery:
        await story.until_ready(1)
        story.kill_all()
        await story.until(lambda: (story.folder / "life-2").exists())
        results = story.play_soon(nursery, 6)
        await story.until(lambda: story.pool.status().parked == 6)
        assert (story.pool.status().state, story.began()) == ("starting", 0)
        story.release("loading-2")
    assert len(answers(results)) == 6


async def test_the_first_worker_gets_no_more_than_its_places_while_the_second_loads(tmp_path: Path):
    """All that came while other workers loaded piled up on the one that was ready first."""

    def prepare(story: Story) -> None:
        story.hold("play")
        story.hold("loading-2")

    async with open_story(tmp_path, prepare, max=2, multiplex=3) as story, trio.open_nursery() as nursery:
        results = story.play_soon(nursery, 6, "hold")
        await story.until(lambda: (story.folder / "life-2").exists() and story.began() == 3)
        assert (story.pool.status().playing, story.pool.status().parked) == (3, 3)
        story.release("loading-2")
        await story.until(lambda: story.began() == 6)
        assert (story.began(life=1), story.began(life=2)) == (3, 3)
        story.release("play")
    assert len(answers(results)) == 6


async def test_an_environment_that_dies_in_loading_ends_the_run_at_once_with_how_it_ended_and_what_it_said(
    tmp_path: Path,
):
    """The start waited for its time limit."""

    def prepare(story: Story) -> None:
        story.mark("dies")

    with pytest.raises(EnvironmentBroken, match=r"(?s)exit code 3.*no weights in this machine"):
        async with open_story(tmp_path, prepare, startup_timeout_s=10 * PATIENCE_S):
            await trio.sleep_forever()


async def test_of_a_log_of_gigabytes_no_more_than_the_end_is_read(tmp_path: Path):
    """To show the last lines of a log all of it was read."""

    def prepare(story: Story) -> None:
        story.mark("fills-its-log")

    async with open_story(tmp_path, prepare) as story:
        await story.until_ready(1)
        tracemalloc.start()
        result = await story.play("poison")
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert not isinstance(result, Rollout)
    assert "SIGABRT" in result.error.message
    assert "double free or corruption" in result.error.message
    assert (tmp_path / "logs" / "story-worker-0.log").stat().st_size > LOG_BYTES
    assert most_bytes < 2**25
