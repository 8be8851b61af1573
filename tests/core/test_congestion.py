"""What speaks of congestion, what is remembered of it, and the bounds of a level."""

from __future__ import annotations

import math

import pytest

from scavenge.core.limits.congestion import Ceiling, Strain
from scavenge.core.limits.level import Level, LevelSettings
from scavenge.signals import Ended, Ending, WarmStart
from scavenge.types import CapChanged


def ended(ending: Ending, admitted_at: float = 0.0) -> Ended:
    return Ended(ending, admitted_at, in_flight=8, duration_s=1.0)


@pytest.mark.parametrize("ending", [one for one in Ending if one not in (Ending.RATE_LIMITED, Ending.TIMEOUT)])
def test_only_refusals_and_timeouts_are_congestion(ending):
    strain = Strain(15.0)
    assert [strain.hear(ended(ending), float(now)) for now in range(50)] == [""] * 50


def test_one_burst_of_refusals_is_one_cut():
    strain = Strain(15.0)
    assert strain.hear(ended(Ending.RATE_LIMITED), 100.0) == "429"
    strain.cut(100.0)
    for now in (100.0, 101.0, 114.9):
        assert strain.hear(ended(Ending.RATE_LIMITED, admitted_at=100.5), now) == ""
    assert strain.hear(ended(Ending.RATE_LIMITED, admitted_at=100.5), 115.0) == "429"


def test_what_was_let_in_before_a_cut_is_no_reason_for_another_however_late_it_fails():
    strain = Strain(15.0)
    strain.cut(100.0)
    assert strain.hear(ended(Ending.RATE_LIMITED, admitted_at=99.9), 4000.0) == ""
    assert [strain.hear(ended(Ending.TIMEOUT, admitted_at=99.9), 4000.0 + n) for n in range(9)] == [""] * 9
    assert strain.hear(ended(Ending.RATE_LIMITED, admitted_at=100.0), 4000.0) == "429"


def test_timeouts_count_when_they_are_several_and_a_tenth():
    strain = Strain(15.0)
    assert [strain.hear(ended(Ending.TIMEOUT), 50.0) for _ in range(3)] == ["", "", "timeout"]
    busy = Strain(15.0)
    for _ in range(50):
        assert busy.hear(ended(Ending.OK), 50.0) == ""
    assert [busy.hear(ended(Ending.TIMEOUT), 50.0) for _ in range(6)] == [""] * 5 + ["timeout"]
    busy.cut(50.0)
    assert busy.hear(ended(Ending.TIMEOUT, admitted_at=60.0), 90.0) == ""


def test_timeouts_within_the_cooldown_are_counted_and_cut_after_it():
    strain = Strain(15.0)
    strain.cut(100.0)
    assert [strain.hear(ended(Ending.TIMEOUT, 101.0), 110.0) for _ in range(5)] == [""] * 5
    assert strain.hear(ended(Ending.TIMEOUT, 101.0), 115.0) == "timeout"


def test_a_ceiling_is_just_below_what_was_refused_and_relaxes_by_a_tenth():
    ceiling = Ceiling()
    assert ceiling.highest(9.0) == math.inf
    ceiling.refuse(100.0, 1000.0)
    assert ceiling.highest(1119.0) == pytest.approx(97.0)
    assert ceiling.highest(1120.0) == pytest.approx(106.7)
    assert ceiling.highest(1240.0) == pytest.approx(117.37)
    ceiling.refuse(50.0, 1240.0)
    assert ceiling.highest(1240.0) == pytest.approx(48.5)


def test_a_low_ceiling_relaxes_by_a_whole_request_and_a_very_old_one_by_a_number_that_exists():
    ceiling = Ceiling()
    ceiling.refuse(1.0, 0.0)
    assert [int(ceiling.highest(now)) for now in (0.0, 120.0, 240.0, 360.0)] == [0, 1, 2, 3]
    assert 1e9 < ceiling.highest(1e12) < math.inf
    assert ceiling.highest(-1e9) == pytest.approx(0.97)


def test_a_level_stays_between_one_and_its_top():
    level = Level(8.0, most=100)
    level.move(1e9, "gain")
    assert (level.limit, level.reason) == (100, "gain")
    level.move(-3.0, "queue")
    assert (level.limit, level.reason) == (1, "queue")
    level.hear(WarmStart(5000))
    assert (level.limit, level.reason) == (100, "warm")


def test_a_cap_hides_the_level_above_it_until_it_is_lifted_or_the_level_moves_below():
    level = Level(80.0)
    level.hear(CapChanged(5))
    assert (level.limit, level.top, level.reason) == (5, 5, "start")
    level.move(9.0, "gain")
    assert (level.limit, level.reason) == (5, "start")
    level.hear(CapChanged(None))
    assert level.limit == 80
    level.hear(CapChanged(5))
    level.move(4.0, "429")
    level.hear(CapChanged(None))
    assert (level.limit, level.reason) == (4, "429")


def test_a_level_binds_when_nearly_all_of_it_is_in_flight():
    assert [n for n in range(1, 11) if Level(10.0).is_bound_by(n)] == [8, 9, 10]
    assert Level(1.0).is_bound_by(1)
    assert not Level(1.0).is_bound_by(0.7)


def test_a_start_above_the_maximum_is_refused():
    with pytest.raises(ValueError, match="start: 9 is above max, which is 8"):
        LevelSettings(start=9, max=8)
