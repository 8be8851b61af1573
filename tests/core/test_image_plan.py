"""What the image plan asks the engine, what it believes, and who waits for how long."""

from __future__ import annotations

import itertools
import sys

import pytest

from image_plan_kit import Stage, told
from scavenge.core.images.commands import Answer, Deliver, List, Ready, Unavailable
from scavenge.events import ImageFailed, ImageTrouble
from scavenge.images import Broken, Delivered, EngineSilent, Missing, NotRemoved, Transferred

# --- what the engine is asked


def test_many_images_and_many_who_wait_are_one_listing():
    stage = Stage()
    stage.has = {f"image-{number}" for number in range(500)}
    for number in range(500):
        stage.plan.register(f"image-{number}", stage.lanes, stage.now)
    for number in range(200):
        waiter = stage.plan.wait_all((f"image-{number}",), stage.now)
        stage.images[waiter] = (f"image-{number}",)
    commands = stage.settle()
    assert stage.counts["List"] == 1
    assert len(told(commands, Answer)) == 200
    assert stage.counts.keys() == {"List", "Answer"}


def test_known_images_cause_no_call_however_old_the_listing_is():
    stage = Stage()
    stage.has = {"there", "there-too"}
    stage.register("there")
    stage.pass_time(3_600)
    assert stage.plan.is_ready("there")
    assert stage.register("there-too", "there") == []
    assert stage.answered[stage.wait("there-too")] == Ready("present")
    assert stage.counts["List"] == 1


def test_what_a_fresh_listing_lacks_is_absent_without_another_one():
    stage = Stage(workers=1)
    stage.register("first")
    stage.pass_time(29)
    assert stage.register("second") == []
    stage.pass_time(1)
    assert told(stage.register("third"), List) == [List()]


def test_asking_whether_an_image_is_there_asks_nobody():
    stage = Stage()
    assert not stage.plan.is_ready("nobody-knows-it")
    stage.register("absent")
    counts = dict(stage.counts)
    assert not stage.plan.is_ready("absent")
    assert stage.settle() == []
    assert stage.counts == counts


def test_while_somebody_waits_the_engine_is_asked_again_whenever_its_listing_is_old():
    stage = Stage(workers=1)
    stage.play("first")
    stage.play("second")  # waits for a worker
    stage.pass_time(29.9)
    assert stage.counts["List"] == 1
    stage.pass_time(0.1)
    assert stage.counts["List"] == 2
    stage.has.add("second")  # somebody else has brought it
    stage.pass_time(30)
    assert list(stage.answered.values()) == [Ready("present")]
    stage.pass_time(300)
    assert stage.counts["List"] == 3  # what is being delivered needs no listing


def test_nobody_waits_and_the_engine_is_left_alone():
    stage = Stage(workers=1)
    stage.register("first", "second")
    stage.pass_time(300)
    assert stage.counts["List"] == 1


def test_a_listing_that_is_worth_nothing_is_still_asked_for_once_a_second_at_most():
    stage = Stage(list_ttl_s=0, workers=1)
    stage.play("first")
    stage.play("second")
    stage.pass_time(10)
    assert stage.counts["List"] == 11


def test_no_delivery_begins_while_the_engine_is_being_asked():
    stage = Stage()
    stage.answers_engine = False
    assert stage.register("image") == [List()]
    assert stage.wait("image") not in stage.answered
    assert stage.pass_time(100) == []
    assert stage.status.why == "the container engine has not said yet which images it has"
    stage.plan.listed({"other"}, stage.now)
    assert told(stage.settle(), Deliver) == [Deliver("image", 0)]


def test_what_changed_while_the_engine_was_asked_is_not_undone_by_its_answer():
    stage = Stage(workers=1)
    stage.has = {"found-missing"}
    stage.register("first", "found-missing")
    stage.play("second")
    stage.answers_engine = False
    assert stage.pass_time(30) == [List()]
    stage.deliver("first")
    stage.plan.missing("found-missing", stage.now)
    stage.plan.listed({"found-missing"}, stage.now)  # it was read before
    stage.settle()
    assert stage.plan.is_ready("first")
    assert not stage.plan.is_ready("found-missing")
    assert stage.under_way == {"second": 0}


