"""The benchmark of the gates: its cases can be run, and its figures are what they say."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import attrs
import pytest

from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.testing.agents import Spread
from scavenge.testing.batching import BatchingSettings
from scavenge.testing.closed_loop import ClosedLoop
from scavenge.testing.closed_loop_case import LoopCase, RequestKind, Workload
from scavenge.testing.closed_loop_report import LimitMove, LoopReport, LoopRow

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from gate_cases import CASES, Case, find_cases
from gate_policies import Blind, make_policy
from gate_pool import play
from gate_scores import Best, Oracles, best_of, fixed_goodputs, mean_score, score

LOOP = LoopCase(BatchingSettings(), Workload((RequestKind(Spread(10), Spread(10)),)), 40.0)
HALVED = Case(LOOP, (2, 4), ((0, 20), (20, 40)), halved=1)


def report(*goodputs: float, limit: float = 3.0) -> LoopReport:
    rows = [LoopRow(5.0 * i, speed, speed, limit, limit, 0) for i, speed in enumerate(goodputs, 1)]
    return LoopReport(
        rows, [LimitMove(0.0, 2, ""), LimitMove(9.0, 3, ""), LimitMove(22.0, 2, "")], requests=50, timeouts=1
    )


@pytest.mark.parametrize("name", CASES)
def test_every_case_can_be_run(name):
    loop = attrs.evolve(CASES[name].loop, seconds=15.0)
    limit = CASES[name].grid[0]
    found = ClosedLoop(loop, Fixed(FixedSettings(limit)), random.Random(1)).run()
    assert found.rows[-1].at == 15.0
    assert found.requests >= limit
    assert all(since < until <= CASES[name].loop.seconds for since, until in CASES[name].spans)


def test_the_best_limit_is_found_for_each_phase_and_the_knee_is_the_lowest_that_is_nearly_as_good():
    assert best_of({2: [96.0, 50.0], 3: [94.0, 40.0], 4: [100.0, 20.0]}) == [Best(100.0, 4, 2), Best(50.0, 2, 2)]


def test_a_run_is_compared_with_the_best_of_each_phase():
    bests = [Best(100.0, 4, 2), Best(50.0, 2, 2)]
    found = score(HALVED, bests, report(0, 90, 90, 90, 30, 48, 48, 48))
    assert found.whole == pytest.approx((270 + 174) / 600)
    assert found.second_half == pytest.approx((2 * 180 + 2 * 96) / 600)
    assert (found.reached_s, found.reached_moves, found.peak, found.timeouts) == (15.0, 2, 1.5, 0.02)
    assert (found.recovered_s, found.recovered_moves) == (15.0, 1)


def test_what_was_never_reached_is_infinite_and_so_is_the_mean_with_it():
    bests = [Best(100.0, 4, 2), Best(50.0, 2, 2)]
    never = score(HALVED, bests, report(*[10.0] * 8))
    soon = score(HALVED, bests, report(*[100.0] * 8))
    assert (never.reached_s, soon.reached_s) == (float("inf"), 5.0)
    assert mean_score([never, soon]).reached_s == float("inf")
    assert mean_score([never, soon]).whole == pytest.approx((80 / 600 + 800 / 600) / 2)


def test_only_the_settled_part_of_a_phase_counts_for_a_fixed_limit_unless_the_server_varies():
    found = report(0, 80, 80, 80, 0, 50, 50, 50)
    assert fixed_goodputs(HALVED, found) == [80.0, 50.0]
    assert fixed_goodputs(attrs.evolve(HALVED, phases=(), varies=True), found) == [pytest.approx(48.75)]


def test_what_fixed_limits_gave_is_kept_in_a_file_and_forgotten_when_the_case_changes(tmp_path):
    oracles = Oracles(tmp_path / "oracles.json")
    assert oracles.missing(HALVED, 1) == [2, 3, 4]
    for limit in (2, 3, 4):
        oracles.put(HALVED, 1, limit, [10.0 * limit, 5.0])
    oracles.save()
    again = Oracles(tmp_path / "oracles.json")
    assert again.missing(HALVED, 1) == []
    assert again.bests(HALVED, 1) == [Best(40.0, 4, 4), Best(5.0, 2, 2)]
    assert again.missing(HALVED, 2) == [2, 3, 4]
    assert again.missing(attrs.evolve(HALVED, loop=attrs.evolve(LOOP, seconds=41.0)), 1) == [2, 3, 4]


def test_cases_and_policies_are_found_by_their_names():
    assert list(find_cases("F,Y1")) == ["F chat, halved", "Y1 L40S, pages and essays"]
    assert find_cases(None) is CASES
    assert make_policy("fixed12").limit(0.0) == 12
    blind = make_policy("pi-blind")
    assert isinstance(blind, Blind)
    assert not hasattr(blind, "wants_load")
    with pytest.raises(ImportError):
        make_policy("nobody")


def test_a_small_server_is_found_out_in_the_first_seconds_of_a_run_behind_the_real_pool():
    (case,) = find_cases("Z1").values()
    best, found = (play(case.loop, policy, seed=1) for policy in ("fixed20", "tide"))
    assert found.goodput(0.0, 20.0) >= 0.9 * best.goodput(0.0, 20.0)
    assert found.goodput(20.0, 60.0) >= 0.97 * best.goodput(20.0, 60.0)
