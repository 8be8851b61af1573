"""In which order images are fetched, from which source, and what becomes of one that a source does not give."""

from __future__ import annotations

import pytest

from image_plan_kit import FixedRandom, Stage, told
from scavenge.core.images.commands import Answer, Deliver, Ready, Unavailable
from scavenge.events import ImageFailed, ImageTrouble
from scavenge.images import Broken, Delivered, Denied, DiskFull, Missing, Throttled, Unfit

# --- the order


def test_images_are_fetched_in_the_order_in_which_they_were_registered():
    stage = Stage(workers=2)
    stage.register("one", "two", "three", "four")
    assert stage.under_way == {"one": 0, "two": 0}
    assert stage.deliver("two") == [Deliver("three", 0)]
    assert stage.deliver("one") == [Deliver("four", 0)]


def test_what_somebody_waits_for_comes_first_the_earliest_waiter_before_the_others():
    stage = Stage(workers=1)
    stage.register("one", "two", "three", "four")
    stage.wait("four")
    first = stage.wait("three")
    stage.wait("three")
    assert stage.deliver("one") == [Deliver("four", 0)]
    stage.plan.withdraw(first)
    stage.wait("two")
    assert told(stage.deliver("four"), Deliver) == [Deliver("three", 0)]
    assert told(stage.deliver("three"), Deliver) == [Deliver("two", 0)]


def test_who_waits_no_longer_makes_nothing_urgent():
    stage = Stage(workers=1)
    stage.register("one", "two", "three")
    stage.plan.withdraw(stage.wait("three"))
    assert stage.deliver("one") == [Deliver("two", 0)]


def test_an_image_that_is_needed_again_stands_behind_the_others():
    stage = Stage(workers=1)
    stage.register("one", "two", "three")
    stage.plan.done("two")
    stage.register("two")
    assert stage.deliver("one") == [Deliver("three", 0)]


def test_images_are_not_fetched_long_before_their_use():
    stage = Stage(workers=4)
    names = [f"image-{number}" for number in range(10_000)]
    stage.register(*names)
    for name in names[:16]:
        stage.deliver(name)
    assert stage.under_way == {}
    assert stage.counts["Deliver"] == 16
    assert (stage.status.state, stage.status.why) == ("waiting", "it is fetched when its time comes near")
    stage.wait(names[5_000])  # those who wait have theirs in any case
    assert stage.under_way == {names[5_000]: 0}
    stage.wait(names[0])  # it is used, and there is a place again
    assert stage.under_way == {names[5_000]: 0}
    stage.deliver(names[5_000])
    assert stage.under_way == {names[16]: 0}


def test_what_is_brought_again_is_ahead_of_its_use_again():
    stage = Stage(workers=1)
    names = [f"image-{number}" for number in range(17)]
    stage.play(names[0])
    stage.deliver(names[0])
    stage.plan.unlease(names[0])
    stage.plan.missing(names[0], stage.now)
    stage.register(*names)
    for name in names[:16]:
        stage.deliver(name)
    assert stage.under_way == {}


def test_twice_as_many_as_are_used_are_fetched_ahead():
    stage = Stage(workers=100)
    names = [f"image-{number}" for number in range(100)]
    for name in names[:20]:
        stage.play(name)
        stage.deliver(name)
    stage.register(*names[20:])
    assert len(stage.under_way) == 40
    stage.over(names[0])
    stage.deliver(names[20])
    assert len(stage.under_way) == 39  # 38 of 19, and none begins
    stage.deliver(names[21])
    assert len(stage.under_way) == 38
    stage.play(names[20])
    assert len(stage.under_way) == 39


def test_what_is_needed_no_more_is_not_begun_and_what_is_under_way_goes_on():
    stage = Stage(workers=1)
    stage.register("one", "two", "three")
    stage.plan.done("one")
    stage.plan.done("two")
    stage.settle()
    assert stage.under_way == {"one": 0}
    assert stage.deliver("one") == [Deliver("three", 0)]
    assert stage.plan.leftovers() == ["one", "three"]