def test_a_listing_says_nothing_of_what_is_being_delivered_or_removed():
    stage = Stage(workers=1)
    stage.free = 10
    stage.register("old")
    stage.deliver("old", 10)
    stage.plan.done("old")
    stage.play("new")
    assert stage.removing == ["old"]
    stage.has.clear()
    stage.answers_engine = False
    stage.pass_time(30)
    stage.plan.listed((), stage.now)
    stage.settle()
    stage.removed("old", NotRemoved("no answer"))
    assert stage.plan.is_ready("old")  # until a later listing says otherwise


def test_a_listing_that_was_read_before_a_removal_brings_nothing_back():
    stage = Stage(workers=1)
    stage.free = 10
    stage.register("old")
    stage.deliver("old", 10)
    stage.plan.done("old")
    stage.play("new")
    stage.answers_engine = False
    stage.pass_time(30)
    stage.removed("old")
    stage.plan.listed({"old"}, stage.now)
    stage.settle()
    assert not stage.plan.is_ready("old")


def test_while_the_engine_is_asked_again_no_other_delivery_begins():
    stage = Stage(workers=1)
    stage.play("first")
    stage.play("second")
    stage.answers_engine = False
    assert stage.pass_time(30) == [List()]
    assert told(stage.deliver("first"), Deliver) == []
    stage.plan.listed({"second"}, stage.now)
    assert told(stage.settle(), Deliver) == []  # somebody else has brought it


def test_only_another_listing_helps_and_so_none_is_asked_for_an_image_that_its_use_did_not_find():
    stage = Stage(workers=1)
    stage.has = {"image"}
    stage.play("other")
    stage.play("image")
    stage.plan.missing("image", stage.now)
    stage.wait("image")
    assert stage.pass_time(300) == []


def test_an_image_that_a_later_listing_lacks_is_delivered_unless_it_is_leased():
    stage = Stage(workers=1)
    stage.has = {"used", "unused"}
    stage.play("used")
    stage.register("unused")
    stage.has.clear()
    stage.pass_time(31)
    stage.register("new")
    assert stage.plan.is_ready("used")
    assert not stage.plan.is_ready("unused")
    stage.plan.unlease("used")
    stage.pass_time(31)
    stage.register("newer")
    assert not stage.plan.is_ready("used")


def test_answers_that_nobody_asked_for_are_refused():
    stage = Stage()
    with pytest.raises(ValueError, match="no listing is under way"):
        stage.plan.listed((), stage.now)
    with pytest.raises(ValueError, match="no listing is under way"):
        stage.plan.unlisted("gone", stage.now)
    with pytest.raises(ValueError, match="no look at the disk is under way"):
        stage.plan.disk(None, stage.now)
    stage.has.add("image")
    stage.register("image")
    with pytest.raises(ValueError, match="image image is not being delivered"):
        stage.plan.delivery_ended("image", Missing("no"), stage.now)


# --- an engine that is silent


def test_an_engine_that_does_not_answer_is_asked_by_one_call_at_growing_intervals():
    stage = Stage()
    stage.engine_silent = True
    for number in range(200):
        stage.play(f"image-{number}")
    asked = [stage.now] * stage.counts["List"]
    while len(asked) < 9:
        stage.now = stage.plan.next_wake_at(stage.now)
        if List() in stage.settle():
            asked.append(stage.now)
    gaps = [round(later - earlier, 6) for earlier, later in itertools.pairwise(asked)]
    assert gaps == [1, 2, 4, 8, 16, 30, 30, 30]
    stage.engine_silent = False
    stage.pass_time(30)
    stage.pass_time(30)
    assert stage.status.state != "silent"
    stage.engine_silent = True
    stage.pass_time(30)
    stage.register("another")
    assert stage.plan.next_wake_at(stage.now) == stage.now + 1
    assert stage.status.state == "silent"


def test_two_deliveries_that_find_the_engine_silent_are_one_silence():
    stage = Stage(workers=2)
    stage.play("one")
    stage.play("two")
    stage.engine_silent = True
    stage.end("one", EngineSilent("no answer"))
    stage.pass_time(0.9)
    stage.end("two", EngineSilent("no answer"))
    assert stage.pass_time(0.1) == [List()]


