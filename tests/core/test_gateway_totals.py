"""What is counted of a gateway's events."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core import gateway_totals
from scavenge.core.gateway_totals import CALL_BOUNDS_S, REST, GatewayTotals, PoolTotals, Spread
from scavenge.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptStarted,
    CallEnded,
    EndpointJoined,
    EndpointLeft,
    HealthChanged,
    LeasesRevoked,
    PoolWaiting,
    RolloutStarted,
)
from scavenge.types import Attempt, EndpointId, Url, Usage

GLM, URL = EndpointId("glm"), Url("http://a/v1")


def totals_after(*events: object) -> PoolTotals:
    totals = GatewayTotals()
    for event in events:
        totals.observe(event)  # type: ignore[arg-type]  # each is an event
    (found,) = totals.pools.values()
    return found


def call(outcome: str = "ok", *, streamed: bool = True, **more: object) -> CallEnded:
    return CallEnded(GLM, outcome, streamed, 12.0, 1, **more)  # type: ignore[arg-type]


def ended(outcome: str, tokens: int) -> AttemptEnded:
    return AttemptEnded(GLM, Attempt(URL, outcome, 0.0, 1.0), tokens)


def test_calls_are_counted_by_how_they_ended():
    calls = [call(), call(), call(streamed=False), call("lost"), call("hung up", streamed=False)]
    assert totals_after(*calls).calls == {
        ("ok", True): 2, ("ok", False): 1, ("lost", True): 1, ("hung up", False): 1,
    }  # fmt: skip


def test_only_calls_that_were_answered_tell_how_long_an_answer_takes():
    totals = totals_after(
        call(first_byte_s=0.5), call(first_byte_s=3.0), call(streamed=False), call("lost", first_byte_s=1.0)
    )
    assert (sums(totals.durations), sums(totals.first_bytes)) == ({True: 24.0, False: 12.0}, {True: 3.5, False: 0.0})
    assert [list(totals.durations[key].up_to())[-1][1] for key in (True, False)] == [2, 1]


def test_a_clock_that_was_set_back_makes_no_sum_smaller():
    totals = totals_after(call(first_byte_s=2.0), call(first_byte_s=-3600.0))
    assert totals.first_bytes[True].total == 2.0


def sums(spreads):
    return {key: spread.total for key, spread in spreads.items()}


def test_tokens_of_prompts_are_the_calls_and_those_of_replies_the_attempts():
    usage = Usage(prompt_tokens=100, completion_tokens=7, cached_tokens=64)
    totals = totals_after(call(usage=usage), call(), ended("ok", 7), ended("lost", 2))
    assert totals.tokens == {"prompt": 100, "completion": 9}
    assert totals.cached_tokens == 64


def test_attempts_are_counted_by_outcome_and_those_that_are_given_up_too():
    again = AttemptStarted(GLM, URL, again=True)
    totals = totals_after(
        AttemptStarted(GLM, URL), ended("lost", 0), again, ended("ok", 1), again, AttemptDropped(GLM, URL)
    )
    assert totals.attempts == {"lost": 1, "ok": 1, "dropped": 1}
    assert totals.resent == 2


def test_what_becomes_of_endpoints_is_counted():
    states = ["ejected", "live", "misconfigured", "ejected"]
    totals = totals_after(
        EndpointJoined(GLM, URL),
        *(HealthChanged(GLM, URL, "live", new, "why") for new in states),
        LeasesRevoked(GLM, URL, 3, "lost"),
        LeasesRevoked(GLM, URL, 2, "lost"),
        EndpointLeft(GLM, URL),
    )
    assert totals.changes == {"joined": 1, "left": 1, "ejected": 2, "misconfigured": 1}
    assert totals.revoked == 5


def test_everything_stands_at_zero_from_the_beginning():
    totals = PoolTotals()
    assert totals.calls == Counter({("ok", False): 0, ("ok", True): 0})
    assert [set(one.values()) for one in (totals.attempts, totals.tokens, totals.changes)] == [{0}, {0}, {0}]
    assert {"ok", "prompt", "completion", "joined", "ejected"} <= {*totals.attempts, *totals.tokens, *totals.changes}


def test_other_events_count_for_nothing():
    totals = GatewayTotals()
    totals.observe(RolloutStarted("e"))
    totals.observe(PoolWaiting(GLM, 0.0, "why"))
    assert totals.pools == {}


def test_pools_are_counted_apart_and_too_many_of_them_together(monkeypatch):
    monkeypatch.setattr(gateway_totals, "POOLS_MAX", 3)
    totals = GatewayTotals()
    for name in ["a", "b", "c", "d", "e", "a", "e"]:
        totals.observe(EndpointJoined(EndpointId(name), URL))
    assert {name: pool.changes["joined"] for name, pool in totals.pools.items()} == {"a": 2, "b": 1, "c": 1, REST: 3}


@pytest.mark.parametrize(
    ("value", "bound"), [(0.0, 0.1), (0.1, 0.1), (0.11, 0.25), (3600.0, 3600.0), (9e9, float("inf"))]
)
def test_a_value_is_counted_from_the_first_bound_on_that_it_is_not_above(value, bound):
    spread = Spread(CALL_BOUNDS_S)
    spread.add(value)
    assert next(at for at, count in spread.up_to() if count) == bound
    assert spread.total == value


@given(st.lists(st.floats(0, 1e5)))
def test_a_spread_counts_as_a_plain_count_would(values):
    spread = Spread((1.0, 10.0, 100.0))
    for value in values:
        spread.add(value)
    assert list(spread.up_to()) == [
        (bound, sum(value <= bound for value in values)) for bound in (1.0, 10.0, 100.0, float("inf"))
    ]