def test_an_image_is_delivered_once_however_many_want_it():
    stage = Stage(workers=8)
    waiters = [stage.play("image") for _ in range(50)]
    assert stage.counts["Deliver"] == 1
    answers = told(stage.deliver("image"), Answer)
    assert [answer.waiter for answer in answers] == waiters


# --- the sources of one image


@pytest.mark.parametrize(
    ("end", "outcome", "said"),
    [
        (Missing("not in any\ntar"), "missing", "not in any tar"),
        (Denied("log in"), "denied", "denied: log in"),
        (Unfit("linux/arm64"), "unfit", "unfit: linux/arm64"),
    ],
)
def test_a_source_that_does_not_give_the_image_is_asked_for_it_no_more(end, outcome, said):
    stage = Stage(("shipments", "hub"))
    waiter = stage.play("image")
    assert stage.end("image", end) == [Deliver("image", 1)]
    assert stage.told == [ImageTrouble("image", "shipments", outcome, end.why.replace("\n", " "), None)]
    stage.end("image", Denied("no credentials for hub"))
    why = f"shipments: {said}; hub: denied: no credentials for hub"
    assert stage.answered == {waiter: Unavailable(why)}
    trouble, failed = stage.told
    assert (trouble.retry_s, failed) == (None, ImageFailed("image", why))
    assert stage.answered[stage.play("image")] == Unavailable(why)
    assert stage.told == []
    stage.has.add("image")
    stage.pass_time(100)
    stage.register("another")
    assert not stage.plan.is_ready("image")  # failed for good


def test_what_others_say_is_cut_where_it_is_too_long():
    stage = Stage()
    waiter = stage.play("image")
    stage.end("image", Missing("x" * 10_000))
    assert len(stage.answered[waiter].why) == len("hub: ") + 300


def test_an_image_without_any_source_fails_once_it_is_known_to_be_absent():
    stage = Stage(())
    stage.has = {"there"}
    stage.play("there")
    waiter = stage.play("absent")
    assert stage.answered[waiter] == Unavailable("there is no source to fetch it from")
    assert stage.plan.is_ready("there")
    assert stage.told == [ImageFailed("absent", "there is no source to fetch it from")]


def test_an_image_fails_only_once_somebody_needs_it():
    stage = Stage()
    stage.register("image")
    stage.plan.done("image")
    stage.end("image", Missing("no"))
    assert [type(event) for event in stage.told] == [ImageTrouble]
    waiter = stage.play("image")
    assert stage.answered[waiter] == Unavailable("hub: no")
    assert [type(event) for event in stage.told] == [ImageFailed]


def test_a_source_that_breaks_is_tried_three_times_with_growing_pauses():
    stage = Stage()
    stage.play("image")
    assert stage.end("image", Broken("cut")) == []
    assert stage.told == [ImageTrouble("image", "hub", "broken", "cut", 2)]
    assert stage.pass_time(1.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 0)]
    assert stage.end("image", Broken("cut")) == []
    assert stage.pass_time(3.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 0)]
    assert stage.end("image", Broken("cut")) == []
    assert [event.retry_s for event in stage.told] == [4, 120]


def test_when_a_source_breaks_the_next_one_is_tried_at_once_and_it_again_later():
    stage = Stage(("shipments", "mirror", "hub"), workers=1)
    stage.play("image")
    assert stage.end("image", Broken("cut")) == [Deliver("image", 1)]
    stage.now += 5  # the first has rested, and the last was not tried yet
    assert stage.end("image", Broken("cut")) == [Deliver("image", 2)]
    assert stage.end("image", Broken("cut")) == [Deliver("image", 0)]
    assert stage.end("image", Broken("cut")) == []
    assert [event.retry_s for event in stage.told] == [2, 2, 2, 4]
    assert stage.pass_time(2) == [Deliver("image", 1)]
    assert stage.end("image", Missing("no")) == [Deliver("image", 2)]
    assert stage.end("image", Missing("no")) == []
    assert stage.pass_time(1.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 0)]