def test_after_half_a_minute_of_silence_what_nobody_knows_is_assumed_to_be_there():
    stage = Stage()
    stage.engine_silent = True
    first, second = stage.play("image"), stage.play("image")
    assert stage.status.state == "silent"
    assert stage.status.why == "the container engine does not answer: connection refused"
    stage.pass_time(29.9)
    assert stage.answered == {}
    stage.pass_time(0.1)
    assert stage.answered == {first: Ready("assumed"), second: Ready("assumed")}
    later = stage.play("another")
    assert stage.answered[later] == Ready("assumed")


def test_absent_images_are_not_assumed_and_present_ones_are_left_as_they_are():
    stage = Stage(workers=1)
    stage.has = {"present"}
    stage.register("present")
    waiter = stage.play("absent")
    stage.engine_silent = True
    stage.end("absent", EngineSilent("no answer in 5 s"))
    stage.pass_time(120)
    assert waiter not in stage.answered
    assert stage.plan.is_ready("present")
    assert stage.answered[stage.wait("present")] == Ready("present")
    assert not stage.under_way
    stage.engine_silent = False
    stage.pass_time(30)
    assert stage.under_way == {"absent": 0}


def test_a_silent_engine_is_asked_only_as_long_as_something_is_needed():
    stage = Stage()
    stage.engine_silent = True
    stage.register("image")
    stage.pass_time(10)
    stage.plan.done("image")
    assert stage.pass_time(1_000) == []
    assert stage.plan.next_wake_at(stage.now) is None


def test_when_the_engine_answers_again_what_was_assumed_and_not_used_is_looked_at():
    stage = Stage()
    stage.engine_silent = True
    stage.play("used")
    stage.register("there", "not-there")
    stage.pass_time(31)
    assert all(map(stage.plan.is_ready, ("used", "there", "not-there")))
    stage.engine_silent = False
    stage.has = {"there"}
    stage.pass_time(30)
    assert stage.plan.is_ready("used")  # its use tells
    assert stage.plan.is_ready("there")
    assert stage.under_way == {"not-there": 0}
    assert stage.status.state == "delivering"


def test_a_delivery_that_the_engine_does_not_answer_is_no_fault_of_the_source():
    stage = Stage(attempts=1, workers=1)
    stage.play("image")
    for _ in range(20):
        stage.end("image", EngineSilent("connection reset"))
        [trouble] = stage.told
        assert (trouble.outcome, trouble.retry_s is None) == ("engine silent", False)
        stage.pass_time(31)
        assert stage.under_way == {"image": 0}


@pytest.mark.parametrize("end", [Broken("cut"), Delivered()])
def test_the_pauses_after_a_silent_engine_grow_until_it_answers(end):
    stage = Stage(workers=1)
    stage.register("image")
    pauses = []
    for last in (EngineSilent("reset"), EngineSilent("reset"), EngineSilent("reset"), end, EngineSilent("reset")):
        stage.end("image", last)
        pauses += [event.retry_s for event in stage.told if event.outcome == "engine silent"]
        stage.plan.missing("image", stage.now)
        stage.settle()
        stage.pass_time(31)
    assert pauses == [1, 2, 4, 1]


def test_an_image_on_which_the_engine_falls_silent_leaves_the_worker_to_others():
    stage = Stage(workers=1)
    stage.register("breaks-the-engine", "good")
    stage.end("breaks-the-engine", EngineSilent("connection reset"))
    stage.pass_time(0)  # the engine answers at its first try
    stage.now += 0.5
    stage.settle()
    stage.pass_time(1)
    first = stage.under_way.copy()
    assert first in ({"breaks-the-engine": 0}, {"good": 0})


# --- for how long one waits


def test_while_images_come_nobody_gives_up_whose_turn_has_not_come():
    stage = Stage(workers=1, wait_timeout_s=100)
    names = [f"image-{number}" for number in range(5)]
    waiters = [stage.play(name) for name in names]
    for name in names[:4]:
        stage.pass_time(90)
        stage.deliver(name)
    assert list(stage.answered) == waiters[:4]
    stage.pass_time(99)  # its turn has come
    assert waiters[4] not in stage.answered
    stage.pass_time(1)
    why = "not there within wait_timeout = 100 s: being delivered from hub, 0 B so far"
    assert stage.answered[waiters[4]] == Unavailable(why)


