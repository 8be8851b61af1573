"""Which waiting example comes next."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.order import FileOrder, LongestFirst, Mean, Waiting, example_size
from scavenge.rollouts import Example


def waiting(row: int, size: int, rollouts: int = 1) -> Waiting:
    return Waiting(row, Example(str(row), {}), size, range(rollouts))


def drain(order):
    rows = []
    while taken := order.take():
        rows.append((taken[0].row, taken[1]))
    return rows


def test_the_file_order_is_the_order_of_rows_and_rollouts():
    order = FileOrder()
    order.add(waiting(1, 5, 2))
    order.add(waiting(2, 50))
    order.learn(2, 50, 1000)
    assert drain(order) == [(1, 0), (1, 1), (2, 0)]


def test_before_anything_finished_the_larger_example_goes_first_and_ties_go_by_row():
    order = LongestFirst()
    for row, size in enumerate([10, 300, 10, 301, 0], start=1):
        order.add(waiting(row, size))
    assert [row for row, _ in drain(order)] == [4, 2, 1, 3, 5]


def test_what_examples_of_a_size_took_decides_over_the_size_itself():
    order = LongestFirst()
    order.add(waiting(1, 1000))
    order.add(waiting(2, 10))
    order.learn(99, 1001, 5)
    order.learn(98, 11, 500)
    assert [row for row, _ in drain(order)] == [2, 1]


def test_a_size_that_never_finished_counts_like_the_nearest_that_did():
    order = LongestFirst()
    order.add(waiting(1, 64))
    order.add(waiting(2, 8))
    order.learn(99, 128, 10)
    order.learn(98, 16, 20)
    assert [row for row, _ in drain(order)] == [2, 1]


def test_an_example_s_own_rollouts_decide_over_those_of_its_size():
    order = LongestFirst()
    order.add(waiting(1, 10, rollouts=3))
    order.add(waiting(2, 10, rollouts=2))
    order.add(waiting(3, 10))
    assert order.take()[0].row == 1
    order.learn(1, 10, 1)
    order.learn(2, 10, 100)
    order.learn(2, 10, 50)
    assert drain(order) == [(2, 0), (2, 1), (3, 0), (1, 1), (1, 2)]


def test_many_lessons_about_one_example_take_no_memory():
    order = LongestFirst()
    order.add(waiting(1, 10, rollouts=2))
    for length in range(1000):
        order.learn(1, 10, length)
    assert len(order._known) < 100
    assert drain(order) == [(1, 0), (1, 1)]


def test_a_running_mean_is_the_mean():
    mean = Mean()
    for number in (1, 2, 6):
        mean.add(number)
    assert mean.value == pytest.approx(3)


class Model:
    """The same rule by looking at everything each time."""

    def __init__(self):
        self.rows, self.seen, self.by_power = {}, {}, {}

    def expected(self, row):
        size = self.rows[row].size
        if row in self.seen:
            return sum(self.seen[row]) / len(self.seen[row])
        if not self.by_power:
            return size
        power = min(self.by_power, key=lambda known: (abs(known - size.bit_length()), -known))
        return sum(self.by_power[power]) / len(self.by_power[power])

    def next(self):
        return min(self.rows, key=lambda row: (-self.expected(row), -self.rows[row].size, row), default=None)


@given(st.randoms(use_true_random=False))
def test_the_choice_is_always_the_longest_expected(random: Random):
    order, model = LongestFirst(), Model()
    for step in range(60):
        match random.randrange(3):
            case 0:
                entry = waiting(step, random.choice([0, 3, 40, 500]), random.randint(1, 3))
                order.add(entry)
                model.rows[step] = entry
            case 1 if model.rows:
                row, length = random.choice([*model.rows, -1]), float(random.randint(1, 8))
                size = model.rows[row].size if row in model.rows else 40
                order.learn(row, size, length)
                model.by_power.setdefault(size.bit_length(), []).append(length)
                if row in model.rows:
                    model.seen.setdefault(row, []).append(length)
            case _:
                want, taken = model.next(), order.take()
                assert (None if taken is None else taken[0].row) == want or _as_long(model, taken[0].row, want)
                if taken and not taken[0].left:
                    del model.rows[taken[0].row]


def _as_long(model, got, want):
    """Sums in another order may differ in the last digit."""
    return model.expected(got) == pytest.approx(model.expected(want), rel=1e-12)


def test_the_size_of_an_example_is_that_of_its_texts():
    assert example_size({"a": "abc", "b": ["de", {"c": "f"}, 7, None], "d": ("gh",)}) == 8
    ring: list[object] = ["abc"]
    ring.append(ring)
    assert example_size(ring) < 100
