"""Room on the engine's disk: when a delivery may begin, and what is removed for it."""

from __future__ import annotations

import pytest

from image_plan_kit import Stage, told
from scavenge.core.images.commands import Answer, Deliver, Ready, Remove, Unavailable
from scavenge.events import ImageFailed
from scavenge.images import Broken, Delivered, DiskFull, InUse, Missing, NotRemoved, Removed

# --- when a delivery may begin


def test_the_disk_is_looked_at_before_a_delivery_when_the_last_look_is_old():
    stage = Stage(workers=1)
    stage.free = 1_000
    stage.register("one", "two", "three")
    assert stage.counts["LookAtDisk"] == 1
    stage.pass_time(4)
    stage.deliver("one", 1)
    assert stage.counts["LookAtDisk"] == 1
    stage.pass_time(1)
    stage.deliver("two", 1)
    assert stage.counts["LookAtDisk"] == 2
    stage.pass_time(1_000)
    assert stage.counts["LookAtDisk"] == 2  # no worker is free


def test_one_look_is_under_way_at_most_and_nothing_begins_before_its_answer():
    stage = Stage()
    stage.plan.register("image", stage.lanes, stage.now)
    stage.plan.decide(stage.now)
    stage.plan.listed((), stage.now)
    assert [type(command).__name__ for command in stage.plan.decide(stage.now)] == ["LookAtDisk"]
    assert stage.plan.decide(stage.now + 100) == []
    stage.plan.disk(None, stage.now + 100)
    assert stage.plan.decide(stage.now + 100) == [Deliver("image", 0)]


def test_a_disk_that_cannot_be_seen_stops_nothing():
    stage = Stage(min_free_bytes=10**12)
    stage.play("one")
    stage.deliver("one", 10**13)
    stage.register("two")
    assert stage.under_way == {"two": 0}


def test_nothing_is_fetched_below_the_floor():
    stage = Stage(min_free_bytes=100)
    stage.free = 99
    waiter = stage.play("image")
    assert stage.under_way == {}
    assert (stage.status.state, stage.status.free_bytes) == ("disk-bound", 99)
    assert stage.status.why == "no room on disk: 99 B free, 100 B are to stay free"
    stage.pass_time(30)
    assert stage.counts["LookAtDisk"] == 4  # every ten seconds
    stage.free = 100
    stage.pass_time(10)
    assert stage.under_way == {"image": 0}
    assert waiter not in stage.answered


@pytest.mark.parametrize(("total", "floor"), [(10**12, 10**10), (10**11, 5 * 10**9)])
def test_where_nothing_is_set_ten_gigabytes_stay_free_or_a_twentieth_of_a_small_disk(total, floor):
    stage = Stage(min_free_bytes=None)
    stage.total, stage.free = total, floor - 1
    stage.play("image")
    assert stage.under_way == {}
    stage.free = floor
    stage.pass_time(10)
    assert stage.under_way == {"image": 0}


def test_images_that_are_under_way_are_expected_to_be_as_large_as_the_largest():
    stage = Stage(workers=8, min_free_bytes=100)
    stage.free = 1_000
    stage.play("first")
    stage.deliver("first", 200)
    stage.register(*(f"image-{number}" for number in range(8)))
    assert stage.free == 800
    assert len(stage.under_way) == 4  # 800, 600, 400 and 200 are left when they begin, and one needs 200
    assert stage.status.state == "delivering"


def test_what_came_since_the_last_look_takes_its_room():
    stage = Stage(workers=1, min_free_bytes=100)
    stage.free = 250
    stage.play("one")
    stage.register("two", "three")
    stage.deliver("one", 80)
    assert stage.under_way == {"two": 0}
    stage.deliver("two", 80)
    assert stage.under_way == {}
    assert stage.counts["LookAtDisk"] == 1


