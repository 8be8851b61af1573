"""How an endpoint that is new or back opens up."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from scavenge.core.ramp import DOUBLES_EVERY_S, FIRST_ROOM, FULL_ROOM, Ramp


def test_each_served_request_opens_one_more_so_that_a_round_trip_doubles_the_bound():
    ramp = Ramp.begun(0.0)
    rooms = []
    for _ in range(4):
        rooms.append(ramp.room(0.0))
        for _ in range(ramp.slots):
            ramp.on_served()
    assert rooms == [4, 8, 16, 32]


def test_time_doubles_the_bound_until_there_is_none():
    ramp = Ramp.begun(100.0)
    rooms = []
    while (due_at := ramp.next_wake_at()) is not None:
        rooms.append(ramp.room(due_at - 0.001))
        ramp.wake(due_at)
    assert rooms == [4, 8, 16, 32, 64, 128, 256, 512]
    assert ramp.room(0.0) is None


def test_a_late_look_sees_every_doubling_that_was_due_and_waking_changes_nothing_of_it():
    ramp = Ramp.begun(0.0)
    assert (ramp.room(4.9), ramp.room(5.0), ramp.room(17.0), ramp.room(1e9)) == (4, 8, 32, None)
    ramp.wake(17.0)
    assert (ramp.slots, ramp.doubles_at) == (32, 20.0)


@given(st.floats(0, 1e6), st.integers(1, 10), st.floats(-1e-9, 1e-9))
@example(109.21822080385199, 4, 0.0)
def test_what_was_looked_at_is_not_due_again_at_the_same_moment(begun_at: float, wholes: int, off_s: float):
    ramp = Ramp.begun(begun_at)
    now = max(begun_at, begun_at + wholes * DOUBLES_EVERY_S + off_s)
    room = ramp.room(now)
    ramp.wake(now)
    assert ramp.room(now) == room
    assert (due_at := ramp.next_wake_at()) is None or due_at > now


def test_what_fails_takes_one_away_and_puts_the_next_doubling_off_but_nothing_that_was_due_is_lost():
    ramp = Ramp.begun(0.0)
    ramp.on_failed(7.0)
    assert (ramp.slots, ramp.doubles_at) == (7, 12.0)
    for _ in range(20):
        ramp.on_failed(8.0)
    assert (ramp.room(8.0), ramp.room(13.0)) == (1, 2)


def test_a_failure_that_is_allowed_puts_the_next_doubling_off_and_takes_nothing_away():
    ramp = Ramp.begun(0.0)
    ramp.on_failed(7.0, allowed=True)
    assert (ramp.slots, ramp.doubles_at) == (8, 12.0)


def test_a_ramp_that_has_ended_does_not_begin_again_when_something_fails():
    ramp = Ramp.begun(0.0)
    ramp.wake(1000.0)
    for _ in range(1000):
        ramp.on_failed(1000.0)
    assert ramp.room(1000.0) is None


def test_a_pause_does_not_count_as_time():
    ramp = Ramp.begun(0.0)
    ramp.resume(60.0)
    assert (ramp.room(60.0), ramp.next_wake_at()) == (FIRST_ROOM, 60.0 + DOUBLES_EVERY_S)


def test_a_careful_ramp_begins_with_one_and_opens_by_serving_only_until_it_is_relaxed():
    ramp = Ramp.begun(0.0, careful=True)
    assert (ramp.room(1e6), ramp.next_wake_at()) == (1, None)
    ramp.on_served()
    assert ramp.room(1e6) == 2
    ramp.relax(10.0)
    ramp.relax(14.0)
    assert (ramp.room(14.9), ramp.room(15.0)) == (2, 4)


@given(st.booleans(), st.lists(st.tuples(st.floats(0, 30), st.sampled_from(["served", "failed", "wake", "relax"]))))
def test_the_bound_is_positive_and_only_failures_shrink_it(careful: bool, steps: list[tuple[float, str]]):
    now, ramp = 0.0, Ramp.begun(0.0, careful=careful)
    for seconds, what in steps:
        now += seconds
        before = ramp.room(now)
        match what:
            case "served":
                ramp.on_served()
            case "failed":
                ramp.on_failed(now)
            case "wake":
                ramp.wake(now)
            case _:
                ramp.relax(now)
        after = ramp.room(now)
        assert after is None or 1 <= after <= FULL_ROOM
        if before is None:
            assert after is None
        elif what == "failed":
            assert after == max(1, before - 1)
        else:
            assert after is None or after >= before
        assert (due_at := ramp.next_wake_at()) is None or what != "wake" or due_at > now
