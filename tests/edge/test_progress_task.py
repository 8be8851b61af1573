from __future__ import annotations

import io
import re

import trio
from screen_streams import Terminal

from scavenge.edge.console import Screen
from scavenge.edge.progress import Progress, run_progress
from scavenge.events import EvalSized, PoolWaiting, RolloutFinished, RunStarted
from scavenge.rollouts import RolloutKey, RolloutRecord
from scavenge.types import EndpointId

FINISHED = RolloutFinished(RolloutRecord(RolloutKey("math", "1", 0), "chat"))
GLM = EndpointId("glm")


def epoch() -> float:
    return 1_700_000_000.0 + trio.current_time()


async def told_after(seconds: float, *, stream: io.StringIO, term: str, act=None) -> str:
    """What is written when the progress is shown for a while."""
    progress = Progress(Screen.on(stream, {"TERM": term}), epoch)
    progress(RunStarted("runs/x", ("math",)))
    progress(EvalSized("math", 4))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_progress, progress)
        if act is not None:
            nursery.start_soon(act, progress)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    return stream.getvalue()


async def test_lines_come_after_5_s_and_then_every_30_s(autojump_clock):
    text = await told_after(70, stream=io.StringIO(), term="xterm")
    assert len(text.splitlines()) == 3


async def test_nothing_is_told_of_a_run_that_is_over_at_once(autojump_clock):
    assert await told_after(4, stream=io.StringIO(), term="xterm") == ""


async def test_a_line_is_plain_text_with_the_time(autojump_clock):
    async def act(progress):
        await trio.sleep(1)
        progress(FINISHED)

    text = await told_after(6, stream=io.StringIO(), term="xterm", act=act)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d 1/4 done, 0 failed, .*\n", text)
    assert "\x1b" not in text


async def test_a_dumb_terminal_gets_lines(autojump_clock):
    assert "\x1b" not in await told_after(40, stream=Terminal(), term="dumb")


async def test_the_beginning_and_the_end_of_a_wait_are_told_at_once_but_not_each_new_reason(autojump_clock):
    async def act(progress):
        await trio.sleep(10)
        for second in range(10):
            progress(PoolWaiting(GLM, epoch(), f"reason {second}"))
            await trio.sleep(1)
        progress(PoolWaiting(GLM, epoch(), ""))

    lines = (await told_after(22, stream=io.StringIO(), term="", act=act)).splitlines()
    assert len(lines) == 3
    assert "glm has been waiting for 0:00: reason 0" in lines[1]
    assert "waiting" not in lines[2]


async def test_a_terminal_is_drawn_on_a_few_times_a_second_and_wiped_at_the_end(autojump_clock):
    stream = Terminal()

    async def act(progress):
        await trio.sleep(1.1)
        progress(FINISHED)
        await trio.sleep(0.25)
        assert "1/4 done" in stream.getvalue()

    text = await told_after(3, stream=stream, term="xterm", act=act)
    assert text.endswith("\x1b[2K")


def test_hearing_an_event_writes_nothing():
    stream = Terminal()
    progress = Progress(Screen.on(stream, {"TERM": "xterm"}), lambda: 0.0)
    progress(FINISHED)
    assert stream.getvalue() == ""
    assert progress.drawing().share is None


def test_the_bar_is_full_at_most():
    progress = Progress(Screen.on(io.StringIO(), {}), lambda: 0.0)
    for event in (RunStarted("runs/x", ("math",)), EvalSized("math", 1), FINISHED, FINISHED):
        progress(event)
    assert progress.drawing().share == 1.0