def test_a_waiter_hears_that_there_is_no_room():
    stage = Stage(min_free_bytes=100, wait_timeout_s=60)
    stage.free = 20
    waiter = stage.play("image")
    stage.pass_time(60)
    why = "not there within wait_timeout = 60 s: no room on disk: 20 B free, 100 B are to stay free"
    assert stage.answered == {waiter: Unavailable(why)}


# --- a disk that is full


def test_after_a_full_disk_nothing_is_fetched_until_half_a_minute_has_passed():
    stage = Stage(workers=2, wait_timeout_s=100)
    stage.play("one")
    stage.register("two", "three")
    stage.pass_time(3)
    assert stage.end("one", DiskFull("no space left on device")) == []
    waiter = stage.wait("three")
    assert told(stage.end("two", Broken("cut")), Deliver) == []
    assert stage.status.why == "no room on disk"
    stage.pass_time(29.9)
    assert stage.under_way == {}
    stage.pass_time(0.1)
    assert list(stage.under_way) == ["one", "three"]
    assert waiter not in stage.answered


def test_after_a_full_disk_the_same_image_is_fetched_first_once_something_was_freed():
    stage = Stage(workers=1)
    stage.free = 10**9  # a quota that the disk does not show
    stage.play("old")
    stage.deliver("old")
    stage.over("old")
    stage.play("one")
    stage.register("two")
    assert stage.end("one", DiskFull("quota exceeded")) == [Remove("old")]
    assert stage.pass_time(5) == []
    assert stage.removed("old") == [Deliver("one", 0)]


def test_a_removal_that_frees_nothing_ends_no_wait_for_a_full_disk():
    stage = Stage(workers=1)
    stage.play("old")
    stage.deliver("old")
    stage.over("old")
    stage.play("one")
    stage.end("one", DiskFull("no space left on device"))
    assert stage.removed("old", InUse("a container has it")) == []
    assert stage.pass_time(29.9) == []
    assert told(stage.pass_time(0.1), Deliver) == [Deliver("one", 0)]


# --- what is removed


def full_stage(*played: str, **settings) -> Stage:
    """A disk for as many images of 10 bytes as were played, all of which are over."""
    stage = Stage(**{"workers": 1, **settings})
    stage.free = 10 * len(played)
    for name in played:
        stage.play(name)
        stage.deliver(name, 10)
    for name in played:
        stage.over(name)
    return stage


def test_what_was_brought_and_is_needed_no_more_is_removed_the_oldest_first_and_just_enough():
    stage = full_stage("one", "two", "three")
    waiter = stage.play("new")
    assert stage.removing == ["one"]
    stage.pass_time(60)
    assert stage.counts["Remove"] == 1  # one at a time
    assert stage.removed("one", freed=4) == [Remove("two")]  # it shared layers with others
    assert stage.removed("two", freed=10) == [Deliver("new", 0)]
    stage.deliver("new", 10)
    assert stage.answered[waiter] == Ready("delivered", "hub")
    assert stage.plan.leftovers() == ["three"]  # the new one is leased
    assert stage.status.brought == 2


def test_nothing_is_removed_while_there_is_room():
    stage = full_stage("one", "two")
    stage.free = 20
    stage.pass_time(10)
    stage.play("new")
    assert stage.removing == []
    assert stage.under_way == {"new": 0}


def test_what_others_brought_is_never_removed():
    stage = Stage(min_free_bytes=10)
    stage.free = 5
    stage.has = {"theirs"}
    stage.play("theirs")
    stage.over("theirs")
    stage.play("new")
    stage.pass_time(1_000)
    assert stage.counts["Remove"] == 0
    assert stage.plan.leftovers() == []


def test_what_somebody_else_brings_anew_is_not_ours_any_more():
    stage = full_stage("one")
    stage.has = {"another"}  # somebody removes it
    stage.pass_time(31)
    stage.register("another", "unheard-of")
    stage.end("unheard-of", Missing("no"))
    assert stage.plan.leftovers() == ["one"]  # so that the ledger lets it go
    assert stage.status.brought == 0
    stage.has.add("one")  # and somebody brings it again
    stage.pass_time(31)
    stage.register("also-unheard-of")
    stage.end("also-unheard-of", Missing("no"))
    assert stage.plan.is_ready("one")
    assert stage.plan.leftovers() == []