def test_a_source_that_has_rested_is_tried_while_the_next_one_is_shut():
    stage = Stage(("mirror", "hub"), list_ttl_s=1e9)
    stage.play("image")
    stage.end("image", Broken("cut"))
    assert stage.end("image", Throttled("429", 600)) == []
    assert stage.status.why == "hub: throttled: 429; tried again soon"
    assert stage.pass_time(1.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 0)]
    stage.end("image", Missing("no"))
    assert stage.status.why == "hub wants to be left alone for 10 min"


def test_a_source_that_rests_when_the_image_comes_by_other_means_is_tried_again_at_once():
    stage = Stage(("mirror", "hub"))
    stage.play("image")
    stage.end("image", Broken("cut"))
    stage.deliver("image")
    assert stage.plan.next_wake_at(stage.now) is None
    stage.plan.unlease("image")
    stage.plan.missing("image", stage.now)
    stage.settle()
    assert stage.under_way == {"image": 0}


def test_an_image_whose_last_source_is_shut_while_it_rests_begins_a_new_round():
    stage = Stage(("mirror", "hub"), list_ttl_s=1e9)
    stage.play("image")
    stage.end("image", Broken("cut"))
    for pause in (2, 1, 3):
        stage.end("image", Broken("cut"))
        stage.pass_time(pause)
    assert stage.under_way == {"image": 0}
    stage.end("image", Broken("cut"))  # through at the mirror, and rests at the hub for another second
    stage.plan.register("other", ("hub",), stage.now)
    stage.settle()
    stage.end("other", Throttled("429", 7_200))
    assert stage.pass_time(1) == []
    assert stage.pass_time(119.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 0)]


def test_the_last_source_is_heard_twice_before_its_image_is_unfit():
    stage = Stage(("mirror", "hub"))
    waiter = stage.play("image")
    assert stage.end("image", Unfit("wrong digest")) == [Deliver("image", 1)]
    assert stage.end("image", Unfit("wrong digest")) == []
    assert [event.retry_s for event in stage.told] == [None, 2]
    assert stage.pass_time(1.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 1)]
    stage.end("image", Unfit("wrong digest"))
    why = "mirror: unfit: wrong digest; hub: unfit: wrong digest"
    assert stage.answered == {waiter: Unavailable(why)}
    assert [event for event in stage.told if isinstance(event, ImageFailed)] == [ImageFailed("image", why)]


def test_the_last_source_is_heard_twice_again_after_it_has_delivered():
    stage = Stage(attempts=1, list_ttl_s=1e9, random=FixedRandom(0.5))
    stage.play("image")
    stage.end("image", Unfit("wrong digest"))
    assert stage.told[-1].retry_s == 90
    assert stage.pass_time(90) == [Deliver("image", 0)]
    stage.deliver("image")
    stage.plan.missing("image", stage.now)
    stage.settle()
    stage.end("image", Unfit("wrong digest"))
    assert stage.told[-1].retry_s == 90


def test_a_source_whose_image_is_unfit_is_gone_while_another_may_be_tried_again():
    stage = Stage(("mirror", "hub"), attempts=1, list_ttl_s=1e9)
    stage.play("image")
    stage.end("image", Broken("cut"))
    assert stage.end("image", Unfit("wrong digest")) == []
    assert [event.retry_s for event in stage.told] == [120, None]
    assert stage.pass_time(119.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 0)]


def test_each_source_that_has_rested_is_tried_again_even_if_nothing_was_fetched_meanwhile():
    stage = Stage(("mirror", "hub"), workers=1, list_ttl_s=1e9)
    stage.play("image")
    stage.end("image", Broken("cut"))
    stage.now += 1
    stage.end("image", Broken("cut"))
    stage.plan.register("other", ("mirror",), stage.now)
    stage.settle()
    stage.pass_time(10)
    assert stage.end("other", Throttled("429", 600)) == [Deliver("image", 1)]