def test_nobody_gives_up_behind_an_image_that_is_large_as_long_as_bytes_come():
    stage = Stage(workers=1, wait_timeout_s=100)
    first, second = stage.play("large"), stage.play("next")
    for done_bytes in range(1, 6):
        stage.pass_time(60)
        stage.plan.progressed("large", Transferred(done_bytes))
    assert list(stage.answered) == [first]
    for _ in range(4):
        stage.pass_time(60)
        stage.plan.progressed("large", Transferred(5))
    assert list(stage.answered) == [first, second]


def test_when_no_image_comes_everybody_gives_up():
    stage = Stage(workers=1, wait_timeout_s=100)
    waiters = [stage.play("one"), stage.play("two"), stage.play("one", "three")]
    stage.pass_time(99)
    assert stage.answered == {}
    stage.pass_time(1)
    assert list(stage.answered) == waiters


def test_what_others_get_does_not_prolong_the_wait_for_an_image_that_was_tried():
    stage = Stage(workers=1, wait_timeout_s=100)
    waiter = stage.play("bad", "later")
    stage.end("bad", Broken("cut"))
    stage.deliver("later")
    stage.play("other")
    stage.pass_time(98)
    stage.deliver("other")
    stage.pass_time(2)
    assert stage.answered[waiter].why.startswith("not there within wait_timeout = 100 s")


def test_one_image_that_was_tried_is_enough_for_the_wait_to_end():
    stage = Stage(workers=1, wait_timeout_s=100)
    stage.play("bad")
    stage.end("bad", Broken("cut"))
    stage.play("other")
    waiter = stage.play("bad", "not-tried")
    stage.pass_time(90)
    stage.deliver("other")
    assert stage.under_way == {"bad": 0}
    stage.pass_time(10)
    assert isinstance(stage.answered[waiter], Unavailable)


def test_an_image_whose_turn_comes_late_has_the_whole_time():
    stage = Stage(workers=1, wait_timeout_s=100)
    stage.has = {"there"}
    stage.play("other")
    waiter = stage.play("there", "late")
    stage.pass_time(95)
    stage.end("other", Missing("no"))
    stage.pass_time(99)
    assert waiter not in stage.answered
    stage.pass_time(1)
    assert isinstance(stage.answered[waiter], Unavailable)


def test_an_image_that_was_delivered_before_has_its_turn_anew():
    stage = Stage(workers=1, wait_timeout_s=100)
    stage.play("again")
    stage.deliver("again")
    stage.play("one")
    stage.play("two")
    stage.plan.missing("again", stage.now)
    waiter = stage.wait("again")
    for name in ("one", "two"):
        stage.pass_time(90)
        stage.deliver(name)
    assert stage.under_way == {"again": 0}
    assert waiter not in stage.answered


# --- memory that was wrong


def test_an_image_that_its_use_does_not_find_is_delivered_whatever_was_listed():
    stage = Stage()
    stage.has = {"image"}
    stage.play("image")
    stage.plan.missing("image", stage.now)  # while another still holds it
    assert not stage.plan.is_ready("image")
    again = stage.wait("image")
    assert stage.under_way == {"image": 0}
    stage.end("image", Broken("cut"))
    stage.pass_time(31)  # listings still say that it is there
    assert again not in stage.answered
    assert stage.under_way == {"image": 0}
    stage.deliver("image")
    assert stage.answered[again] == Ready("delivered", "hub")
    assert stage.plan.leftovers() == []  # it is leased


def test_an_image_that_its_use_does_not_find_is_not_there_until_a_delivery_brings_it():
    stage = Stage(workers=1)
    stage.has = {"image"}
    stage.play("other")
    stage.play("image")
    stage.plan.missing("image", stage.now)
    again = stage.wait("image")
    stage.play("third")
    stage.pass_time(61)  # two more listings say that it is there
    assert stage.counts["List"] == 3
    assert again not in stage.answered
    stage.deliver("other")
    stage.deliver("image")
    assert stage.answered[again] == Ready("delivered", "hub")
    stage.plan.unlease("image")
    stage.plan.unlease("image")
    stage.has.discard("image")
    stage.play("fourth")
    stage.pass_time(31)
    assert not stage.plan.is_ready("image")
    stage.has.add("image")  # it is trusted again, like any other
    stage.pass_time(31)
    assert stage.plan.is_ready("image")
    assert stage.answered[stage.wait("image")] == Ready("present")