def test_what_is_leased_or_needed_stays():
    stage = full_stage("leased", "needed", "waited-for")
    stage.plan.lease("leased")
    stage.register("needed")
    other = stage.plan.wait_all(["waited-for", "needed"], stage.now)
    stage.plan.withdraw(other)
    stage.register("waited-for")
    stage.play("new")
    stage.pass_time(59)
    assert stage.removing == []
    stage.plan.done("needed")
    assert told(stage.settle(), Remove) == [Remove("needed")]


def test_with_keep_nothing_is_removed_whatever_happens():
    stage = full_stage("one", "two", keep=True)
    waiter = stage.play("new")
    stage.pass_time(1_700)
    assert stage.counts["Remove"] == 0
    assert stage.plan.leftovers() == []
    assert waiter not in stage.answered


def test_an_image_that_is_being_removed_is_not_there_for_anybody():
    stage = full_stage("one")
    stage.play("new")
    assert stage.removing == ["one"]
    assert not stage.plan.is_ready("one")
    waiter = stage.play("one")
    assert waiter not in stage.answered
    stage.removed("one", freed=10)
    stage.deliver("new", 0)
    assert stage.under_way == {"one": 0}


@pytest.mark.parametrize("end", [InUse("a container has it"), NotRemoved("the engine does not answer")])
def test_an_image_that_could_not_be_removed_is_there_and_is_left_alone_for_a_while(end):
    stage = full_stage("one", "two", min_free_bytes=1)
    stage.register("new")
    waiter = stage.play("one")
    assert told(stage.removed("one", end), Remove) == [Remove("two")]
    assert stage.answered[waiter] == Ready("delivered", "hub")
    stage.over("one")
    stage.removed("two", end)
    assert told(stage.pass_time(59), Remove) == []
    assert told(stage.pass_time(11), Remove) == [Remove("one")]
    assert stage.plan.leftovers() == ["one", "two"]


def test_a_missing_image_that_could_not_be_removed_is_still_missing():
    stage = full_stage("one", "two")
    stage.play("new")
    stage.plan.missing("one", stage.now)
    waiter = stage.play("one")
    stage.removed("one", InUse("a container has it"))
    assert waiter not in stage.answered


def test_a_waiter_whose_time_is_over_hears_that_its_image_is_being_removed():
    stage = full_stage("one", wait_timeout_s=10)
    stage.play("new")
    stage.play("one")
    stage.pass_time(10)
    assert [answer.why.split(": ")[1] for answer in list(stage.answered.values())[1:]] == [
        "no room on disk",
        "it is being removed, to be fetched again",
    ]


def test_who_was_just_answered_keeps_the_image():
    stage = full_stage("one", "two")
    stage.plan.register("new", stage.lanes, stage.now)
    for image in ("new", "one"):  # its rollout is over: only the wait is left
        stage.images[stage.plan.wait_all((image,), stage.now)] = (image,)
    commands = stage.settle()
    assert told(commands, Remove) == [Remove("two")]
    stage.plan.unlease("one")
    assert told(stage.removed("two"), Remove) == [Remove("one")]


def test_who_was_just_answered_keeps_the_image_also_when_somebody_has_waited_for_long():
    stage = Stage(workers=1)
    stage.free = 20
    stage.register("later")
    stage.deliver("later", 10)
    stage.play("playing")
    stage.deliver("playing", 10)
    stage.register("new")
    stage.pass_time(5)
    stage.wait("new")
    stage.pass_time(59)  # the disk was looked at a few seconds ago
    stage.now += 1
    stage.images[stage.plan.wait_all(("later",), stage.now)] = ("later",)
    assert [type(command) for command in stage.settle()] == [Answer]


