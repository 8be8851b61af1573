"""``scavenge images`` as a user has it: exit codes, what it prints, what is in the engine afterwards."""

from __future__ import annotations

import json
from pathlib import Path

from image_story import ImageStory, open_story

from fake_engine import Fails, FakeImage, Refuses

HUB = "docker.io/library"


async def test_pull_delivers_every_image_of_a_list_and_keeps_it(tmp_path: Path):
    async with open_story(tmp_path) as story:
        story.engine.remote = {f"{HUB}/x:1": FakeImage(), f"{HUB}/y:latest": FakeImage()}
        names = story.write("names.txt", "x:1  # the first\n\n# none\ny\nx:1\n")
        ended = await story.scavenge("images", "pull", str(names))
        assert ended.code == 0, ended.said
        assert set(story.engine.images) == {f"{HUB}/x:1", f"{HUB}/y:latest"}
        assert story.engine.calls["pull"] == 2
        assert "x:1" in ended.said
        again = await story.scavenge("images", "pull", str(names))
        assert again.code == 0
        assert story.engine.calls["pull"] == 2


async def test_pull_says_which_image_is_not_to_be_had(tmp_path: Path):
    async with open_story(tmp_path) as story:
        story.engine.remote = {f"{HUB}/x:1": FakeImage()}
        names = story.write("names.txt", "x:1\nregistry.invalid/none:2\n")
        ended = await story.scavenge("images", "pull", str(names))
        assert ended.code == 1
        assert "registry.invalid/none:2" in ended.said
        assert set(story.engine.images) == {f"{HUB}/x:1"}


async def test_a_list_with_wrong_lines_names_each_and_pulls_nothing(tmp_path: Path):
    async with open_story(tmp_path) as story:
        names = story.write("names.txt", "x:1\nUPPER/Case\nhttps://registry.example/x\n")
        ended = await story.scavenge("images", "pull", str(names))
        assert ended.code == 2
        assert "line 2" in ended.said
        assert "line 3" in ended.said
        assert not story.engine.calls["pull"]


ENVIRONMENT = """
import scavenge

class Boxes(scavenge.Environment):
    multi_turn = False
    in_worker = {in_worker}

    def examples(self):
        for name in ("x:1", "y:1", "x:1"):
            yield scavenge.Example(id=name + str(id(object())), data={{"box": name}})

    def images(self, example):
        return [example.data["box"]]

    async def play(self, example, model): ...
"""
EVAL = """
endpoints_path = "endpoints.toml"
elastic = true
[[eval]]
env_id = "MODULE:Boxes"
endpoint_id = "pool"
"""


def evaluation(story: ImageStory, keys: str = "", *, in_worker: bool = False) -> str:
    """An evaluation file whose environment needs two images."""
    module = story.module(ENVIRONMENT.format(in_worker=in_worker))
    return str(story.write("eval.toml", EVAL.replace("MODULE", module) + keys))


async def test_pull_and_list_take_an_evaluation_file_and_ask_its_environments(tmp_path: Path):
    for in_worker in (False, True):
        async with open_story(tmp_path) as story:
            story.engine.remote = {f"{HUB}/x:1": FakeImage(), f"{HUB}/y:1": FakeImage()}
            file = evaluation(story, in_worker=in_worker)
            listed = await story.scavenge("images", "list", file, "--json")
            assert listed.code == 1, listed.said
            assert [(row["image"], row["present"]) for row in json.loads(listed.out)] == [
                (f"{HUB}/x:1", False),
                (f"{HUB}/y:1", False),
            ]
            assert (await story.scavenge("images", "pull", file)).code == 0
            listed = await story.scavenge("images", "list", file)
            assert listed.code == 0
            assert "x:1" in listed.out
            assert not list((tmp_path / "runs").glob("*"))


async def test_images_are_packed_repacked_shipped_and_come_out_of_the_store_again(tmp_path: Path):
    async with open_story(tmp_path) as story:
        story.engine.images = {f"{HUB}/x:1": FakeImage(), f"{HUB}/y:1": FakeImage()}
        packed = await story.scavenge("images", "pack", "x:1", "y:1", "none:1", "--to", "tars")
        assert packed.code == 1
        assert "none:1" in packed.said
        assert len(list((tmp_path / "tars").glob("*.tar"))) == 2
        shipped = await story.scavenge("images", "ship", "tars", "--to", f"folder:{tmp_path / 'store'}")
        assert shipped.code == 0, shipped.said
        again = await story.scavenge("images", "ship", "tars", "--to", f"folder:{tmp_path / 'store'}")
        assert "was there already" in again.said
        tars = [str(tar) for tar in (tmp_path / "tars").glob("*.tar")]
        repacked = await story.scavenge("images", "repack", *tars, "--to", "again")
        assert repacked.code == 0, repacked.said
        assert len(list((tmp_path / "again").glob("*.tar"))) == 2

        story.engine.images.clear()
        store = '[[images.store]]\ntype = "folder"\npath = "store"\n'
        pulled = await story.scavenge("images", "pull", evaluation(story, store))
        assert pulled.code == 0, pulled.said
        assert set(story.engine.images) == {f"{HUB}/x:1", f"{HUB}/y:1"}
        assert not story.engine.calls["pull"]

        story.engine.images.clear()
        shipments = '[images]\nshipments = ["again/*.tar"]\n'
        pulled = await story.scavenge("images", "pull", evaluation(story, shipments))
        assert pulled.code == 0, pulled.said
        assert set(story.engine.images) == {f"{HUB}/x:1", f"{HUB}/y:1"}
        assert not story.engine.calls["pull"]


async def test_what_cannot_be_shipped_is_told_before_anything_is_sent(tmp_path: Path):
    async with open_story(tmp_path) as story:
        story.write("loose.tar", "")
        (tmp_path / "empty").mkdir()
        to = f"folder:{tmp_path / 'store'}"
        for arguments, said in (
            (("loose.tar", "empty", "--to", to), "loose.tar"),
            (("empty", "--to", "nothing"), "TYPE:ADDRESS"),
            (("empty", "--to", "foldr:x"), "folder"),
            (("empty", "--to", to, "--set", "pth=3"), "pth"),
            (("empty", "--to", to, "--set", "path"), "KEY=VALUE"),
        ):
            ended = await story.scavenge("images", "ship", *arguments)
            assert ended.code == 2, arguments
            assert said in ended.said
        assert not (tmp_path / "store").exists()


async def test_an_engine_that_is_not_there_is_named_with_the_remedy(tmp_path: Path):
    async with open_story(tmp_path) as story:
        for arguments in (("list",), ("gc",), ("pack", "x:1", "--to", "tars")):
            ended = await story.scavenge("images", *arguments, "--engine", f"unix://{tmp_path}/none.sock")
            assert ended.code in (1, 2)
            assert "none.sock" in ended.said
            assert "Traceback" not in ended.said


async def test_a_pull_that_fails_at_first_is_tried_again(tmp_path: Path):
    async with open_story(tmp_path) as story:
        story.engine.remote = {f"{HUB}/x:1": FakeImage()}
        story.engine.script("pull", Fails("unexpected EOF"), Refuses(500, "i/o timeout"))
        ended = await story.scavenge("images", "pull", str(story.write("names.txt", "x:1")))
        assert ended.code == 0, ended.said
        assert story.engine.calls["pull"] == 3
