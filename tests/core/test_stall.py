"""How long a pool has been getting nowhere."""

from __future__ import annotations

import pytest

from scavenge.core.stall import StallClock
from scavenge.types import Busy, Failed, Lost, Misrouted, Ok, Outcome, Reply


def usable() -> StallClock:
    clock = StallClock(0.0)
    clock.on_usable(True, 0.0)
    return clock


def test_a_pool_without_a_usable_endpoint_stalls_from_the_start():
    clock = StallClock(10.0)
    assert clock.stalled_s(15.0) == 5.0
    clock.on_usable(False, 16.0)
    assert clock.stalled_s(17.0) == 7.0


def test_a_usable_endpoint_ends_the_stall_and_the_next_begins_anew():
    clock = usable()
    clock.on_usable(True, 5.0)
    assert clock.stalled_s(1000.0) == 0.0
    clock.on_usable(False, 1000.0)
    assert clock.stalled_s(1004.0) == 4.0


def test_nothing_that_helps_is_a_stall_even_while_endpoints_look_usable():
    clock = usable()
    clock.on_outcome(Lost("reset"), 10.0)
    clock.on_outcome(Misrouted("no such model", 404), 40.0)
    clock.on_outcome(Busy("429"), 70.0)
    assert clock.stalled_s(70.0) == 60.0
    assert clock.unhelped_why == "busy: 429"


def test_silence_after_a_loss_is_no_stall_and_losses_far_apart_are_none():
    clock = usable()
    for hour in range(5):
        clock.on_outcome(Lost("reset"), hour * 3600.0)
        assert clock.stalled_s(hour * 3600.0) == 0.0
        assert clock.stalled_s(hour * 3600.0 + 3000) == 0.0


def test_a_server_that_asks_for_patience_again_and_again_does_not_make_the_clock_forget():
    clock = usable()
    for turn in range(4):
        now = turn * 200.0
        clock.on_usable(True, now)
        clock.on_outcome(Busy("later", 429, 200.0), now + 1.0)
        clock.on_usable(False, now + 1.0)
    assert clock.stalled_s(601.0) == 600.0


@pytest.mark.parametrize("good", [Ok(Reply("", "stop")), Failed("boom")])
def test_any_other_outcome_ends_a_stretch(good: Outcome):
    clock = usable()
    clock.on_outcome(Lost("reset"), 10.0)
    clock.on_outcome(good, 20.0)
    clock.on_outcome(Lost("reset"), 100.0)
    clock.on_outcome(Lost("reset"), 101.0)
    assert clock.stalled_s(101.0) == 1.0
    clock.on_outcome(good, 102.0)
    assert clock.unhelped_why is None


def test_a_long_generation_beside_a_server_that_flaps_is_no_stall():
    clock = usable()
    for at in range(100, 800, 60):
        clock.on_outcome(Lost("flapped"), float(at))
    assert clock.stalled_s(800.0) == 660.0
    assert clock.stalled_s(800.0, oldest_work_at=99.0) == 0.0
    assert clock.stalled_s(800.0, oldest_work_at=101.0) == 660.0
    clock.on_usable(False, 800.0)
    assert clock.stalled_s(830.0, oldest_work_at=99.0) == 30.0