def test_an_image_that_was_assumed_and_is_missing_is_delivered_when_the_engine_answers():
    stage = Stage()
    stage.engine_silent = True
    stage.play("image")
    stage.pass_time(30)
    stage.plan.missing("image", stage.now)
    waiter = stage.wait("image")
    stage.engine_silent = False
    stage.pass_time(31)
    stage.deliver("image")
    assert stage.answered[waiter] == Ready("delivered", "hub")


def test_an_image_that_was_delivered_and_is_missing_is_delivered_again():
    stage = Stage()
    stage.play("image")
    stage.deliver("image")
    stage.plan.unlease("image")
    stage.plan.missing("image", stage.now)
    stage.settle()
    assert stage.under_way == {"image": 0}
    stage.plan.missing("image", stage.now)  # that one is on its way
    assert stage.settle() == []
    stage.deliver("image")
    assert stage.plan.is_ready("image")
    assert stage.plan.leftovers() == ["image"]


def test_an_image_that_no_source_gives_stays_failed_when_its_use_does_not_find_it():
    stage = Stage()
    stage.play("image")
    stage.end("image", Missing("no such tag"))
    stage.plan.missing("image", stage.now)
    assert stage.answered[stage.wait("image")] == Unavailable("hub: no such tag")
    assert [type(event) for event in stage.told] == [ImageTrouble, ImageFailed]


# --- who waits


def test_a_waiter_is_answered_once_all_of_its_images_are_there_at_once():
    stage = Stage()
    waiter = stage.play("one", "two")
    stage.deliver("one")
    assert waiter not in stage.answered
    assert stage.status.waiting == 1
    stage.deliver("two")
    assert stage.answered == {waiter: Ready("delivered", "hub")}
    assert stage.status.waiting == 0


def test_of_several_images_the_least_sure_tells_how_they_are_there():
    stage = Stage()
    stage.has = {"present"}
    stage.register("present")
    waiter = stage.play("present", "present", "brought")
    stage.deliver("brought")
    assert stage.answered[waiter] == Ready("delivered", "hub")
    assert stage.answered[stage.wait()] == Ready("present")


def test_a_waiter_hears_at_once_of_the_first_image_that_is_not_to_be_had():
    stage = Stage(workers=2)
    waiter = stage.play("one", "two")
    commands = stage.end("two", Missing("no such repository"))
    assert told(commands, Answer) == [Answer(waiter, "two", Unavailable("hub: no such repository"))]
    assert stage.under_way == {"one": 0}


def test_a_waiter_that_is_withdrawn_is_not_answered():
    stage = Stage()
    waiter = stage.play("image")
    stage.plan.withdraw(waiter)
    stage.deliver("image")
    assert stage.answered == {}
    with pytest.raises(ValueError, match="does not wait"):
        stage.plan.withdraw(waiter)


def test_a_waiter_that_is_withdrawn_before_the_decision_is_not_answered():
    stage = Stage()
    stage.has = {"image"}
    stage.register("image")
    waiter = stage.plan.wait_all(("image",), stage.now)
    stage.plan.withdraw(waiter)
    assert stage.settle() == []


@pytest.mark.parametrize(
    ("total", "how_far"), [(1_000_000, "45 %"), (None, "450 kB so far"), (0, "450 kB so far"), (9, "450 kB so far")]
)
def test_a_waiter_that_has_waited_for_long_enough_hears_what_held_it_up(total, how_far):
    stage = Stage(wait_timeout_s=100, workers=1)
    waiter = stage.play("image")
    stage.plan.progressed("image", Transferred(450_000, total))
    stage.pass_time(99.9)
    assert stage.answered == {}
    stage.pass_time(0.1)
    why = f"not there within wait_timeout = 100 s: being delivered from hub, {how_far}"
    assert stage.answered == {waiter: Unavailable(why)}
    assert stage.under_way == {"image": 0}  # it goes on
    stage.deliver("image")
    stage.plan.progressed("image", Transferred(1))  # too late
    assert stage.plan.is_ready("image")
    assert stage.answered[stage.wait("image")] == Ready("delivered", "hub")


