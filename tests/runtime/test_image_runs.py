"""Evaluations whose rollouts need container images: they wait before they take anything, and only those that must."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from fleet_kit import Kit, open_kit
from image_kit import FakeEngine, ImageStage, image, make_images

from scavenge.core.plan import RolloutTask
from scavenge.errors import ImageMissing
from scavenge.images import DeliveryEnd, Missing
from scavenge.rollouts import Example, Rollout, RolloutKey
from scavenge.runtime.imageline import ImageLine
from scavenge.runtime.imagepool import open_images
from scavenge.runtime.ports import Environment, ModelSession, Report
from scavenge.testing.engine import EngineSettings
from scavenge.testing.fleet import SimulatedFleet, SimulatedServer


class Boxes(Environment):
    """Needs the image ``i<box>`` for each example, and asks the model once."""

    def __init__(self, boxes: list[str], *, multi_turn: bool = False) -> None:
        self.boxes = boxes
        self.played: list[tuple[str, float]] = []
        self.multi_turn = multi_turn  # type: ignore[misc]

    def examples(self) -> Iterator[Example]:
        for number, box in enumerate(self.boxes):
            yield Example(str(number), {"box": box})

    def images(self, example: Example) -> list[str]:
        return [f"i{example.data['box']}"] if example.data["box"] else []

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        self.played.append((example.id, trio.current_time()))
        reply = await model.chat([{"role": "user", "content": "hi"}])
        return Rollout(reply.text, 1.0)


def fleet() -> SimulatedFleet:
    return SimulatedFleet([SimulatedServer("a", EngineSettings(slots=8))])


async def play(kit: Kit, stage: ImageStage, environment: Environment, **settings: object) -> None:
    async with open_images(stage.pool):
        await kit.play(kit.job(environment, images=stage.pool, **settings))


async def absent(engine: FakeEngine, image: str, report: Report) -> DeliveryEnd:
    await trio.sleep(1)
    return Missing("no such image")


@pytest.mark.parametrize("multi_turn", [False, True])
async def test_a_slow_image_holds_up_its_own_rollouts_and_no_others(multi_turn, autojump_clock):
    environment = Boxes(["slow", "", "fast", "slow", ""], multi_turn=multi_turn)
    stage = make_images(FakeEngine({image("fast")}))
    stage.sources[0].seconds = 300.0
    async with open_kit(fleet()) as kit:
        started_at = trio.current_time()
        await play(kit, stage, environment)
    times = {example: at - started_at for example, at in environment.played}
    assert max(times["1"], times["2"], times["4"]) < 60
    assert min(times["0"], times["3"]) >= 300
    assert len(kit.lines.written) == 5
    assert all(line["status"] == "ok" for line in kit.lines.written)
    assert all(line["timing"]["total_s"] < 60 for line in kit.lines.written)


async def test_an_image_that_is_not_to_be_had_fails_its_rollouts_as_infrastructure(autojump_clock):
    environment = Boxes(["gone", ""])
    stage = make_images(FakeEngine(), absent)
    async with open_kit(fleet()) as kit:
        await play(kit, stage, environment, rollout_retries=3)
    lines = {line["example_id"]: line for line in kit.lines.written}
    assert lines["0"]["error"]["type"] == "ImageUnavailable"
    assert "no such image" in lines["0"]["error"]["message"]
    assert lines["0"]["reward"] is None
    assert lines["1"]["status"] == "ok"
    assert [example for example, _ in environment.played] == ["1"]
    assert stage.pool.plan.status(0.0).wanted == 0


@pytest.mark.parametrize(("times", "status"), [(2, "ok"), (3, "error")])
async def test_a_rollout_that_finds_its_image_missing_is_played_again_twice(times, status, autojump_clock):
    class Pruned(Boxes):
        async def play(self, example: Example, model: ModelSession) -> Rollout:
            if len(self.played) < times:
                self.played.append((example.id, trio.current_time()))
                stage.engine.images.clear()
                raise ImageMissing("ione")
            return await super().play(example, model)

    environment = Pruned(["one"])
    stage = make_images(FakeEngine({image("one")}))
    async with open_kit(fleet()) as kit:
        await play(kit, stage, environment)
    (line,) = kit.lines.written
    assert line["status"] == status
    assert len(environment.played) == 3
    assert stage.sources[0].asked == [image("one")] * 2
    if status == "error":
        assert line["error"]["type"] == "ImageMissing"


async def test_a_missing_image_that_was_never_asked_for_is_an_error_like_any_other(autojump_clock):
    class Surprised(Boxes):
        async def play(self, example: Example, model: ModelSession) -> Rollout:
            self.played.append((example.id, trio.current_time()))
            raise ImageMissing("never-heard-of")

    environment = Surprised(["one"])
    stage = make_images(FakeEngine({image("one")}))
    async with open_kit(fleet()) as kit:
        await play(kit, stage, environment, rollout_retries=1)
    assert len(environment.played) == 2
    assert kit.lines.written[0]["error"]["type"] == "ImageMissing"


async def test_every_row_is_registered_at_the_start_and_every_need_ends(autojump_clock):
    environment = Boxes([str(number % 7) for number in range(1000)])
    stage = make_images(FakeEngine({image(number) for number in range(7)}))
    wanted: list[int] = []

    class Watching(Boxes):
        async def play(self, example: Example, model: ModelSession) -> Rollout:
            wanted.append(stage.pool.plan.status(trio.current_time()).wanted)
            return await super().play(example, model)

    environment = Watching(environment.boxes)
    async with open_kit(fleet()) as kit:
        await play(kit, stage, environment, rollouts_per_example=2)
    assert len(kit.lines.written) == 2000
    assert wanted[0] == 7
    assert stage.pool.plan.status(0.0).wanted == 0
    assert stage.engine.calls["list"] == 1


async def test_rows_whose_images_cannot_be_told_are_errors_of_their_own(autojump_clock):
    class Odd(Boxes):
        def images(self, example: Example) -> list[str]:
            match example.data["box"]:
                case "raises":
                    raise KeyError("image")
                case "text":
                    return "python:3.12"  # type: ignore[return-value]
                case "bad":
                    return ["Not A Reference"]
                case _:
                    return []

    stage = make_images()
    async with open_kit(fleet()) as kit:
        await play(kit, stage, Odd(["raises", "text", "bad", "good"]))
    said = {line["example_id"]: (line["error"] or {}).get("message", "") for line in kit.lines.written}
    assert "images() failed: " in said["0"]
    assert "KeyError" in said["0"]
    assert "images() returned 'python:3.12'" in said["1"] or 'images() returned "python:3.12"' in said["1"]
    assert "Not A Reference" in said["2"]
    assert said["3"] == ""


async def test_images_are_fetched_in_the_order_in_which_their_rollouts_come(autojump_clock):
    boxes = [str(number) for number in range(20)]
    stage = make_images(FakeEngine(), workers=1)
    async with open_kit(fleet()) as kit:
        await play(kit, stage, Boxes(boxes))
    assert stage.sources[0].asked == [image(box) for box in boxes]


async def test_a_run_that_is_stopped_while_rollouts_wait_for_images_leaves_nothing_behind(autojump_clock):
    environment = Boxes([str(number) for number in range(40)])
    stage = make_images(FakeEngine())
    async with open_kit(fleet()) as kit:
        with trio.move_on_after(35):
            await play(kit, stage, environment)
    status = stage.pool.plan.status(0.0)
    assert (status.waiting, status.wanted) == (0, 0)
    assert stage.sources[0].under_way == 0
    assert 0 < len(kit.lines.written) < 40


async def test_images_that_nobody_took_out_of_the_line_are_given_back(autojump_clock):
    stage = make_images(FakeEngine({image(1)}))
    line = ImageLine(stage.pool)
    task = RolloutTask(RolloutKey("e", "x", 0), Example("x", {}, images=(image(1),)), 1, 0)
    async with open_images(stage.pool), trio.open_nursery() as nursery:
        stage.pool.register([image(1)])
        line.park(task, nursery)
        await line.wait_moved()
        line.close()
        assert line.is_empty
        with pytest.raises(ValueError, match="lease"):
            stage.pool.plan.unlease(image(1))


async def test_a_run_that_is_stopped_gives_back_the_images_of_rollouts_that_wait_for_room(autojump_clock):
    class Stuck(Boxes):
        async def play(self, example: Example, model: ModelSession) -> Rollout:
            await trio.sleep_forever()
            raise AssertionError

    boxes = ["1", "2", "3", "4"]
    stage = make_images(FakeEngine())
    async with open_kit(fleet()) as kit:
        with trio.move_on_after(120):
            await play(kit, stage, Stuck(boxes), max_concurrent=1)
    assert len(stage.sources[0].asked) == len(boxes)
    for box in boxes:
        with pytest.raises(ValueError, match="lease"):
            stage.pool.plan.unlease(image(box))
