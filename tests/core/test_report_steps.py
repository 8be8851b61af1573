"""What holds until it changes, thinned: peaks and the last word are never lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.report.steps import KEPT, Step, Steps, thinned

VALUES = st.none() | st.integers(0, 50)


def filled(most: int, changes: list[tuple[float, int | None]]) -> Steps:
    steps = Steps(most)
    for time, value in changes:
        steps.add(Step(time, value))
    return steps


@given(st.lists(st.tuples(st.floats(0, 1e6), VALUES), min_size=1, max_size=80), st.integers(1, 6))
def test_the_extremes_and_the_last_step_outlive_any_thinning(changes, most):
    changes = sorted(changes, key=lambda change: change[0])
    kept = list(filled(most, changes))
    assert len(kept) <= KEPT * most
    assert [step.time for step in kept] == sorted(step.time for step in kept)
    numbers = [value for _, value in changes if value is not None]
    told = [step.value for step in kept if step.value is not None]
    assert (min(told, default=None), max(told, default=None)) == (
        min(numbers, default=None),
        max(numbers, default=None),
    )
    assert changes[-1] in [(step.time, step.value) for step in kept]


def test_few_steps_are_all_kept_in_the_order_of_time():
    steps = filled(10, [(5.0, 8), (7.0, None), (6.0, 12)])
    assert [(step.time, step.value) for step in steps] == [(5.0, 8), (6.0, 12), (7.0, None)]
    assert steps
    assert not Steps(10)


def test_of_a_crowd_the_lowest_the_highest_and_the_last_stay_in_their_order():
    crowd = [Step(float(time), value) for time, value in enumerate([5, 9, None, 2, 9, 4])]
    assert [step.time for step in thinned(crowd)] == [1.0, 3.0, 5.0]
    assert thinned([Step(0.0, None), Step(1.0, None)]) == [Step(1.0, None)]
