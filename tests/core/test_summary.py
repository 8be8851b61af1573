"""The figures a run ends with."""

from __future__ import annotations

import json
import math
from itertools import combinations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.estimates import Moments, Passes, pass_at_k
from scavenge.core.figures import precise_duration
from scavenge.core.summary import EndpointSummary, EvalSummary, Summary, closing_table

EVAL = EvalSummary("math", "chat", 9, 1, None, 0.5, 0.1234567, 0.45, {1: 0.5, 4: 0.75}, 100, 200, 75.0, 2.6666)
EMPTY = EvalSummary("none", "chat", 0, 0, 4, None, None, None, None, 0, 0, 0.0, None)
ENDPOINT = EndpointSummary("glm", "http://a/v1", 12, {"lost": 2, "busy": 1}, 300, 61.0, 8, 48, 64)
SUMMARY = Summary((EVAL, EMPTY), (ENDPOINT, attrs.evolve(ENDPOINT, failures={})), 3, 4)


def test_the_summary_is_plain_json_and_names_what_it_has():
    found = json.loads(json.dumps(SUMMARY.as_json(), allow_nan=False))
    assert found["evals"][0] == {
        "eval": "math", "env_id": "chat", "ok": 9, "error": 1, "owed": None, "mean_reward": 0.5,
        "mean_reward_stderr": 0.1234567, "mean_reward_errors_as_0": 0.45, "pass_at_k": {"1": 0.5, "4": 0.75},
        "prompt_tokens": 100, "completion_tokens": 200, "wall_s": 75.0, "tokens_per_s": 2.6666,
        "workers_started": 0, "workers_died": 0,
    }  # fmt: skip
    assert found["endpoints"][0] == {
        "endpoint_id": "glm", "url": "http://a/v1", "requests": 12, "failures": {"lost": 2, "busy": 1}, "tokens": 300,
        "alive_s": 61.0, "peak_in_flight": 8, "limit": 48, "peak_limit": 64,
    }  # fmt: skip
    assert (found["retries"], found["revocations"]) == (3, 4)


def test_a_figure_that_is_not_finite_is_null():
    spoilt = attrs.evolve(EVAL, mean_reward=math.inf, pass_at_k={1: math.nan})
    found = Summary((spoilt,), (), 0, 0).as_json()["evals"][0]
    assert (found["mean_reward"], found["pass_at_k"]) == (None, {"1": None})


def test_the_closing_tables_have_a_cell_for_every_column():
    evals, endpoints = closing_table(SUMMARY)
    for table in (evals, endpoints):
        assert {len(row) for row in table.rows} == {len(table.head)}
    assert evals.rows[0] == ("math", "9", "1", "?", "0.5 ± 0.1235", "0.45", "0.5", "0.75", "300", "1m15s", "2.7")
    assert evals.rows[1] == ("none", "0", "0", "4", "–", "–", "–", "–", "0", "0.0s", "–")
    assert endpoints.title == "endpoints (3 retries, 4 leases revoked)"
    assert endpoints.rows[0] == ("glm", "http://a/v1", "12", "1 busy, 2 lost", "300", "1m01s", "8", "48 (peak 64)")
    assert endpoints.rows[1][3] == "–"


def test_workers_that_died_are_told_over_the_table():
    healthy = attrs.evolve(SUMMARY, evals=(attrs.evolve(EVAL, workers_started=5),))
    assert closing_table(healthy)[0].title == "evaluations"
    crashing = attrs.evolve(EVAL, workers_started=5, workers_died=2)
    shown = closing_table(attrs.evolve(SUMMARY, evals=(crashing, attrs.evolve(EMPTY, workers_started=1))))
    assert shown[0].title == "evaluations (2 of 6 workers died)"


@pytest.mark.parametrize(
    ("limit", "peak", "text"), [(None, None, "–"), (8, 8, "8"), (8, None, "8"), (7, 9, "7 (peak 9)")]
)
def test_the_peak_of_a_limit_is_told_beside_it_where_it_is_another(limit, peak, text):
    part = attrs.evolve(ENDPOINT, limit=limit, peak_limit=peak)
    assert closing_table(Summary((), (part, ENDPOINT), 0, 0))[1].rows[0][-1] == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (59.94, "59.9s"),
        (59.99, "1m00s"),
        (3599.4, "59m59s"),
        (3599.6, "1h00m"),
        (90_061, "25h01m"),
        (7199, "1h59m"),
    ],
)
def test_durations_read_well(seconds, text):
    assert precise_duration(seconds) == text


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_choices_of_k_that_hold_a_pass(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    choices = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))


@given(st.lists(st.tuples(st.sampled_from([b"a" * 16, b"b" * 16, b"c" * 16]), st.booleans()), max_size=15))
def test_estimates_are_means_over_the_examples_with_enough_rollouts(rollouts):
    passes = Passes()
    for example, passed in rollouts:
        passes.add(example, passed)
    by_example = {e: [p for x, p in rollouts if x == e] for e, _ in rollouts}
    found = passes.estimates(6)
    for k in (1, 2, 4, 6):
        enough = [pass_at_k(len(each), sum(each), k) for each in by_example.values() if len(each) >= k]
        assert found.get(k) == (pytest.approx(sum(enough) / len(enough)) if enough else None)
    assert set(found) <= {1, 2, 4, 6}


@given(st.lists(st.floats(-1e6, 1e6), min_size=2))
def test_moments_are_those_of_the_whole_list(numbers):
    moments = Moments()
    for number in numbers:
        moments.add(number)
    mean = math.fsum(numbers) / len(numbers)
    spread = math.fsum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1)
    assert moments.mean == pytest.approx(mean, abs=1e-6)
    assert moments.stderr == pytest.approx(math.sqrt(spread / len(numbers)), abs=1e-3)
