"""The circuit breaker ends a run in which nothing goes well any more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.gates.breaker import FIRST, CircuitBreaker
from scavenge.rollouts import ErrorInfo

BAD = ErrorInfo("AuthError", "401 from the server")
ROW = ErrorInfo("BadRow", "line 3", counts=False)


def test_it_trips_at_the_limit_and_not_before():
    breaker = CircuitBreaker(3)
    assert [breaker.observe(BAD) for _ in range(3)] == [False, False, True]


def test_a_success_in_between_starts_the_count_anew():
    breaker = CircuitBreaker(2)
    assert [breaker.observe(error) for error in (BAD, None, BAD, None, BAD)] == [False] * 5


def test_an_error_that_does_not_count_neither_counts_nor_resets():
    breaker = CircuitBreaker(2)
    assert [breaker.observe(error) for error in (BAD, ROW, ROW, ROW, BAD)] == [False, False, False, False, True]


def test_a_limit_of_zero_never_trips():
    breaker = CircuitBreaker(0)
    assert not any(breaker.observe(BAD) for _ in range(1000))


def test_once_tripped_it_stays_so_and_keeps_its_reason():
    breaker = CircuitBreaker(1)
    breaker.observe(BAD)
    assert breaker.observe(None)
    assert breaker.observe(ErrorInfo("Late", "after the end"))
    assert str(breaker.error()) == (
        "1 samples in a row failed for good (max_consecutive_failures = 1), the last one with "
        "AuthError: 401 from the server; remove the cause, then resume the run"
    )
    assert breaker.error().exit_code == 3


@given(st.lists(st.sampled_from([None, BAD, ROW])), st.integers(0, 4))
def test_it_has_tripped_exactly_when_that_many_in_a_row_failed(errors, limit):
    breaker = CircuitBreaker(limit)
    for error in errors:
        breaker.observe(error)
    counted = "".join("." if error is None else "x" for error in errors if error is not ROW)
    assert breaker.tripped == (limit > 0 and "x" * limit in counted)


NO_KEY = ErrorInfo("RequestFailed", "misrouted (HTTP 401)", misrouted=True)


def test_a_run_on_fixed_endpoints_that_is_misrouted_from_the_start_ends_after_a_few():
    breaker = CircuitBreaker(0, elastic=False)
    assert [breaker.observe(NO_KEY) for _ in range(FIRST)] == [False] * (FIRST - 1) + [True]
    assert "the first 5 samples all failed in the same way" in str(breaker.error())
    assert "mend the key, the model or the URL" in str(breaker.error())


@pytest.mark.parametrize("other", [None, BAD, ROW])
def test_anything_else_among_the_first_results_leaves_the_rest_to_the_limit(other: ErrorInfo | None):
    breaker = CircuitBreaker(0, elastic=False)
    breaker.observe(other)
    assert not any(breaker.observe(NO_KEY) for _ in range(100))


def test_an_elastic_run_waits_for_somebody_to_mend_its_endpoints():
    breaker = CircuitBreaker(0)
    assert not any(breaker.observe(NO_KEY) for _ in range(100))
