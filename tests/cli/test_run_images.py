"""``scavenge run`` with an environment whose examples need container images: delivered before, removed after."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from image_story import ImageStory, open_story
from run_kit import Folder, row
from told_server import BOUND_S, Server

from fake_engine import FakeImage, Silent

HUB = "docker.io/library"
ENVIRONMENT = """
import scavenge

class Boxes(scavenge.Environment):
    multi_turn = False
    in_worker = {in_worker}

    def examples(self):
        for number, box in enumerate({boxes}):
            yield scavenge.Example(id=str(number), data={{"box": box, "question": "What is 1 + 1 ?"}})

    def images(self, example):
        return [example.data["box"]] if example.data["box"] else []

    async def play(self, example, model):
        reply = await model.chat([{{"role": "user", "content": example.data["question"]}}])
        return scavenge.Rollout(reply.text, 1.0)
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def lay_out(story: ImageStory, server: Server, boxes: list[str], *, in_worker: bool = False, keys: str = "") -> Folder:
    folder = Folder(story.path)
    folder.list(row(server))
    module = story.module(ENVIRONMENT.format(in_worker=in_worker, boxes=boxes))
    folder.evaluation(keys, [f'env_id = "{module}:Boxes"'])
    text = (story.path / "eval.toml").read_text().replace('env_id = "chat"\n', "")
    (story.path / "eval.toml").write_text(text.replace('env_args = { dataset = "data.jsonl" }\n', ""))
    return folder


@pytest.mark.parametrize("in_worker", [False, True])
async def test_images_are_there_for_their_rollouts_and_gone_after_the_run(in_worker, server, tmp_path: Path):
    async with open_story(tmp_path) as story:
        story.engine.images = {f"{HUB}/theirs:1": FakeImage()}
        story.engine.remote = {f"{HUB}/{name}:1": FakeImage((name.encode(),)) for name in ("x", "y")}
        folder = lay_out(story, server, ["x:1", "y:1", "", "theirs:1", "none:1"] * 3, in_worker=in_worker)
        ended = await story.scavenge("run", "eval.toml", "--no-progress")
        assert ended.code == 1, ended.said
        lines = folder.lines()
        assert len(lines) == 15
        failed = {line["example_id"]: line["error"] for line in lines if line["status"] == "error"}
        assert set(failed) == {"4", "9", "14"}
        assert all(error["type"] == "ImageUnavailable" for error in failed.values())
        assert set(story.engine.images) == {f"{HUB}/theirs:1"}
        assert story.engine.calls["pull"] == 3
        events = [json.loads(line) for line in (folder.run_dir / "events.jsonl").read_text().splitlines()]
        assert sum(event["event"] == "ImageReady" for event in events) == 2
        assert sum(event["event"] == "ImageReleased" for event in events) == 2


async def test_ctrl_c_while_an_image_is_pulled_ends_the_run_at_once(server, tmp_path: Path):
    async with open_story(tmp_path) as story:
        story.engine.always("pull", Silent(midway=True))
        lay_out(story, server, ["x:1"])
        async with story.started("run", "eval.toml", "--no-progress") as process:
            with trio.fail_after(BOUND_S):
                await story.pulls(1)
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 130
        assert story.engine.hung_up["pull"] == 1


async def test_what_a_killed_run_brought_is_removed_by_the_next(server, tmp_path: Path):
    async with open_story(tmp_path) as story:
        story.engine.images = {f"{HUB}/theirs:1": FakeImage()}
        story.engine.remote = {f"{HUB}/x:1": FakeImage((b"x",))}
        story.engine.script("pull", None, Silent())
        folder = lay_out(story, server, ["theirs:1", "x:1", "y:1"], keys="[images]\nworkers = 1\n")
        async with story.started("run", "eval.toml", "--no-progress") as process:
            with trio.fail_after(BOUND_S):
                await story.pulls(2)
                process.kill()
                await process.wait()
        assert f"{HUB}/x:1" in story.engine.images
        listed = await story.scavenge("images", "list")
        assert "x:1" in listed.out
        collected = await story.scavenge("images", "gc")
        assert collected.code == 0, collected.said
        assert set(story.engine.images) == {f"{HUB}/theirs:1"}
        assert (await story.scavenge("images", "list")).out.strip() == "no images"
        assert folder.run_dir.is_dir()