def test_a_source_that_breaks_when_its_lane_is_shut_is_asked_again_in_the_next_round():
    stage = Stage(("mirror", "hub"), attempts=2, workers=2, list_ttl_s=1e9)
    stage.plan.register("other", ("hub",), stage.now)
    stage.play("image")
    stage.end("image", Broken("cut"))
    stage.end("image", Broken("cut"))
    stage.pass_time(2)
    stage.end("image", Broken("cut"))
    assert stage.under_way == {"other": 0, "image": 1}
    stage.end("other", Throttled("429", 7_200))
    assert stage.end("image", Broken("cut")) == []
    assert stage.told[-1].retry_s == 120
    assert stage.pass_time(119.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 0)]


def test_pauses_are_spread_from_nothing_to_the_whole():
    stage = Stage(random=FixedRandom(0.25))
    stage.play("image")
    stage.end("image", Broken("cut"))
    assert stage.pass_time(0.4) == []
    assert stage.pass_time(0.1) == [Deliver("image", 0)]


def test_when_all_sources_are_through_the_round_begins_again_after_the_longest_pause():
    stage = Stage(("shipments", "mirror", "hub"), attempts=2, list_ttl_s=1e9)
    stage.play("image")
    stage.end("image", Missing("no"))
    for _ in range(10):
        assert stage.under_way == {"image": 1}
        assert stage.end("image", Broken("cut")) == [Deliver("image", 2)]
        assert stage.end("image", Broken("cut")) == []
        assert stage.pass_time(2) == [Deliver("image", 1)]
        assert stage.end("image", Broken("cut")) == [Deliver("image", 2)]
        assert stage.end("image", Broken("cut")) == []
        assert [event.retry_s for event in stage.told][-4:] == [2, 2, 120, 120]
        assert stage.pass_time(119.9) == []
        assert stage.pass_time(0.1) == [Deliver("image", 1)]


def test_while_an_image_cools_others_have_the_worker():
    stage = Stage(workers=1)
    stage.play("image")
    stage.register("other")
    assert stage.end("image", Broken("cut")) == [Deliver("other", 0)]
    assert stage.pass_time(10) == []
    assert stage.deliver("other") == [Deliver("image", 0)]


def test_an_image_that_cools_and_is_needed_no_more_is_not_tried_again():
    stage = Stage()
    stage.register("image")
    stage.end("image", Broken("cut"))
    stage.plan.done("image")
    assert stage.pass_time(1_000) == []
    stage.register("image")
    assert stage.under_way == {"image": 0}


def test_a_waiter_hears_that_its_image_cools():
    stage = Stage(wait_timeout_s=3)
    waiter = stage.play("image")
    stage.end("image", Broken("cut"))
    stage.pass_time(2)
    stage.end("image", Broken("connection\n reset"))
    assert (stage.status.state, stage.status.why) == ("waiting", "hub: broken: connection reset; tried again soon")
    stage.pass_time(1)
    why = "not there within wait_timeout = 3 s: hub: broken: connection reset; tried again soon"
    assert stage.answered[waiter] == Unavailable(why)


def test_an_image_that_somebody_brings_while_it_cools_is_there():
    stage = Stage()
    waiter = stage.play("image")
    for pause in (2, 4, 120):
        stage.end("image", Broken("cut"))
        stage.pass_time(pause)
    stage.end("image", Broken("cut"))
    stage.pass_time(2)
    stage.end("image", Broken("cut"))
    stage.pass_time(4)
    stage.end("image", Broken("cut"))
    stage.has.add("image")
    stage.pass_time(30)
    assert stage.answered == {waiter: Ready("present")}
    assert stage.plan.leftovers() == []
    stage.plan.missing("image", stage.now)
    stage.settle()
    assert stage.under_way == {"image": 0}


