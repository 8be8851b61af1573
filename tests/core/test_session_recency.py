"""What was used since somebody's last use, beside a list that is gone through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.sessions.recency import GONE, Recency

STEPS = st.lists(st.tuples(st.sampled_from("bbbeeelf"), st.integers(0, 6), st.integers(0, 50)), max_size=60)


@given(STEPS)
def test_the_distance_is_what_was_used_since_and_what_is_at_work(steps):
    recency, idle, working = Recency(), [], {}
    for step, number, tokens in steps:
        if step == "b" and number not in working:
            at = next((at for at, (one, _) in enumerate(idle) if one == number), 0)
            expected = sum(size for _, size in idle[at:]) + sum(working.values())
            assert recency.begin(number, tokens) == expected
            idle = [one for one in idle if one[0] != number]
            working[number] = tokens
        elif step == "e" and working.pop(number, None) is not None:
            recency.end(number, tokens)
            idle.append((number, tokens))
        elif step == "f" and number not in working:
            recency.forget(number)
            idle = [one for one in idle if one[0] != number]


def test_of_those_that_left_only_the_last_are_remembered():
    recency = Recency()
    for number in range(GONE + 10):
        recency.begin(number, 1)
        recency.end(number, 1)
        recency.leave(number)
    assert recency.begin(-1, 1) == GONE