def test_who_was_just_answered_will_go_on_and_so_nothing_that_is_needed_is_removed():
    stage = Stage(workers=1)
    stage.free = 20
    stage.register("later", "now")
    stage.deliver("later", 10)
    stage.deliver("now", 10)
    stage.plan.register("new", stage.lanes, stage.now)
    for image in ("now", "new"):
        stage.images[stage.plan.wait_all((image,), stage.now)] = (image,)
    assert told(stage.settle(), Remove) == []
    assert told(stage.over("now"), Remove) == [Remove("now")]


# --- when nothing that is needed no more is left


def test_where_nobody_can_go_on_what_is_needed_last_makes_room_and_comes_again():
    stage = Stage(workers=1)
    stage.free = 20
    stage.register("soon", "later")
    stage.deliver("soon", 10)
    stage.deliver("later", 10)
    waiter = stage.play("new")
    assert stage.removing == ["later"]
    stage.removed("later", freed=10)
    stage.deliver("new", 10)
    assert stage.answered[waiter] == Ready("delivered", "hub")
    assert stage.under_way == {}
    stage.over("new")
    stage.pass_time(10)
    assert stage.removing == ["new"]
    stage.removed("new", freed=10)
    assert stage.under_way == {"later": 0}


def test_what_is_fetched_ahead_takes_no_room_from_what_is_needed_later_still():
    stage = Stage(workers=1, min_free_bytes=1)
    stage.free = 20
    stage.register("one", "two", "three")
    stage.end("one", Broken("cut"))
    stage.deliver("two", 10)
    stage.deliver("three", 10)
    stage.pass_time(1_000)
    assert stage.counts["Remove"] == 0
    stage.wait("one")
    assert stage.removing == ["three"]


def test_what_is_fetched_ahead_takes_no_room_from_what_is_needed():
    stage = Stage(workers=1)
    stage.free = 20
    stage.register("one", "two", "three")
    stage.deliver("one", 10)
    stage.deliver("two", 10)
    stage.pass_time(1_000)
    assert stage.counts["Remove"] == 0


def test_while_others_play_who_waits_bears_with_what_is_needed_later_for_a_minute():
    stage = Stage(workers=1)
    stage.free = 20
    stage.play("playing")
    stage.deliver("playing", 10)
    stage.register("later")
    stage.deliver("later", 10)
    stage.play("new")
    assert told(stage.pass_time(59), Remove) == []
    assert told(stage.pass_time(1), Remove) == [Remove("later")]


def test_two_rollouts_with_two_images_each_do_not_hold_each_other_up_on_a_disk_for_two():
    stage = Stage(workers=2, list_ttl_s=1e9)
    stage.free = 20
    first = stage.play("a", "b")
    second = stage.play("c", "d")
    stage.end("b", Broken("cut"))  # while it cools, the other rollout has the room
    stage.deliver("a", 10)
    stage.deliver("c", 10)
    assert stage.under_way == {"d": 0}
    stage.end("d", DiskFull("no space left on device"))
    stage.pass_time(30)
    assert stage.removing == ["c"]
    stage.removed("c", freed=10)
    assert stage.under_way == {"b": 0}
    stage.deliver("b", 10)
    assert stage.answered == {first: Ready("delivered", "hub")}
    stage.over("a", "b")
    for image in ("a", "b"):
        stage.pass_time(10)
        stage.removed(image, freed=10)
    while second not in stage.answered:
        for image in tuple(stage.under_way):
            stage.deliver(image, 10)
        stage.pass_time(10)
    assert stage.answered[second] == Ready("delivered", "hub")


def test_where_nothing_else_helps_an_image_that_may_be_small_is_tried():
    stage = Stage(workers=2, min_free_bytes=5)
    stage.free = 100
    stage.play("giant")
    stage.deliver("giant", 90)
    stage.register("small")
    assert stage.under_way == {}  # what plays will free its image
    stage.over("giant")
    stage.removed("giant", InUse("another run needs it"))
    assert stage.under_way == {"small": 0}
    stage.register("another")
    assert stage.under_way == {"small": 0}


