"""What is counted, and what a resumed run adds to it."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.records import encode, parse_brief
from scavenge.core.tally import EvalTally, History, Tally
from scavenge.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptStarted,
    EndpointJoined,
    EndpointLeft,
    EvalGaveUp,
    HealthChanged,
    LeasesRevoked,
    LimitMoved,
    RolloutFinished,
    RolloutStarted,
    WorkerEnded,
    WorkerReady,
    WorkerStarting,
)
from scavenge.rollouts import ErrorInfo, RolloutKey, RolloutRecord
from scavenge.types import Attempt, EndpointId, Url, Usage

POOL, URL = EndpointId("glm"), Url("http://a/v1")
BOOM = ErrorInfo("Boom", "why")


def attempt(outcome: str, url: Url = URL) -> Attempt:
    return Attempt(url, outcome, 0.0, 1.0)


def record(name: str, reward: float | None = 1.0, *, rollout=0, error=None, tokens=10, attempts=("ok",), of="e"):
    return RolloutRecord(
        RolloutKey(of, name, rollout),
        "chat",
        reward,
        error=error,
        usage=Usage(5, tokens),
        attempts=tuple(attempt(outcome) for outcome in attempts),
    )


def make(rollouts: int = 1) -> Tally:
    return Tally.of([EvalTally("e", "chat", rollouts), EvalTally("f", "chat")])


def observed(*events, rollouts: int = 1) -> Tally:
    tally = make(rollouts)
    for now, event in enumerate(events):
        tally.observe(event, float(now))
    return tally


def finished(*records):
    return [RolloutFinished(each) for each in records]


def figures(tally: Tally, owed_at_start: int | None = None):
    return tally.summary({"e": owed_at_start}, 0.0).evals[0]


def test_rewards_give_a_mean_a_standard_error_and_a_mean_with_errors_as_zero():
    tally = observed(*finished(record("a", 1.0), record("b", 0.0), record("c", 0.5), record("d", None, error=BOOM)))
    found = figures(tally, 10)
    assert (found.ok, found.error, found.owed) == (3, 1, 7)
    assert found.mean_reward == pytest.approx(0.5)
    assert found.mean_reward_stderr == pytest.approx(0.5 / 3**0.5)
    assert found.mean_reward_errors_as_0 == pytest.approx(1.5 / 4)
    assert (found.prompt_tokens, found.completion_tokens) == (20, 40)


def test_one_reward_has_no_standard_error_and_an_unknown_total_owes_an_unknown_number():
    found = figures(observed(*finished(record("a", 0.25))))
    assert (found.mean_reward, found.mean_reward_stderr, found.owed) == (0.25, None, None)


def test_nothing_played_and_nothing_scored_have_no_mean():
    assert figures(make()).mean_reward_errors_as_0 is None
    found = figures(observed(*finished(record("a", None), record("b", None, error=BOOM))))
    assert (found.ok, found.mean_reward, found.mean_reward_errors_as_0) == (1, None, None)


def test_errors_alone_have_no_mean_but_a_mean_with_errors_as_zero():
    found = figures(observed(*finished(record("a", None, error=BOOM))))
    assert (found.mean_reward, found.mean_reward_errors_as_0) == (None, 0.0)


def test_pass_at_k_is_given_where_an_example_has_several_rollouts():
    tally = observed(
        *finished(
            record("a", 1.0, rollout=0),
            record("a", 0.0, rollout=1),
            record("a", 0.99, rollout=2),
            record("b", 0.0, rollout=0),
            record("c", None, rollout=0, error=BOOM),
        ),
        rollouts=3,
    )
    found = figures(tally)
    assert found.pass_at_k == pytest.approx({1: (1 / 3 + 0) / 2, 2: 2 / 3, 3: 1.0})
    assert figures(observed(*finished(record("a")))).pass_at_k is None


def test_the_wall_time_runs_from_an_evaluation_s_first_event_to_its_last():
    tally = make()
    tally.observe(RolloutStarted("e"), 100.0)
    tally.observe(RolloutFinished(record("a", tokens=30)), 110.0)
    tally.observe(RolloutStarted("f"), 500.0)
    found = figures(tally)
    assert (found.wall_s, found.tokens_per_s) == (10.0, 3.0)
    assert figures(make()).tokens_per_s is None


def test_missing_usage_counts_as_no_tokens():
    found = figures(observed(RolloutStarted("e"), *finished(attrs.evolve(record("a"), usage=Usage()))))
    assert (found.prompt_tokens, found.completion_tokens, found.tokens_per_s) == (0, 0, 0.0)


def test_retries_and_revocations_are_counted_for_the_run():
    tally = observed(
        AttemptStarted(POOL, URL),
        AttemptStarted(POOL, URL, again=True),
        AttemptStarted(POOL, URL, again=True),
        AttemptStarted(POOL, URL),
        LeasesRevoked(POOL, URL, 7, "gone"),
        LeasesRevoked(POOL, URL, 2, "gone"),
    )
    summary = tally.summary({}, 0.0)
    assert (summary.retries, summary.revocations) == (2, 9)


def test_an_endpoint_s_requests_failures_tokens_and_peak_are_counted():
    other = Url("http://b/v1")
    tally = observed(
        AttemptStarted(POOL, URL),
        AttemptStarted(POOL, URL),
        AttemptEnded(POOL, attempt("ok"), 12),
        AttemptStarted(POOL, URL),
        AttemptStarted(POOL, URL),
        AttemptEnded(POOL, attempt("lost"), 0),
        AttemptEnded(POOL, attempt("lost"), 0),
        AttemptEnded(POOL, attempt("busy", other), 0),
        EvalGaveUp("e", "no endpoint"),
    )
    first, second = tally.summary({}, 0.0).endpoints
    assert (first.url, first.requests, first.failures, first.tokens) == (URL, 3, {"lost": 2}, 12)
    assert (first.peak_in_flight, second.peak_in_flight) == (3, 0)
    assert (second.endpoint_id, second.url, second.failures) == (POOL, other, {"busy": 1})


def test_a_request_that_was_given_up_is_no_attempt_and_makes_room():
    tally = observed(AttemptStarted(POOL, URL), AttemptDropped(POOL, URL), AttemptStarted(POOL, URL))
    (found,) = tally.summary({}, 0.0).endpoints
    assert (found.requests, found.peak_in_flight) == (0, 1)


def moved(old: int | None, new: int, url: Url = URL) -> LimitMoved:
    return LimitMoved(POOL, url, old, new, "gain", 3)


def limits(tally: Tally) -> list[tuple[int | None, int | None]]:
    return [(each.limit, each.peak_limit) for each in tally.summary({}, 0.0).endpoints]


def test_the_last_limit_of_an_endpoint_and_its_peak_are_told():
    other = Url("http://b/v1")
    tally = observed(AttemptStarted(POOL, URL), moved(None, 16, other), moved(16, 64, other), moved(64, 32, other))
    assert limits(tally) == [(None, None), (32, 64)]


def test_a_limit_that_only_fell_had_its_peak_before():
    assert limits(observed(moved(None, 40), moved(40, 20))) == [(20, 40)]


def test_the_limit_of_an_earlier_part_stands_until_another_is_told_and_its_peak_is_kept():
    tally = make()
    tally.carry_over(observed(moved(8, 64), moved(64, 32)).summary({}, 0.0).as_json())
    assert limits(tally) == [(32, 64)]
    tally.observe(moved(8, 16), 0.0)
    assert limits(tally) == [(16, 64)]


def alive_s(*events) -> float:
    tally = make()
    for now, event in events:
        tally.observe(event, float(now))
    return tally.summary({}, 100.0).endpoints[0].alive_s


JOINED, LEFT = EndpointJoined(POOL, URL), EndpointLeft(POOL, URL)


def health(old: str, new: str) -> HealthChanged:
    return HealthChanged(POOL, URL, old, new, "why")


@pytest.mark.parametrize(
    ("events", "seconds"),
    [
        ([(0, JOINED)], 0),
        ([(0, JOINED), (5, AttemptEnded(POOL, attempt("ok"), 1))], 100),
        ([(0, JOINED), (5, AttemptEnded(POOL, attempt("lost"), 1))], 0),
        ([(0, JOINED), (10, health("probing", "live"))], 90),
        ([(0, JOINED), (10, health("probing", "ejected")), (20, health("ejected", "probation"))], 80),
        ([(0, JOINED), (10, health("live", "ejected"))], 10),
        ([(0, JOINED), (10, health("live", "paused")), (20, health("paused", "live")), (30, LEFT)], 30),
        ([(0, JOINED), (10, health("probing", "live")), (30, LEFT), (50, JOINED), (90, health("probing", "live"))], 30),
        ([(0, JOINED), (10, health("probing", "misconfigured")), (30, LEFT)], 0),
        ([(0, JOINED), (5, HealthChanged(EndpointId("other"), URL, "probing", "live", ""))], 0),
        ([(0, JOINED), (10, LEFT), (20, AttemptEnded(POOL, attempt("ok"), 1))], 0),
    ],
)
def test_seconds_alive_are_those_listed_and_able_to_work(events, seconds):
    assert alive_s(*events) == pytest.approx(seconds)


def lines(*records):
    """Short forms as resume reads them: newest first."""
    return [parse_brief(encode(each)) for each in reversed(records)]


def recalled(*records, rollouts: int = 1):
    history = History(make(rollouts))
    for brief in lines(*records):
        history.add(brief)
    return history


def test_of_an_earlier_part_the_last_line_of_a_key_counts_and_all_tokens_do():
    history = recalled(
        record("a", None, error=BOOM),
        record("b", 0.5),
        record("a", 1.0),
        record("c", 1.0),
        record("c", None, error=BOOM),
    )
    found = figures(history.tally, 3 - len(history.done))
    assert (found.ok, found.error, found.owed, found.mean_reward) == (2, 1, 1, 0.75)
    assert found.completion_tokens == 50
    assert len(history.done) == 2


def test_an_error_of_an_earlier_part_that_is_played_well_now_is_no_error_any_more():
    tally = recalled(record("a", None, error=BOOM), record("b", None, error=BOOM)).tally
    tally.observe(RolloutFinished(record("a", 1.0)), 0.0)
    tally.observe(RolloutFinished(record("b", None, error=BOOM)), 0.0)
    found = figures(tally, 2)
    assert (found.ok, found.error, found.owed) == (1, 1, 1)


def test_results_of_samples_that_a_smaller_plan_leaves_out_are_never_owed_less_than_nothing():
    tally = recalled(record("a", 1.0), record("b", 1.0), record("c", 1.0)).tally
    assert (figures(tally, 0).ok, figures(tally, 0).owed) == (3, 0)


def test_lines_of_an_evaluation_that_is_not_in_the_run_are_set_apart():
    history = recalled(record("a", of="gone"))
    assert (history.foreign, len(history.done)) == (1, 0)


RECORDS = st.lists(
    st.builds(
        lambda name, n, reward, bad: record(name, None if bad else reward, rollout=n, error=BOOM if bad else None),
        st.sampled_from("abc"),
        st.integers(0, 2),
        st.floats(-1, 2),
        st.booleans(),
    ),
    max_size=20,
)


@given(RECORDS, st.integers(0, 20))
def test_a_resumed_run_ends_with_the_figures_of_one_that_was_never_stopped(records, cut):
    """No key that is ok is played again, so later records of such keys are left out."""
    fine, played = set(), []
    for each in records:
        if each.key not in fine:
            played.append(each)
            if each.error is None:
                fine.add(each.key)
    straight = observed(*finished(*played), rollouts=3)
    history = recalled(*played[:cut], rollouts=3)
    for each in played[cut:]:
        history.tally.observe(RolloutFinished(each), 0.0)
    one, two = (
        attrs.asdict(attrs.evolve(figures(t, owed), wall_s=0, tokens_per_s=None))
        for t, owed in ((straight, 9), (history.tally, 9 - len(history.done)))
    )
    for name in one:
        assert two[name] == (one[name] if one[name] is None else pytest.approx(one[name])), name


def test_times_and_endpoints_of_an_earlier_part_come_from_its_last_summary():
    earlier = observed(
        RolloutStarted("e"),
        RolloutFinished(record("a", tokens=20, attempts=("lost", "ok"))),
        LeasesRevoked(POOL, URL, 1, "gone"),
        JOINED,
        AttemptStarted(POOL, URL, again=True),
        AttemptEnded(POOL, attempt("lost"), 3),
    )
    written = earlier.summary({"e": 1}, 50.0).as_json()
    tally = make()
    tally.carry_over(written)
    tally.carry_over({})
    tally.observe(AttemptStarted(POOL, URL), 0.0)
    tally.observe(AttemptEnded(POOL, attempt("lost"), 4), 0.0)
    summary = tally.summary({}, 0.0)
    assert (summary.retries, summary.revocations) == (1, 1)
    assert (summary.evals[0].wall_s, summary.evals[0].tokens_per_s) == (1.0, 20.0)
    endpoint = summary.endpoints[0]
    assert (endpoint.requests, endpoint.failures, endpoint.tokens) == (2, {"lost": 2}, 7)
    assert (endpoint.alive_s, endpoint.peak_in_flight) == (0.0, 1)


def test_workers_are_counted_by_evaluation_and_those_of_an_earlier_part_are_added():
    ends = [("died loading", 1), ("died serving", 2), ("retired", 3), ("not spawned", 4)]
    events = [
        event for how, worker in ends for event in (WorkerStarting("e", worker), WorkerEnded("e", worker, how, ""))
    ]
    tally = observed(*events, WorkerStarting("f", 1), WorkerReady("f", 1, 77, 0.5))
    counts = [(one.workers_started, one.workers_died) for one in tally.summary({}, 0.0).evals]
    assert counts == [(3, 2), (1, 0)]
    tally.carry_over(tally.summary({}, 0.0).as_json())
    counts = [(one.workers_started, one.workers_died) for one in tally.summary({}, 0.0).evals]
    assert counts == [(6, 4), (2, 0)]


@pytest.mark.parametrize(
    "garbage",
    [
        {"evals": 1, "endpoints": None, "retries": "x", "revocations": float("inf")},
        {"evals": [1, {}, {"eval": "gone"}], "endpoints": [{}, {"url": 1}, {"url": "u", "failures": []}]},
        {"evals": [{"eval": "e", "wall_s": None}], "endpoints": [{"url": "u", "failures": {"x": "y"}, "tokens": []}]},
        {"endpoints": [{"url": "u", "limit": "x", "peak_limit": 3}, {"url": "u", "limit": 2, "peak_limit": None}]},
    ],
)
def test_a_summary_that_was_spoilt_harms_nothing(garbage):
    tally = make()
    tally.carry_over(garbage)
    summary = tally.summary({}, 0.0)
    assert (summary.retries, summary.revocations, summary.evals[0].wall_s) == (0, 0, 0.0)
