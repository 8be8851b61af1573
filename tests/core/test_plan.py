"""What an evaluation has still to play."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.digests import DigestSet
from scavenge.core.plan import LONGEST_FIRST_WINDOW, OrderSettings, Plan, Refused, RolloutTask, key_digest
from scavenge.rollouts import Example, RolloutKey

FILE = OrderSettings("file")


def example(name: object, size: int = 4) -> Example:
    return Example(str(name), {"prompt": "x" * size})


def play(plan: Plan, examples):
    """Feed a plan as it asks for it and take all it has: what came out, in order."""
    stream, out = iter(examples), []
    while True:
        while plan.wants_more:
            if (row := next(stream, None)) is None:
                plan.end()
            else:
                plan.offer(row)
        if (item := plan.next()) is None:
            assert plan.finished
            return out
        out.append(item)


def keys(out):
    return [(item.key if isinstance(item, RolloutTask) else item.record.key) for item in out]


def done(*finished: RolloutKey) -> DigestSet:
    digests = DigestSet()
    for key in finished:
        digests.add(key_digest(key))
    return digests


def test_every_rollout_of_every_row_comes_once_in_the_file_s_order():
    out = play(Plan("e", "chat", rollouts_per_example=2, settings=FILE), [example("b"), example("a")])
    assert [(item.example.id, item.rollout) for item in out] == [("b", 0), ("b", 1), ("a", 0), ("a", 1)]


def test_only_the_first_num_examples_rows_count_and_the_rest_is_not_asked_for():
    plan = Plan("e", "chat", num_examples=3, settings=FILE)
    asked = 0

    def rows():
        nonlocal asked
        for n in range(100):
            asked += 1
            yield example(n)

    assert len(play(plan, rows())) == 3
    assert (asked, plan.total) == (3, 3)
    plan.offer(example("late"))
    assert plan.next() is None


def test_no_examples_at_all_can_be_asked_for():
    plan = Plan("e", "chat", num_examples=0)
    assert (plan.wants_more, plan.finished, plan.total) == (False, True, 0)


def test_the_total_is_known_when_the_stream_ends():
    plan = Plan("e", "chat", rollouts_per_example=3)
    plan.offer(example(1))
    assert plan.total is None
    plan.end()
    assert (plan.total, plan.finished) == (3, False)


def test_what_an_earlier_part_finished_does_not_come_again_but_counts_in_the_total():
    finished = done(
        RolloutKey("e", "a", 0), RolloutKey("e", "b", 0), RolloutKey("e", "b", 1), RolloutKey("other", "a", 1)
    )
    plan = Plan("e", "chat", rollouts_per_example=2, done=finished, settings=FILE)
    out = play(plan, [example("a"), example("b"), example("c")])
    assert keys(out) == [RolloutKey("e", "a", 1), RolloutKey("e", "c", 0), RolloutKey("e", "c", 1)]
    assert plan.total == 6


def test_a_broken_row_is_an_error_under_its_own_id_that_the_breaker_ignores():
    out = play(Plan("e", "chat", settings=FILE), [Example("line:1", {}, error="data.jsonl:1: not JSON"), example("a")])
    assert isinstance(out[0], Refused)
    record = out[0].record
    assert (record.key.example_id, record.env_id, record.error.message) == ("line:1", "chat", "data.jsonl:1: not JSON")
    assert record.error.counts is False
    assert keys(out)[1] == RolloutKey("e", "a", 0)


def test_the_later_of_two_rows_with_one_id_is_an_error_under_another_id():
    out = play(Plan("e", "chat", rollouts_per_example=2, settings=FILE), [example("a"), example("a"), example("b")])
    assert len(set(keys(out))) == len(out) == 6
    refused = [item.record for item in out if isinstance(item, Refused)]
    assert [record.key for record in refused] == [RolloutKey("e", "row:2", 0), RolloutKey("e", "row:2", 1)]
    assert refused[0].error.message == "row 2: id 'a' was there before; ids must be unique"
    assert refused[0].error.counts is False


def test_an_id_that_is_no_string_is_an_error_of_its_row():
    out = play(Plan("e", "chat", settings=FILE), [Example(7, {}), example("7")])
    assert keys(out) == [RolloutKey("e", "row:1", 0), RolloutKey("e", "7", 0)]
    assert out[0].record.error.message == "row 1: id 7 is no string"


def test_an_id_that_looks_like_the_name_of_a_refused_row_costs_nobody_a_result():
    out = play(Plan("e", "chat", settings=FILE), [example("row:2"), example("row:2"), example("row:2'"), example("z")])
    assert len(set(keys(out))) == len(out) == 4


def test_a_run_starts_with_what_is_there_and_looks_further_ahead_as_it_goes():
    plan = Plan("e", "chat")
    rows = iter(range(10**6))

    def fill():
        before = plan.rows
        while plan.wants_more:
            plan.offer(example(next(rows)))
        return plan.rows - before

    assert fill() == 64
    assert isinstance(plan.next(), RolloutTask)
    assert fill() == 9
    for _ in range(2_000):
        plan.next()
        fill()
    assert plan._waiting == LONGEST_FIRST_WINDOW


def test_the_file_order_does_not_look_ahead():
    plan = Plan("e", "chat", settings=FILE)
    for n in range(500):
        while plan.wants_more:
            plan.offer(example((n, plan.rows)))
        assert plan._waiting <= 64
        plan.next()


def test_a_dataset_of_broken_rows_only_is_not_read_all_at_once():
    plan = Plan("e", "chat", settings=FILE)
    while plan.wants_more:
        plan.offer(Example(f"line:{plan.rows}", {}, error="broken"))
    assert plan.rows == 64


def test_the_longest_expected_goes_first_and_what_finished_teaches():
    plan = Plan("e", "chat")
    for name, size in (("short", 10), ("long", 1000), ("short too", 11), ("long too", 900)):
        plan.offer(example(name, size))
    first = plan.next()
    assert first.example.id == "long"
    plan.learn(first, 5)
    plan.learn(RolloutTask(RolloutKey("e", "old", 0), example("old"), 99, 12), 50)
    assert [plan.next().example.id for _ in range(3)] == ["short too", "short", "long too"]


ROWS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.booleans(), st.integers(0, 3)).map(
        lambda row: Example(row[0], {"p": "x" * row[2]}, error="broken" if row[1] else None)
    ),
    max_size=12,
)


@given(ROWS, st.integers(1, 3), st.integers(-1, 8), st.sampled_from(["file", "longest-first"]), st.data())
def test_each_rollout_of_each_row_is_accounted_for_exactly_once(rows, rollouts, limit, by, data):
    fresh = Plan("e", "chat", rollouts, limit, settings=OrderSettings(by))
    everything = keys(play(fresh, rows))
    counted = rows if limit < 0 else rows[:limit]
    assert len(everything) == len(set(everything)) == len(counted) * rollouts == fresh.total
    assert Counter(key.rollout for key in everything) == {n: len(counted) for n in range(rollouts) if counted}
    finished = set(data.draw(st.lists(st.sampled_from(everything or [RolloutKey("e", "a", 0)]))))
    again = keys(play(Plan("e", "chat", rollouts, limit, done(*finished), OrderSettings(by)), rows))
    assert sorted(again, key=repr) == sorted(set(everything) - finished, key=repr)


def test_a_row_takes_under_64_bytes_beyond_the_first_ten_thousand():
    plan = Plan("e", "chat", settings=FILE)
    used = []
    tracemalloc.start()
    for n in range(16_000):
        plan.offer(example(n))
        plan.next()
        if n in (9_999, 15_999):
            used.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert (used[1] - used[0]) / 6_000 < 64


def test_an_order_that_does_not_exist_is_refused():
    with pytest.raises(ValueError):
        OrderSettings("shortest-first")


def test_what_an_earlier_part_has_done_is_not_owed_and_what_it_did_beyond_the_plan_does_not_count():
    done = DigestSet()
    for example_id in ("a", "b", "gone"):
        done.add(key_digest(RolloutKey("e", example_id, 0)))
    plan = Plan("e", "env", rollouts_per_example=2, done=done)
    assert plan.owed_at_start is None
    for example_id in ("a", "b", "c"):
        plan.offer(Example(example_id, {}))
    plan.end()
    assert (plan.total, plan.kept, plan.owed_at_start) == (6, 2, 4)
