"""What was in a worker that dies is played elsewhere, once and for all, and nothing of it is left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio
from worker_process_kit import alive, group_of, launcher
from worker_story_kit import Story, answers, open_story

from scavenge.calls import Call
from scavenge.rollouts import Failure, Rollout
from scavenge.runtime.ports import ReplySink


class Steps(trio.abc.Instrument):
    """Counts how often any task is awake."""

    taken = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.taken += 1


@pytest.mark.parametrize("status", [0, 3])
async def test_a_worker_that_its_environment_ends_in_the_middle_of_play_costs_no_rollout_its_result(
    status: int, tmp_path: Path
):
    """A worker's death left what was in it unanswered for ever, or failed it, or ended the evaluation."""

    def prepare(story: Story) -> None:
        story.hold("play")

    async with open_story(tmp_path, prepare) as story, trio.open_nursery() as nursery:
        done = await story.play()
        held = story.play_soon(nursery, 3, "hold")
        await story.until(lambda: story.began(life=1) == 4)
        assert isinstance(await story.play("leave_once", status=status), Rollout)
        story.release("play")
    assert isinstance(done, Rollout)
    assert [(event.how, event.why, event.displaced) for event in story.ended("died serving")] == [
        ("died serving", f"exit code {status}", 4)
    ]
    assert answers(held) == ["answer to r2", "answer to r3", "answer to r4"]
    assert story.began(name="r1") == 1, "what was answered is not played again"


async def test_what_a_worker_wrote_before_it_died_is_an_answer_and_nothing_is_played_twice(tmp_path: Path):
    """Replies that a dead worker had written were thrown away."""

    def prepare(story: Story) -> None:
        story.hold("play")

    async with open_story(tmp_path, prepare) as story, trio.open_nursery() as nursery:
        held = story.play_soon(nursery, 2, "hold")
        await story.until(lambda: story.began() == 2)
        result = await story.play("answer_and_die", number=2)
        story.release("play")
    assert isinstance(result, Rollout)
    assert result.completion == "last words of r3"
    assert story.began(name="r3") == 1
    assert len(answers(held)) == 2
    assert story.displaced == 2


async def test_a_rollout_that_kills_each_worker_is_named_and_harms_no_other(tmp_path: Path):
    """It was sent to one worker after the other, with all that was in them, without end."""

    def prepare(story: Story) -> None:
        story.hold("play")

    async with open_story(tmp_path, prepare) as story, trio.open_nursery() as nursery:
        held = story.play_soon(nursery, 3, "hold")
        await story.until(lambda: story.began() == 3)
        bad = story.play_soon(nursery, 1, "poison")
        await story.until(lambda: len(story.ended("died serving")) == 2)
        story.release("play")  # by now each of them may be the bad one
        await story.until(lambda: bad)
    (result,) = bad
    assert isinstance(result, Failure)
    assert result.final
    assert result.error.type == "PoisonRollout"
    for said in ("rollout r4", "SIGABRT", "double free or corruption"):
        assert said in result.error.message
    assert len(answers(held)) == 3
    assert len(story.ended("died serving")) == 3


async def test_a_death_ends_what_the_worker_had_started_and_what_it_had_asked(tmp_path: Path):
    """Programs that a worker had started outlived it, and the slots of its requests were lost."""

    def prepare(story: Story) -> None:
        story.hold("play")

        async def never(call: Call, sink: ReplySink | None) -> None:
            await trio.sleep_forever()

        story.door.does = never

    async with open_story(tmp_path, prepare) as story, trio.open_nursery() as nursery:
        nursery.start_soon(story.play, "have_deaf_program")
        nursery.start_soon(story.play, "ask")
        await story.until(lambda: (story.folder / "deaf").exists() and story.door.under_way == 1)
        (pid,), deaf = story.pids.values(), int((story.folder / "deaf").read_text())
        assert alive(deaf)
        (story.folder / "deaf").unlink()
        os.kill(pid, signal.SIGKILL)
        await story.until(lambda: not group_of(pid) and not alive(deaf))
        await story.until(lambda: story.door.cancelled == 1 and len(story.door.calls) == 2)
        nursery.cancel_scope.cancel()


async def test_nobody_looks_whether_workers_live_and_yet_their_death_is_noticed(tmp_path: Path):
    """All workers were asked four times a second whether they lived, and were dead unnoticed in between."""
    script = """
        start_guard(life)
        say(Ready("trio", multi_turn=True))
        time.sleep(1000)
    """

    def prepare(story: Story) -> None:
        story.machine.use(launcher(tmp_path, script).command)

    async with open_story(tmp_path, prepare, min=4, max=4) as story:
        await story.until_ready(4)
        await trio.sleep(0.1)
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(1)
        trio.lowlevel.remove_instrument(steps)
        assert steps.taken < 8
        story.kill_all()
        await story.until(lambda: len(story.ended("died serving")) == 4)
