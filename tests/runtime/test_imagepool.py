"""The pool of container images on a virtual clock: who waits, who holds, what is brought and what is removed again."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from image_kit import GB, FakeEngine, FakeLedger, ImageStage, image, make_images, open_stage

from scavenge.errors import ImageUnavailable
from scavenge.events import (
    ImageFailed,
    ImageFetching,
    ImageReady,
    ImageReleased,
    ImagesChanged,
    ImageTrouble,
    Warned,
)
from scavenge.images import Broken, Delivered, DeliveryEnd, EngineSilent, Missing, Transferred
from scavenge.runtime.imagepool import ImageHold, open_images
from scavenge.runtime.ports import Report
from scavenge.testing import cancel_at_every_step


async def missing(engine: FakeEngine, image: str, report: Report) -> DeliveryEnd:
    await trio.sleep(1)
    return Missing("not here")


async def use(stage: ImageStage, one: str, seconds: float = 0) -> None:
    """What a rollout does with its image."""
    hold = await stage.pool.hold([one])
    await trio.sleep(seconds)
    hold.release()
    stage.pool.done([one])


async def test_images_that_are_there_cost_one_listing_however_many_wait(autojump_clock):
    engine = FakeEngine({image(n) for n in range(500)})
    async with open_stage(engine) as stage, trio.open_nursery() as nursery:
        for number in range(500):
            stage.pool.register([image(number)])
            nursery.start_soon(use, stage, image(number))
    assert engine.calls["list"] == 1
    assert engine.calls["inspect"] == engine.calls["remove"] == 0
    assert not stage.sources[0].asked


async def test_what_is_known_to_be_there_is_held_without_a_wait_or_a_call(autojump_clock):
    async with open_stage(FakeEngine({image(1)})) as stage:
        stage.pool.register([image(1)], rollouts=2)
        assert stage.pool.hold_nowait([image(1)]) is None  # nobody has looked yet
        await use(stage, image(1))
        calls = stage.engine.calls.total()
        hold = stage.pool.hold_nowait([image(1)])
        assert hold is not None
        hold.release()
        hold.release()
        await trio.sleep(3600)
        assert stage.engine.calls.total() == calls


async def test_an_image_is_delivered_once_however_many_want_it_and_no_more_at_once_than_allowed(autojump_clock):
    async with open_stage(workers=2) as stage, trio.open_nursery() as nursery:
        for number in range(6):
            stage.pool.register([image(number)], rollouts=20)
            for _ in range(20):
                nursery.start_soon(use, stage, image(number))
    assert sorted(stage.sources[0].asked) == [image(number) for number in range(6)]
    assert stage.sources[0].most_at_once == 2


async def test_who_has_waited_longest_is_served_first(autojump_clock):
    async with open_stage(workers=1) as stage, trio.open_nursery() as nursery:
        stage.pool.register([image(number) for number in range(4)])
        for number in (2, 0, 3):
            nursery.start_soon(use, stage, image(number))
            await trio.testing.wait_all_tasks_blocked()
    assert stage.sources[0].asked[:3] == [image(2), image(0), image(3)]


async def test_an_image_that_no_source_has_is_an_error_that_tells_what_each_said(autojump_clock):
    async with open_stage(None, missing, missing) as stage:
        stage.pool.register([image(1)], rollouts=2)
        for _ in range(2):
            with pytest.raises(ImageUnavailable, match=r"i1.*lane0: not here.*lane1: not here"):
                await stage.pool.hold([image(1)])
            stage.pool.done([image(1)])
        assert len(stage.told(ImageTrouble)) == 2
        assert [event.image for event in stage.told(ImageFailed)] == [image(1)]
        assert len(stage.sources[0].asked) == len(stage.sources[1].asked) == 1


async def test_the_next_source_is_asked_where_one_has_not_the_image(autojump_clock):
    async with open_stage(None, missing, None) as stage:
        stage.pool.register([image(1)])
        await use(stage, image(1))
        assert [event.source for event in stage.told(ImageFetching)] == ["lane0", "lane1"]
        (ready,) = stage.told(ImageReady)
        assert (ready.source, ready.size_bytes) == ("lane1", GB)
        assert ready.seconds == pytest.approx(10)


async def test_a_delivery_that_breaks_is_tried_again(autojump_clock):
    breaks = iter([True, True, False])

    async def breaking(engine: FakeEngine, image: str, report: Report) -> DeliveryEnd:
        await trio.lowlevel.checkpoint()
        if next(breaks):
            return Broken("unexpected EOF")
        engine.images.add(image)
        return Delivered(GB)

    async with open_stage(None, breaking) as stage:
        stage.pool.register([image(1)])
        await use(stage, image(1))
        assert len(stage.sources[0].asked) == 3


async def test_a_wait_is_bounded_and_says_what_held_it_up(autojump_clock):
    async def for_ever(engine: FakeEngine, image: str, report: Report) -> DeliveryEnd:
        report(Transferred(GB // 2, GB))
        await trio.sleep_forever()
        raise AssertionError

    async with open_stage(None, for_ever, wait_timeout_s=100.0) as stage:
        stage.pool.register([image(1)])
        started_at = trio.current_time()
        with pytest.raises(ImageUnavailable, match="50 %"):
            await stage.pool.hold([image(1)])
        assert trio.current_time() - started_at == pytest.approx(100, abs=1)
        stage.pool.done([image(1)])
        (last,) = stage.told(ImagesChanged)[-1].status.deliveries
        assert (last.done_bytes, last.total_bytes) == (GB // 2, GB)


async def test_while_the_engine_is_silent_unknown_images_are_assumed_in_the_end(autojump_clock):
    async with open_stage(FakeEngine(silent=True)) as stage:
        stage.pool.register([image(1)])
        started_at = trio.current_time()
        hold = await stage.pool.hold([image(1)])
        assert 25 <= trio.current_time() - started_at <= 70
        assert not stage.sources[0].asked
        hold.release()
        stage.pool.done([image(1)])


async def test_an_engine_that_comes_back_is_asked(autojump_clock):
    async with open_stage(FakeEngine(silent=True)) as stage:
        stage.pool.register([image(1)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use, stage, image(1))
            await trio.sleep(5)
            stage.engine.silent = False
        assert stage.sources[0].asked == [image(1)]


async def test_what_was_brought_is_in_the_ledger_before_its_source_is_asked_and_leaves_it_when_it_is_removed(
    autojump_clock,
):
    seen: list[bool] = []
    stages: list[ImageStage] = []

    async def looking(engine: FakeEngine, image: str, report: Report) -> DeliveryEnd:
        await trio.lowlevel.checkpoint()
        seen.append(image in stages[0].ledger.owned)
        engine.images.add(image)
        return Delivered(GB)

    async with open_stage(FakeEngine({image(2)}), looking) as stage:
        stages.append(stage)
        stage.pool.register([image(1), image(2)])
        hold = await stage.pool.hold([image(1), image(2)])
        hold.release()
        stage.pool.done([image(1), image(2)])
    assert seen == [True]
    assert stage.engine.removed == [image(1)]
    assert stage.engine.images == {image(2)}
    assert stage.ledger.owned == set()
    assert {one for kind, one in stage.ledger.notes if kind == "need"} == {image(1), image(2)}
    assert [event.image for event in stage.told(ImageReleased)] == [image(1)]


async def test_a_run_that_keeps_images_removes_none_and_takes_none_over(autojump_clock):
    ledger = FakeLedger(left=[image(9)])
    async with open_stage(FakeEngine({image(9)}), ledger=ledger, keep=True) as stage:
        stage.pool.register([image(1)])
        await use(stage, image(1))
    assert stage.engine.images == {image(1), image(9)}
    assert not ledger.owned


async def test_what_a_dead_run_left_is_removed_by_the_next(autojump_clock):
    ledger = FakeLedger(left=[image(9), image(8)])
    async with open_stage(FakeEngine({image(7), image(8), image(9)}), ledger=ledger) as stage:
        stage.pool.register([image(8)])
        await use(stage, image(8))
        assert image(8) in stage.engine.images
    assert stage.engine.images == {image(7)}


async def test_what_another_process_needs_or_a_container_has_is_left_in_the_ledger(autojump_clock):
    ledger = FakeLedger(elsewhere={image(1)})
    async with open_stage(FakeEngine(in_use={image(2)}), ledger=ledger) as stage:
        for number in range(3):
            stage.pool.register([image(number)])
            await use(stage, image(number))
    assert stage.engine.images == {image(1), image(2)}
    assert ledger.owned == {image(1), image(2)}


async def test_the_end_is_bounded_and_a_cancelled_end_more_so(autojump_clock):
    for stop, within_s in ((False, 60.0), (True, 2.0)):
        with trio.CancelScope() as scope:
            async with open_stage(FakeEngine(slow_removal_s=3600.0)) as stage:
                stage.pool.register([image(1)])
                await use(stage, image(1))
                started_at = trio.current_time()
                if stop:
                    scope.cancel()
                    await trio.lowlevel.checkpoint()
        assert trio.current_time() - started_at == pytest.approx(within_s, abs=0.1)
        assert stage.ledger.owned == {image(1)}


async def test_a_run_with_more_images_than_room_gets_through(autojump_clock):
    engine = FakeEngine({image("theirs")}, room=5)
    async with open_stage(engine, min_free_bytes=GB) as stage, trio.open_nursery() as nursery:
        for number in range(20):
            stage.pool.register([image(number)])
        for number in range(20):
            nursery.start_soon(use, stage, image(number), 5)
    assert sorted(set(stage.sources[0].asked)) == sorted(image(number) for number in range(20))
    assert image("theirs") in engine.images


async def test_an_image_that_turns_out_to_be_missing_is_delivered_for_real(autojump_clock):
    async with open_stage(FakeEngine({image(1)})) as stage:
        stage.pool.register([image(1)])
        hold = await stage.pool.hold([image(1)])
        stage.engine.images.clear()  # somebody prunes
        assert hold.has("i1")
        assert not hold.has("other")
        assert not hold.has("No Reference")
        await hold.renew("i1")
        assert stage.sources[0].asked == [image(1)]
        hold.release()
        stage.pool.done([image(1)])


def test_a_wait_that_is_cancelled_at_any_step_holds_nothing_and_waits_for_nothing():
    stages: list[ImageStage] = []

    async def wait() -> None:
        stage = make_images(FakeEngine({image(1)}))
        stages.append(stage)
        async with open_images(stage.pool):
            stage.pool.register([image(1), image(2)])
            hold: ImageHold | None = None
            try:
                hold = await stage.pool.hold([image(1), image(2)])
                await hold.renew(image(2))
            finally:
                if hold is not None:
                    hold.release()
                stage.pool.done([image(1), image(2)])

    def check() -> None:
        status = stages[-1].pool.plan.status(0.0)
        assert status.waiting == 0
        assert status.wanted == 0
        for number in (1, 2):
            with pytest.raises(ValueError, match="lease"):  # nothing is held that could be given back
                stages[-1].pool.plan.unlease(image(number))

    assert cancel_at_every_step(wait, check) > 5


async def test_ten_thousand_registered_images_are_not_all_fetched_ahead(autojump_clock):
    async with open_stage(workers=4) as stage:
        for number in range(10_000):
            stage.pool.register([image(number)])
        await trio.sleep(3600)
        assert len(stage.sources[0].asked) <= 16


async def test_two_rollouts_that_need_two_images_each_do_not_starve_each_other(autojump_clock):
    engine = FakeEngine(room=3)

    async def need_two(first: str, second: str) -> None:
        hold = await stage.pool.hold([first, second])
        await trio.sleep(1)
        hold.release()
        stage.pool.done([first, second])

    async with open_stage(engine, min_free_bytes=GB) as stage, trio.open_nursery() as nursery:
        for pair in ((image(1), image(2)), (image(3), image(4)), (image(5), image(6))):
            stage.pool.register(pair)
            nursery.start_soon(partial(need_two, *pair))


async def test_an_engine_that_is_gone_at_the_end_leaves_what_was_brought_to_the_next_run(autojump_clock):
    async with open_stage() as stage:
        stage.pool.register([image(1)])
        await use(stage, image(1))
        stage.engine.silent = True
    assert stage.ledger.owned == {image(1)}


async def test_a_delivery_that_the_engine_did_not_answer_stays_in_the_ledger_until_it_is_known_what_came_of_it(
    autojump_clock,
):
    answers = iter([EngineSilent("it was restarted"), Delivered(GB)])

    async def restarted(engine: FakeEngine, image: str, report: Report) -> DeliveryEnd:
        await trio.lowlevel.checkpoint()
        end = next(answers)
        owned.append(image in stage.ledger.owned)
        engine.images.update([image] if isinstance(end, Delivered) else [])
        return end

    owned: list[bool] = []
    async with open_stage(None, restarted) as stage:
        stage.pool.register([image(1)])
        await use(stage, image(1))
    assert owned == [True, True]
    assert stage.ledger.notes[-1] == ("let go", image(1))
    assert stage.ledger.notes.count(("let go", image(1))) == 1


async def test_a_wait_that_is_answered_and_cancelled_at_once_holds_nothing(autojump_clock):
    async with open_stage(FakeEngine({image(1)})) as stage:
        stage.pool.register([image(1)])
        wait = stage.pool.ask([image(1)])
        await wait.said.wait()  # it is answered, and whoever waits has not heard of it
        with trio.CancelScope() as scope:
            scope.cancel()
            await stage.pool.wait_held(wait)
        assert scope.cancelled_caught
        stage.pool.done([image(1)])
        with pytest.raises(ValueError, match="lease"):
            stage.pool.plan.unlease(image(1))


async def test_the_pool_tells_how_it_is_doing_only_where_somebody_asked_for_images(autojump_clock):
    async with open_stage() as stage:
        assert stage.pool.status() is None
        stage.pool.register([image(1)])
        assert stage.pool.status().wanted == 1
        await use(stage, image(1))
        assert stage.pool.status().brought == 1


class Hanging:
    """A thread that does not come back, as on a network file system that is away."""

    async def run(self, step, *, abandon_on_cancel: bool = False):
        await trio.sleep_forever()


async def test_a_look_at_the_disk_that_hangs_holds_up_nothing_for_long(autojump_clock):
    async with open_stage(looking=Hanging()) as stage:
        stage.pool.register([image(1)])
        started_at = trio.current_time()
        await use(stage, image(1))
        assert trio.current_time() - started_at < 60


async def test_what_a_user_has_stays_the_users_even_if_it_is_said_to_be_missing(autojump_clock):
    async with open_stage(FakeEngine({image(1)})) as stage:
        stage.pool.register([image(1)])
        hold = await stage.pool.hold([image(1)])
        await hold.renew(image(1))  # the environment looks at another engine, say
        hold.release()
        stage.pool.done([image(1)])
    assert stage.engine.images == {image(1)}
    assert not stage.ledger.owned


async def test_another_engine_has_another_ledger_and_nothing_of_ours(autojump_clock):
    async with open_stage() as stage:
        stage.pool.register([image(1)])
        await use(stage, image(1))
        stage.engine.engine_id = "another-engine"
        stage.engine.removed.clear()
        await trio.sleep(60)
        stage.pool.register([image(2)])
        await use(stage, image(2))
    assert stage.ledger.opened == 2
    assert stage.engine.removed == [image(2)]


async def test_images_that_rows_need_later_are_claimed_at_once(autojump_clock):
    async with open_stage(FakeEngine({image(1), image(2)})) as stage:
        stage.pool.register([image(1)])
        await use(stage, image(1))
        stage.pool.register([image(2)])
        await trio.testing.wait_all_tasks_blocked()
        assert ("need", image(2)) in stage.ledger.notes


async def test_what_somebody_else_brings_while_another_image_is_delivered_stays_theirs(autojump_clock):
    async with open_stage(workers=1) as stage, trio.open_nursery() as nursery:
        stage.pool.register([image(1)])
        stage.pool.register([image(2)])
        nursery.start_soon(use, stage, image(1))
        nursery.start_soon(use, stage, image(2))
        await trio.sleep(5)
        (first,) = stage.sources[0].asked
        (second,) = {image(1), image(2)} - {first}
        stage.engine.images.add(second)
    assert stage.sources[0].asked == [first]
    assert stage.engine.images == {second}


async def test_the_last_to_end_removes_what_those_before_it_left_to_it(autojump_clock):
    ledger = FakeLedger()
    async with open_stage(FakeEngine({image(5)}), ledger=ledger) as stage:
        stage.pool.register([image(5)])
        await use(stage, image(5))
        ledger.left = [image(5)]  # whoever brought it has ended meanwhile, and left it because we needed it
    assert not stage.engine.images
    assert not ledger.owned


async def test_what_stays_behind_is_told(autojump_clock):
    async with open_stage() as stage:
        stage.pool.register([image(1)])
        await use(stage, image(1))
        stage.engine.silent = True
    (warned,) = stage.told(Warned)
    assert "i1:latest" in warned.message
    assert "images gc" in warned.message
    (released,) = stage.told(ImageReleased)
    assert "does not answer" in released.why