# --- whose it is


def test_what_a_dead_run_brought_is_ours_to_remove():
    stage = Stage(workers=1, min_free_bytes=10)
    stage.free = 0
    stage.plan.adopt("left")
    stage.plan.adopt("needed")
    stage.plan.adopt("gone")
    stage.has = {"left", "needed"}
    stage.register("needed")
    stage.play("new")
    assert stage.removing == ["left"]
    assert stage.plan.leftovers() == ["left", "needed", "gone"]
    assert stage.status.brought == 2
    stage.removed("left", freed=10)
    stage.end("new", Missing("no"))
    assert stage.plan.leftovers() == ["needed", "gone"]


def test_at_the_end_all_that_was_brought_goes_whatever_is_needed():
    stage = Stage(workers=2)
    stage.has = {"theirs"}
    stage.register("one", "two", "theirs", "three")
    stage.deliver("two")
    stage.play("two")
    stage.deliver("three")
    assert stage.plan.leftovers() == ["three", "one"]  # the last was cut off
    stage.plan.unlease("two")
    assert stage.plan.leftovers() == ["two", "three", "one"]
    for image in stage.plan.leftovers():
        stage.plan.removed(image, Removed(), stage.now)
    assert stage.plan.leftovers() == ["one"]  # it may come until nobody delivers any more


def test_what_was_there_before_is_not_ours_even_if_its_use_does_not_find_it():
    stage = Stage(workers=2)
    stage.has = {"listed"}
    stage.register("listed")
    stage.has.add("listed-later")
    stage.pass_time(31)
    stage.register("absent")
    stage.register("listed-later")
    for image in ("listed", "listed-later"):
        assert stage.plan.is_theirs(image)
        stage.plan.missing(image, stage.now)
    stage.deliver("absent")
    assert stage.under_way == {"listed": 0, "listed-later": 0}
    assert stage.plan.leftovers() == ["absent"]
    stage.deliver("listed")
    stage.deliver("listed-later")
    assert stage.plan.leftovers() == ["absent"]
    assert stage.status.brought == 1


def test_what_another_engine_has_is_not_ours_because_we_brought_it_to_the_last_one():
    stage = full_stage("one", "two")
    stage.plan.disown()
    assert stage.plan.leftovers() == []
    assert stage.status.brought == 0
    stage.play("new")
    assert stage.removing == []


def test_what_was_there_before_and_is_gone_is_ours_when_it_is_delivered():
    stage = Stage()
    stage.has = {"image"}
    stage.register("image")
    stage.has = set()
    stage.pass_time(31)
    stage.register("another")
    assert not stage.plan.is_theirs("image")
    stage.deliver("image")
    assert stage.plan.leftovers() == ["image", "another"]


def test_an_image_that_was_brought_is_gone_and_is_to_be_had_nowhere_any_more_is_let_go():
    stage = Stage()
    stage.play("image")
    stage.deliver("image")
    stage.plan.unlease("image")
    stage.plan.missing("image", stage.now)
    stage.settle()
    stage.end("image", Missing("no such tag"))
    assert (stage.status.failed, stage.status.brought) == (1, 0)
    assert stage.plan.leftovers() == ["image"]
    stage.removing.append("image")
    stage.removed("image")
    assert stage.plan.leftovers() == []
    assert stage.status.failed == 1
    stage.register("image")
    assert [event for event in stage.told if isinstance(event, ImageFailed)] == [
        ImageFailed("image", "hub: no such tag")
    ]


def test_an_image_that_is_brought_again_is_not_the_oldest_any_more():
    stage = full_stage("one", "two")
    stage.plan.missing("one", stage.now)
    stage.play("one")
    stage.free = 10
    stage.pass_time(10)
    stage.end("one", Delivered(10))
    stage.over("one")
    assert stage.plan.leftovers() == ["two", "one"]
    stage.play("new")
    assert stage.removing == ["two"]
