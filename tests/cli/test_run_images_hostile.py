"""Runs that need images, and ``scavenge images``, in hostile surroundings: no crash, nothing lost, no secret told."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from image_story import ImageStory, open_story
from run_kit import Folder, row
from told_server import BOUND_S, Server

from fake_engine import Cut, Fails, FakeImage, TakesNothing
from fake_images import docker_archive

HUB = "docker.io/library"
ENGINE_FOLDER = "7trn-ipzb-qybb-92e705d3ee4c"
"""Where the ledgers of the fake engine are."""
ENVIRONMENT = """
import pathlib
import scavenge

class Boxes(scavenge.Environment):
    multi_turn = False

    def examples(self):
        for number, box in enumerate({boxes}):
            yield scavenge.Example(id=str(number), data={{"box": box}})

    def images(self, example):
        if example.data["box"] == "raises":
            raise LookupError("no such box")
        return [example.data["box"]]

    async def play(self, example, model):
        pruned = pathlib.Path("pruned")
        if example.id == "0" and {misses}:
            raise scavenge.ImageMissing(example.data["box"])
        if example.id == "1" and {prunes} and not pruned.exists():
            pruned.touch()
            raise scavenge.ImageMissing(example.data["box"])
        reply = await model.chat([{{"role": "user", "content": "What is 1 + 1 ?"}}])
        return scavenge.Rollout(reply.text, 1.0)
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def lay_out(story: ImageStory, server: Server, boxes: list[str], keys: str = "", **how: bool) -> Folder:
    folder = Folder(story.path)
    folder.list(row(server))
    module = story.module(ENVIRONMENT.format(boxes=boxes, **{"misses": False, "prunes": False, **how}))
    text = 'endpoints_path = "endpoints.toml"\nelastic = true\n[images]\n' + keys
    story.write("eval.toml", f'{text}\n[[eval]]\nenv_id = "{module}:Boxes"\nendpoint_id = "pool"\n')
    return folder


async def test_a_ledger_that_cannot_be_written_is_told_and_ends_nothing(server, tmp_path: Path):
    async with open_story(tmp_path) as story:
        story.engine.remote = {f"{HUB}/x:1": FakeImage()}
        story.write("xdg_state_home", "a file where a folder should be")
        folder = lay_out(story, server, ["x:1"])
        ended = await story.scavenge("run", "eval.toml", "--no-progress")
        assert ended.code == 0, ended.said
        assert ended.said.count("cannot note which container images this run brings") == 1
        assert "XDG_STATE_HOME" in ended.said
        assert [line["status"] for line in folder.lines()] == ["ok"]
        assert not story.engine.images


async def test_garbage_in_a_ledger_removes_nothing_and_a_removal_that_breaks_costs_itself(tmp_path: Path):
    async with open_story(tmp_path) as story:
        story.engine.images = {f"{HUB}/{name}": FakeImage() for name in ("theirs:latest", "x:1", "y:1")}
        ledgers = tmp_path / "xdg_state_home" / "scavenge" / "images" / ENGINE_FOLDER
        ledgers.mkdir(parents=True)
        names = ["UPPER/../theirs", "theirs", "", "../../containers/json", "x:1?force=1", f"{HUB}/x:1", f"{HUB}/y:1"]
        lines = "".join(json.dumps({"bring": name}) + "\n" for name in names)
        (ledgers / "1-1-a.jsonl").write_bytes(b"\0\xff{\n[]\n" + lines.encode() + b'{"bring": "torn')
        os.mkfifo(ledgers / "2-1-b.jsonl")
        story.engine.script("remove", Cut())
        ended = await story.scavenge("images", "gc")
        assert ended.code == 1
        assert "x:1: left: container engine at" in ended.said
        assert set(story.engine.images) == {f"{HUB}/theirs:latest", f"{HUB}/x:1"}
        assert story.engine.calls["remove"] == 2


async def test_a_pull_is_no_success_when_rows_cannot_say_what_they_need(server, tmp_path: Path):
    async with open_story(tmp_path) as story:
        story.engine.remote = {f"{HUB}/x:1": FakeImage()}
        lay_out(story, server, ["x:1", "raises"])
        ended = await story.scavenge("images", "pull", "eval.toml")
        assert ended.code == 1
        assert "example '1' cannot be played: images() failed: LookupError: no such box" in ended.said
        assert set(story.engine.images) == {f"{HUB}/x:1"}


async def test_an_image_that_was_pruned_comes_again_and_one_that_is_always_missing_fails_only_its_sample(
    server, tmp_path: Path
):
    async with open_story(tmp_path) as story:
        story.engine.remote = {f"{HUB}/{name}:1": FakeImage((name.encode(),)) for name in "xy"}
        folder = lay_out(story, server, ["x:1", "y:1", "y:1"], misses=True, prunes=True)
        ended = await story.scavenge("run", "eval.toml", "--no-progress")
        assert ended.code == 1, ended.said
        results = {line["example_id"]: line for line in folder.lines()}
        assert [results[key]["status"] for key in "012"] == ["error", "ok", "ok"]
        assert results["0"]["error"]["type"] == "ImageMissing"
        assert not story.engine.images


async def test_a_run_ends_at_sigterm_while_the_engine_takes_nothing_of_a_tar(server, tmp_path: Path):
    async with open_story(tmp_path) as story:
        (tmp_path / "x.tar").write_bytes(docker_archive([("x:1", FakeImage((b"x" * 4_000_000,)))]))
        os.utime(tmp_path / "x.tar", (0, 0))
        story.engine.always("load", TakesNothing())
        folder = lay_out(story, server, ["x:1"], 'shipments = ["*.tar"]')
        async with story.started("run", "eval.toml", "--no-progress") as process:
            with trio.fail_after(BOUND_S):
                while not story.engine.calls["load"]:  # noqa: ASYNC110  # of another process
                    await trio.sleep(0.02)
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 143
        assert folder.lines() == []
        assert not list((tmp_path / "xdg_state_home").rglob("*.jsonl"))


async def test_a_password_that_the_engine_repeats_is_in_no_output_and_in_no_file(server, tmp_path: Path):
    async with open_story(tmp_path) as story:
        password, auth = "hunter2-and-more", base64.b64encode(b"me:hunter2-and-more").decode()
        (tmp_path / "docker_config").mkdir()
        auths = {"auths": {"https://index.docker.io/v1/": {"auth": auth}}}
        story.write("docker_config/config.json", json.dumps(auths))
        story.engine.always("pull", Fails(f"denied: {password} is not the password ({auth})"))
        lay_out(story, server, ["x:1"])
        ended = await story.scavenge("run", "eval.toml", "--no-progress")
        assert ended.code == 1
        assert "is not the password" in ended.said
        files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "config.json"]
        texts = [ended.said, ended.out, *(path.read_text(errors="replace") for path in files)]
        assert not [text for text in texts if password in text or auth in text]