def test_an_image_that_has_come_stops_to_cool():
    stage = Stage(list_ttl_s=0)
    stage.play("image")
    stage.end("image", Broken("cut"))
    stage.has.add("image")
    stage.pass_time(1)
    assert stage.plan.next_wake_at(stage.now) is None


def test_an_image_that_cools_anew_does_not_stop_when_it_would_have_before():
    stage = Stage(list_ttl_s=0, random=FixedRandom(0.9))
    stage.play("image", "other")
    stage.end("other", Broken("cut"))
    stage.plan.random.value = 1
    stage.end("image", Broken("cut"))  # for 2 s
    stage.has.add("image")
    stage.pass_time(1)
    stage.plan.missing("image", stage.now)
    stage.settle()
    stage.end("image", Broken("cut"))  # for 4 s, from the first second on
    assert told(stage.pass_time(3.9), Deliver) == [Deliver("other", 0)]
    assert told(stage.pass_time(0.1), Deliver) == [Deliver("image", 0)]


def test_the_figures_of_the_source_start_anew_once_it_has_delivered():
    stage = Stage(attempts=2)
    stage.play("image")
    stage.end("image", Broken("cut"))
    stage.pass_time(2)
    stage.deliver("image")
    stage.plan.missing("image", stage.now)
    stage.settle()
    stage.end("image", Broken("cut"))
    assert stage.pass_time(2) == [Deliver("image", 0)]


# --- lanes


def test_a_lane_that_throttles_is_left_alone_by_all_images_for_as_long_as_it_says():
    stage = Stage(("mirror", "hub"), workers=2, list_ttl_s=1e9)
    stage.play("one")
    stage.register("two", "three")
    assert stage.end("one", Throttled("429", retry_after_s=60)) == [Deliver("one", 1)]
    assert stage.told == [ImageTrouble("one", "mirror", "throttled", "429", 60)]
    assert stage.end("two", Broken("cut")) == [Deliver("two", 1)]
    assert told(stage.deliver("one"), Deliver) == [Deliver("three", 1)]
    stage.register("four", "five")
    stage.pass_time(59)
    assert stage.deliver("two") == [Deliver("four", 1)]
    stage.pass_time(1)
    assert stage.deliver("three") == [Deliver("five", 0)]


def test_a_lane_that_does_not_say_for_how_long_is_shut_for_a_quarter_of_an_hour_and_then_for_longer():
    stage = Stage(wait_timeout_s=1e9, list_ttl_s=1e9)
    stage.play("image")
    for minutes in (15, 30, 60, 120, 120):
        assert stage.end("image", Throttled("toomanyrequests")) == []
        assert stage.told[-1].retry_s == minutes * 60
        assert stage.status.why == f"hub wants to be left alone for {minutes} min"
        assert stage.pass_time(minutes * 60 - 1) == []
        assert stage.pass_time(1) == [Deliver("image", 0)]
    stage.end("image", Broken("cut"))
    stage.pass_time(2)
    stage.end("image", Throttled("toomanyrequests"))
    assert stage.told[-1].retry_s == 120 * 60
    stage.pass_time(120 * 60)
    stage.deliver("image")
    stage.register("another")
    stage.end("another", Throttled("toomanyrequests"))
    assert stage.told[-1].retry_s == 15 * 60


def test_several_deliveries_that_are_throttled_at_once_are_throttled_once():
    stage = Stage(workers=3, list_ttl_s=1e9)
    stage.register("one", "two", "three")
    stage.end("one", Throttled("429"))
    stage.end("two", Throttled("429"))
    assert [event.retry_s for event in stage.told] == [900, 900]
    stage.deliver("three")
    stage.pass_time(900)
    stage.end("one", Throttled("429"))
    assert stage.told[-1].retry_s == 1_800


