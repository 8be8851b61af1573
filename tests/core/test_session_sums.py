"""Prefix sums over an ordered set, beside a list that is added up anew each time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.sessions import sums
from scavenge.core.sessions.sums import PrefixSums


def same(prefix_sums, weights):
    assert len(prefix_sums) == len(weights)
    assert prefix_sums.weight == sum(weights.values())
    assert prefix_sums.count == sum(weight > 0 for weight in weights.values())
    for key in weights:
        older = [weight for other, weight in weights.items() if other < key]
        assert prefix_sums.before(key) == (sum(weight > 0 for weight in older), sum(older))


STEPS = st.lists(st.tuples(st.sampled_from("aaars"), st.integers(0, 30), st.integers(0, 9)), max_size=80)


@given(steps=STEPS)
def test_sums_are_those_of_a_plain_list_whatever_is_added_removed_and_changed(steps):
    old_bucket, sums.BUCKET = sums.BUCKET, 2  # splits and empty buckets are common then
    try:
        prefix_sums, weights = PrefixSums(), {}
        for step, age, weight in steps:
            key = (age, 0)
            if step == "a" and key not in weights:
                prefix_sums.add(key)
                weights[key] = 0
            elif step == "r" and key in weights:
                prefix_sums.remove(key)
                del weights[key]
            if step != "r" and key in weights:
                prefix_sums.set_weight(key, weight)
                weights[key] = weight
            same(prefix_sums, weights)
    finally:
        sums.BUCKET = old_bucket


def test_ten_thousand_keys_in_any_order_are_summed_as_a_plain_list_is():
    prefix_sums, rnd = PrefixSums(), random.Random(1)
    ages = list(range(10_000))
    rnd.shuffle(ages)
    for age in ages:
        prefix_sums.add((age, 0))
        prefix_sums.set_weight((age, 0), age)
    for age in (0, 1, 127, 128, 5_000, 9_999):
        assert prefix_sums.before((age, 0)) == (max(0, age - 1), age * (age - 1) // 2)
    assert max(len(bucket.keys) for bucket in prefix_sums._buckets) < 2 * sums.BUCKET


def test_a_bucket_that_is_split_and_emptied_is_gone():
    prefix_sums = PrefixSums()
    for age in range(2 * sums.BUCKET):
        prefix_sums.add((age, 0))
    for age in range(sums.BUCKET):
        prefix_sums.set_weight((age, 0), 1)
        assert prefix_sums.before((2 * sums.BUCKET - 1, 0)) == (age + 1, age + 1)
    for age in range(2 * sums.BUCKET):
        prefix_sums.remove((age, 0))
    assert (len(prefix_sums), prefix_sums._buckets) == (0, [])


def test_a_key_that_is_not_there_has_no_weight_to_change():
    with pytest.raises(KeyError):
        PrefixSums().set_weight((1, 1), 5)
