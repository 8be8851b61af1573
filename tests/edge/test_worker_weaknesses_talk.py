"""Whatever a worker or its environment says costs that worker at most, and never another rollout."""

from __future__ import annotations

from pathlib import Path

import trio
from worker_story_kit import Story, answers, open_story

from scavenge.rollouts import Failure, Rollout


async def test_garbage_from_a_worker_costs_that_worker_and_nobody_else(tmp_path: Path):
    """One malformed message ended the whole pool, and everybody waited for ever."""

    def prepare(story: Story) -> None:
        story.hold("play")

    async with open_story(tmp_path, prepare, min=2, max=2) as story, trio.open_nursery() as nursery:
        await story.until_ready(2)
        held = story.play_soon(nursery, 3, "hold")
        await story.until(lambda: story.began() == 3)
        result = await story.play("garbage_once")
        story.release("play")
        await story.until(lambda: len(held) == 3)
        (ended,) = story.ended("died serving")
    assert isinstance(result, Rollout)
    assert len(answers(held)) == 3
    assert "it broke the protocol" in ended.why


async def test_a_second_answer_to_one_question_costs_the_worker_and_the_first_one_counts(tmp_path: Path):
    """Two replies with one number went to whoever had it by then."""
    async with open_story(tmp_path) as story:
        result = await story.play("answer_twice_once", number=0)
        after = await story.play()
        (ended,) = story.ended("died serving")
    assert isinstance(result, Rollout)
    assert result.completion == "the first answer"
    assert isinstance(after, Rollout)
    assert "it answered rollout 0, which it does not have" in ended.why


async def test_rollouts_that_share_an_id_and_ids_that_mean_something_elsewhere_are_all_answered(tmp_path: Path):
    """A reply went to the other request with the same id, and an id that the pool used itself was never answered."""
    names = ["twin", "twin", "twin", "", "0", "1", "None", "__health__", "ping", "probe", "stop", "é\ud800 \x00"]
    results: list[Rollout | Failure] = []

    async with open_story(tmp_path) as story, trio.open_nursery() as nursery:

        async def one(number: int, name: str) -> None:
            results.append(await story.play("tell", name, said=f"{number:02}"))

        for number, name in enumerate(names):
            nursery.start_soon(one, number, name)
    assert answers(results) == [f"{number:02}" for number in range(len(names))]
    assert story.starts == 1


async def test_a_result_too_long_for_the_way_is_that_rollouts_failure_and_the_worker_serves_on(tmp_path: Path):
    """It took the worker down with all that was in it."""

    def prepare(story: Story) -> None:
        story.hold("play")

    async with open_story(tmp_path, prepare) as story, trio.open_nursery() as nursery:
        held = story.play_soon(nursery, 2, "hold")
        await story.until(lambda: story.began() == 2)
        result = await story.play("result_of_64_mb")
        story.release("play")
    assert isinstance(result, Failure)
    assert result.error.type == "FrameTooLong"
    assert len(answers(held)) == 2
    assert (story.starts, story.displaced) == (1, 0)


async def test_whatever_an_environment_and_its_programs_print_is_in_the_log_and_nowhere_else(tmp_path: Path):
    """What an environment printed got in between what its worker said."""
    async with open_story(tmp_path) as story, trio.open_nursery() as nursery:
        results = story.play_soon(nursery, 4, "print")
    assert len(answers(results)) == 4
    assert story.starts == 1
    log = (tmp_path / "logs" / "story-worker-0.log").read_bytes()
    for said in (b"not for the run", b"from a program", b"to stderr"):
        assert log.count(said) == 4