@pytest.mark.parametrize(
    ("said_s", "shut_s"), [(0, 1), (-5, 1), (float("nan"), 900), (float("inf"), 900), (1e300, 86_400)]
)
def test_a_senseless_time_to_wait_is_not_taken_at_its_word(said_s, shut_s):
    stage = Stage()
    stage.register("image")
    stage.end("image", Throttled("429", said_s))
    assert stage.told[-1].retry_s == shut_s
    assert stage.settle() == []


def test_a_waiter_hears_which_lane_opens_first():
    stage = Stage(("mirror", "hub"), wait_timeout_s=100, list_ttl_s=1e9)
    waiter = stage.play("image")
    stage.end("image", Throttled("429", 2_000))
    stage.end("image", Throttled("429", 740))
    stage.pass_time(100)
    assert stage.answered[waiter].why.endswith(": hub wants to be left alone for 11 min")
    stage.plan.done("image")
    stage.settle()
    assert stage.plan.next_wake_at(stage.now) is None


def test_of_shut_lanes_the_first_to_open_is_used():
    stage = Stage(("mirror", "hub"), list_ttl_s=1e9)
    stage.play("image")
    stage.end("image", Throttled("429", 50))
    stage.end("image", Throttled("429", 10))
    assert stage.pass_time(9.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 1)]


def test_a_source_that_was_through_is_tried_again_when_all_others_are_shut_for_long():
    stage = Stage(("mirror", "hub"), attempts=1, list_ttl_s=1e9)
    stage.play("image")
    stage.end("image", Broken("cut"))
    assert stage.end("image", Throttled("429", 7_200)) == []
    assert stage.told[-1].retry_s == 7_200
    assert stage.pass_time(119.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 0)]


def test_a_source_that_was_through_is_tried_again_when_the_first_lane_opens():
    stage = Stage(("mirror", "hub"), attempts=1, list_ttl_s=1e9)
    stage.play("image")
    stage.end("image", Broken("cut"))
    stage.end("image", Throttled("429", 5))
    assert stage.pass_time(4.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 0)]


def test_those_behind_are_not_kept_waiting_for_a_lane_that_another_image_shuts():
    stage = Stage(("mirror", "hub"), attempts=1, workers=1, list_ttl_s=1e9)
    stage.plan.register("a", ("hub",), stage.now)
    stage.register("one", "two")
    assert stage.under_way == {"a": 0}
    stage.deliver("a")
    stage.end("one", Broken("cut"))  # through at the mirror, and next at the hub
    stage.plan.register("urgent", ("hub",), stage.now)
    assert stage.under_way == {"one": 1}
    stage.plan.wait_all(("one",), stage.now)
    stage.plan.wait_all(("urgent",), stage.now)
    assert stage.end("one", Broken("cut")) == [Deliver("urgent", 0)]
    stage.pass_time(120)
    assert told(stage.end("urgent", Throttled("429", 7_200)), Deliver) == [Deliver("one", 0)]
    assert stage.end("one", Broken("cut")) == [Deliver("two", 0)]


def test_an_image_that_waits_for_its_next_source_when_that_is_shut_begins_a_new_round():
    stage = Stage(("mirror", "hub"), attempts=1, workers=1, list_ttl_s=1e9)
    stage.register("image")
    stage.plan.register("urgent", ("hub",), stage.now)
    waiter = stage.plan.wait_all(("urgent",), stage.now)
    stage.images[waiter] = ("urgent",)
    assert stage.end("image", Broken("cut")) == [Deliver("urgent", 0)]
    assert stage.end("urgent", Throttled("429", 7_200)) == []
    assert stage.pass_time(119.9) == []
    assert stage.pass_time(0.1) == [Deliver("image", 0)]


