"""Sums over time in a bounded number of bins: whatever becomes of the bins, the sums stay."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.report.grid import FINEST_S
from scavenge.core.report.spread import Spread
from scavenge.core.report.sums import Bins, Load

TIMES = st.floats(0, 2e11)
NEAR = st.floats(1.8e9, 1.8e9 + 5000)
SPANS = st.lists(st.tuples(NEAR, st.floats(0, 300), st.floats(0.1, 100)), max_size=30)


@given(st.lists(TIMES, min_size=1, max_size=60), st.integers(1, 8))
def test_bins_keep_every_sum_however_wide_they_become(times, most):
    bins = Bins(2, most)
    for time in times:
        bins.add(time, 0)
        bins.add_row(time, [0.0, 2.0])
    assert bins.totals() == [len(times), 2.0 * len(times)]
    assert len(bins.grid.cells) <= most
    *_, (end, sums) = bins.cumulative()
    assert (end > max(times), sums) == (True, bins.totals())


@given(st.lists(TIMES, min_size=1, max_size=40), st.randoms())
def test_the_order_of_times_makes_no_difference(times, random):
    mixed = times[:]
    random.shuffle(mixed)
    one, other = Bins(1, 5), Bins(1, 5)
    for time, moved in zip(times, mixed, strict=True):
        one.add(time, 0)
        other.add(moved, 0)
    assert (one.grid.width_s, one.grid.cells) == (other.grid.width_s, other.grid.cells)


def test_each_sum_is_in_the_bin_of_its_time():
    bins = Bins(1, 10)
    for time in (1000.0, 1000.2, 1000.25, 1003.0):
        bins.add(time, 0)
    assert list(bins.grid.in_order()) == [(1000.0, [2.0]), (1000.25, [1.0]), (1003.0, [1.0])]
    assert list(bins.cumulative()) == [(1000.25, [2.0]), (1000.5, [3.0]), (1003.25, [4.0])]


def test_one_time_that_is_years_off_costs_one_bin_and_the_others_stay_fine():
    bins = Bins(1, 100)
    for second in range(20):
        bins.add(1.8e9 + second, 0)
    bins.add(0.0, 0)
    bins.add(2.5e11, 0)
    assert (bins.grid.width_s, len(bins.grid.cells)) == (FINEST_S, 22)


def test_a_coarser_copy_leaves_the_bins_as_they_are():
    bins = Bins(1, 100)
    for second in range(64):
        bins.add(float(second), 0)
    coarse = bins.grid.coarsened(10.0)
    assert (coarse.width_s, list(coarse.cells.values())) == (16.0, [[16.0]] * 4)
    bins.grid.coarsened(0.1).at(1000.0)
    assert (bins.grid.width_s, len(bins.grid.cells)) == (FINEST_S, 64)


def area(load: Load) -> float:
    means = list(load.means())
    return math.fsum(mean * (end - begin) for (begin, mean), (end, _) in pairwise(means))


@given(SPANS, st.integers(2, 20))
def test_a_load_keeps_its_area_and_ends_at_nothing(spans, most):
    load = Load(most)
    for begin, length, height in spans:
        load.add(begin, begin + length, height)
    expected = math.fsum(height * ((begin + length) - begin) for begin, length, height in spans)
    assert area(load) == pytest.approx(expected, rel=1e-5, abs=0.05)
    assert len(load.grid.cells) <= most
    if spans:
        *_, (_, left) = load.means()
        assert left == pytest.approx(0.0, abs=1e-6)


def test_the_mean_of_a_bin_is_that_of_what_was_there():
    load = Load(100)
    load.add(10.0, 11.0)
    load.add(10.125, 10.25, 4.0)
    assert list(load.means()) == [(10.0, 3.0), (10.25, 1.0), (10.5, 1.0), (11.0, 0.0), (11.25, 0.0)]


def test_something_that_lasts_a_year_takes_two_bins():
    load = Load(100)
    assert not load
    load.add(1.8e9, 1.8e9 + 31_536_000.0)
    assert load
    assert len(load.grid.cells) == 2
    assert list(load.means())[1] == (1.8e9 + FINEST_S, 1.0)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=200), st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_right_to_a_few_per_cent(values, share):
    spread = Spread()
    for value in values:
        spread.add(value)
    exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    assert spread.quantile(share) == pytest.approx(exact, rel=0.03, abs=0.001)
    assert (spread.count, spread.longest_s) == (len(values), max(values))


def test_a_spread_of_nothing_has_quantiles_of_nothing():
    assert Spread().quantile(0.5) == 0.0