@pytest.mark.parametrize("wait_timeout_s", [20, 100])
def test_a_waiter_whose_time_is_over_hears_of_the_silent_engine(wait_timeout_s):
    stage = Stage(wait_timeout_s=wait_timeout_s)
    stage.play("image")
    stage.engine_silent = True
    stage.end("image", EngineSilent("timed out"))
    stage.pass_time(wait_timeout_s)
    [said] = stage.answered.values()
    assert said.why.endswith("the container engine does not answer: connection refused")


def test_a_waiter_whose_time_is_over_as_its_image_comes_has_it():
    stage = Stage(wait_timeout_s=100)
    waiter = stage.play("image")
    stage.now += 100
    stage.deliver("image")
    assert stage.answered == {waiter: Ready("delivered", "hub")}


def test_a_waiter_behind_others_hears_so():
    stage = Stage(wait_timeout_s=50, workers=1)
    stage.register("first")
    waiter = stage.play("second")
    stage.pass_time(50)
    assert stage.answered[waiter].why.endswith(": others are fetched first")


# --- counting


@pytest.mark.parametrize("call", ["done", "unlease"])
def test_what_was_not_taken_cannot_be_given_back(call):
    stage = Stage()
    with pytest.raises(ValueError, match="image image was never registered"):
        getattr(stage.plan, call)("image")
    stage.register("image")
    stage.plan.lease("image")
    stage.plan.done("image")
    stage.plan.unlease("image")
    with pytest.raises(ValueError, match="image image"):
        getattr(stage.plan, call)("image")
    status = stage.status
    assert (status.wanted, status.present, status.failed, status.waiting) == (0, 0, 0, 0)


def test_what_was_never_registered_cannot_be_waited_for():
    stage = Stage()
    stage.register("image")
    with pytest.raises(ValueError, match="never registered"):
        stage.plan.wait_all(["image", "other"], stage.now)
    assert stage.status.waiting == 0


def test_the_status_counts_images_and_not_rollouts():
    stage = Stage()
    assert stage.status.state == "idle"
    stage.has = {"present"}
    for _ in range(3):
        stage.register("present", "absent", "unheard-of")
    stage.end("unheard-of", Missing("no"))
    status = stage.status
    assert (status.wanted, status.present, status.failed, status.brought) == (3, 1, 1, 0)
    assert status.state == "delivering"
    assert [(one.image, one.source, one.done_bytes) for one in status.deliveries] == [("absent", "hub", 0)]
    stage.deliver("absent")
    assert (stage.status.present, stage.status.brought, stage.status.state) == (2, 1, "idle")


def test_without_news_a_second_decision_says_nothing():
    stage = Stage(workers=3)
    stage.answers_engine = False
    stage.free = 5
    stage.play("one")
    assert stage.plan.decide(stage.now) == []
    stage.plan.listed((), stage.now)
    stage.settle()
    assert stage.plan.decide(stage.now) == []


def calls_for(images: int) -> int:
    """How many calls of Python functions it takes to register images, to wait for each and to withdraw."""
    stage = Stage()
    count = 0

    def on_event(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    names = [f"image-{number}" for number in range(images)]
    sys.setprofile(on_event)
    try:
        for name in names:
            stage.plan.register(name, ("shipments", "mirror", "hub"), stage.now)
        waiters = [stage.plan.wait_all((name,), stage.now) for name in names]
        stage.plan.decide(stage.now)
        stage.plan.listed((), stage.now)
        stage.plan.decide(stage.now)
        for waiter in waiters:
            stage.plan.withdraw(waiter)
        for name in names:
            stage.plan.is_ready(name)
            stage.plan.done(name)
    finally:
        sys.setprofile(None)
    return count


def test_what_one_image_costs_does_not_depend_on_how_many_there_are():
    assert calls_for(3_000) < 11 * calls_for(300)