def test_a_lane_on_which_three_images_break_in_a_row_is_tried_by_one_at_a_time_until_it_delivers():
    stage = Stage(workers=3, list_ttl_s=1e9)
    names = [f"image-{number}" for number in range(9)]
    stage.register(*names)
    for name in names[:3]:
        assert len(stage.under_way) == 3
        stage.end(name, Broken("cut"))
    assert list(stage.under_way) == names[3:5]
    stage.end(names[3], Broken("cut"))
    stage.end(names[4], Broken("cut"))
    assert len(stage.under_way) == 1
    stage.pass_time(10)
    assert len(stage.under_way) == 1
    for end in (Missing("no"), Broken("cut")):  # it answers, but it does not deliver
        [name] = stage.under_way
        stage.end(name, end)
        assert len(stage.under_way) == 1
    [name] = stage.under_way
    stage.deliver(name)
    assert len(stage.under_way) == 3


def test_images_that_have_another_source_do_not_wait_for_a_lane_that_is_tried_with_care():
    stage = Stage(("mirror", "hub"), workers=2, attempts=1, list_ttl_s=1e9)
    stage.register("one", "two", "three", "four")
    stage.end("one", Broken("cut"))
    stage.deliver("one")
    stage.end("two", Broken("cut"))
    stage.deliver("two")
    stage.end("three", Broken("cut"))
    assert stage.under_way == {"four": 0, "three": 1}
    stage.register("five")
    assert stage.deliver("three") == [Deliver("five", 1)]


def test_one_image_that_breaks_again_and_again_does_not_put_its_lane_under_suspicion():
    stage = Stage(workers=3, list_ttl_s=1e9)
    stage.register("bad")
    for pause in (2, 4, 120, 2, 4):
        stage.end("bad", Broken("cut"))
        stage.pass_time(pause)
    stage.end("bad", Broken("cut"))
    stage.register("one", "two", "three")
    assert len(stage.under_way) == 3


@pytest.mark.parametrize("answer", [Missing("no"), Throttled("429", 1), Delivered(1)])
def test_any_answer_in_between_is_no_row(answer):
    stage = Stage(workers=3, list_ttl_s=1e9)
    stage.register(*(f"image-{number}" for number in range(9)))
    stage.end("image-0", Broken("cut"))
    stage.end("image-1", Broken("cut"))
    stage.end("image-2", answer)
    stage.pass_time(1)
    stage.end("image-3", Broken("cut"))
    assert len(stage.under_way) == 3


def test_a_full_disk_is_no_fault_of_the_source():
    stage = Stage(("mirror", "hub"), attempts=1)
    stage.play("image")
    for _ in range(5):
        assert stage.end("image", DiskFull("no space left on device")) == []
        assert stage.told == [ImageTrouble("image", "mirror", "disk full", "no space left on device", 30)]
        assert told(stage.pass_time(30), Deliver) == [Deliver("image", 0)]


def test_a_lane_is_crowded_by_many_who_come_and_go():
    """What is stale in the lines goes, and who is left has kept the place."""
    stage = Stage(workers=1)
    stage.register("first", "second", "third")
    for _ in range(500):
        stage.plan.withdraw(stage.plan.wait_all(("third",), stage.now))
    [line] = stage.plan._board.queue._lines.values()
    assert len(line.entries) < 100
    assert stage.deliver("first") == [Deliver("second", 0)]
    assert stage.deliver("second") == [Deliver("third", 0)]


def test_a_status_between_the_news_and_the_decision_says_what_the_news_is():
    stage = Stage()
    stage.play("image")
    stage.play("other")
    stage.end("other", Broken("cut"))
    stage.plan.delivery_ended("image", Missing("no such tag"), stage.now)
    assert "no such tag" in stage.plan.status(stage.now).why


def test_an_image_that_somebody_else_brought_meanwhile_is_there_and_stays_theirs():
    stage = Stage()
    waiter = stage.play("image")
    stage.has.add("image")
    stage.plan.found("image")
    stage.settle()
    assert stage.answered[waiter] == Ready("present")
    assert stage.plan.is_theirs("image")
    stage.over("image")
    assert stage.plan.leftovers() == []
    with pytest.raises(ValueError, match="is not being delivered"):
        stage.plan.found("image")
