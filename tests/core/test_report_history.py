"""What is kept of an event log, whatever is in it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report_kit import T0, A, B, attempt, began, event, finished, health, history, joined, limit, of, sessions
from scavenge.core.report.contents import Read, make_report
from scavenge.core.report.endpoints import GONE, STATES, EndpointStories
from scavenge.core.report.history import OUTCOMES, History
from scavenge.core.report.noted import MOST_PARTS, Moments, Noted, Times
from scavenge.core.report.pools import OTHERS, EvalStory, Named, PoolStory
from scavenge.core.report.readings import NAME_LONGEST


def steps(points: object) -> list[tuple[float, object]]:
    return [(point.time - T0, point.value) for point in points]  # type: ignore[attr-defined]


def states(found: History, url: str = A) -> list[tuple[float, str]]:
    story = found.endpoints.of("p", url)
    return [(time, STATES[int(value)]) for time, value in steps(story.states)]  # type: ignore[call-overload]


def moments(found: History) -> list[tuple[str, str]]:
    return [(noted.what, noted.text) for noted in found.moments.first]


def test_rollouts_are_counted_by_evaluation_and_by_how_they_ended():
    error = {"type": "X", "message": "no"}
    found = history(began(), finished(1), finished(2, error=error), finished(3, "other"))
    assert {story.name: story.finished.totals() for story in found.evals} == {"e": [1, 1], "other": [1, 0]}
    assert next(iter(found.evals)).spreads["total_s"].longest_s == 3.0
    assert found.made_of.totals() == [3, 1.5, 6.0, 9.0]


def test_an_attempt_is_in_flight_for_as_long_as_it_took_and_its_tokens_flow_meanwhile():
    found = history(began(), attempt(4, seconds=2.0, tokens=100), attempt(4, B, "lost", 1.0, 0))
    (pool,) = found.pools
    means = {time - T0: mean for time, mean in pool.load.means()}
    assert (means[2.0], means[3.0], means[4.0]) == (1.0, 2.0, 0.0)
    assert [mean for time, mean in pool.flow.means() if time == T0 + 2] == [50.0]
    assert found.outcomes.totals()[OUTCOMES.index("lost")] == 1
    assert [story.url for story in found.endpoints.of_pool("p")] == [A, B]


def test_tokens_that_came_in_no_time_are_spread_a_little_and_an_outcome_of_tomorrow_is_another():
    found = history(began(), attempt(4, outcome="reborn", seconds=0.0, tokens=5))
    assert found.outcomes.totals()[-1] == 1
    (pool,) = found.pools
    assert max(mean for _, mean in pool.flow.means()) == pytest.approx(20.0, rel=1e-3)


def test_an_attempt_that_claims_to_have_begun_before_1970_begins_then():
    found = history(began(), attempt(0, seconds=1e11, tokens=1))
    (pool,) = found.pools
    assert next(iter(pool.load.means()))[0] == 0.0


def test_a_limit_is_a_step_line_with_a_gap_where_the_endpoint_is_not_listed():
    left = of("EndpointLeft", 5)
    found = history(joined(0), limit(1, 8), limit(2, 12), left, limit(6, 99), joined(8), limit(9, 4))
    assert steps(found.endpoints.of("p", A).limits) == [(1, 8), (2, 12), (5, None), (9, 4)]


def test_the_sum_of_limits_follows_each_of_them():
    found = history(limit(1, 8), limit(2, 10, B), limit(3, 12), of("EndpointLeft", 4), of("EndpointLeft", 5, B))
    (pool,) = found.pools
    assert steps(pool.limits) == [(1, 8), (2, 18), (3, 22), (4, 10), (5, None)]
    assert steps(history(of("EndpointLeft", 4)).pools.of("p").limits) == []


def test_no_more_limits_are_summed_up_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr("scavenge.core.report.pools.MOST_LIMITS", 1)
    pool = PoolStory("p")
    for url, new in (("a", 3), ("b", 5), ("a", 4)):
        pool.limit_moved(T0, url, new)
    assert [step.value for step in pool.limits] == [3, 4]


def test_states_are_those_of_health_and_of_the_listing():
    found = history(
        joined(0),
        health(1, "live"),
        of("EndpointDraining", 2, why="marked"),
        health(3, "ejected"),
        of("EndpointChanged", 4, what="key"),
        of("EndpointChanged", 5, what="key, draining"),
        health(6, "enchanted"),
        of("EndpointLeft", 7),
        joined(8),
    )
    assert states(found) == [
        (0, "probing"), (1, "live"), (2, "draining"), (3, "draining"), (5, "ejected"), (6, "other"), (7, "gone"),
        (8, "probing"),
    ]  # fmt: skip


def test_a_change_of_an_endpoint_that_does_not_drain_is_no_state():
    assert states(history(joined(0), of("EndpointChanged", 1, what="draining"))) == [(0, "probing")]


def test_sessions_are_told_with_what_bounds_them():
    found = history(sessions(1, 4, 9), sessions(2, 7), sessions(3, 6, None, 1e6))
    (pool,) = found.pools
    assert (steps(pool.live), pool.most_live) == ([(1, 4), (2, 7), (3, 6)], 7)
    assert steps(pool.session_limits) == [(1, 9), (2, None), (3, None)]
    assert steps(pool.budgets) == [(3, 1e6)]


def test_a_part_that_begins_ends_everything_of_the_part_before():
    found = history(began(), joined(0), limit(1, 8), sessions(2, 3, 5), finished(10), began(100, kept=1), joined(101))
    assert steps(found.endpoints.of("p", A).limits) == [(1, 8), (10, None)]
    assert [name for _, name in states(found)] == ["probing", GONE, "probing"]
    (pool,) = found.pools
    assert steps(pool.limits)[-1] == steps(pool.live)[-1] == steps(pool.session_limits)[-1] == (10, None)
    assert not pool.budgets
    assert list(found.times.gaps()) == [(T0 + 10, T0 + 100)]
    assert (found.parts, moments(found)) == (2, [("resumed", "1 results were there")])
    assert history(began(), of("EndpointLeft", 1), began(2)).parts == 2


def test_limits_of_an_earlier_part_are_no_part_of_the_sum():
    found = history(began(), limit(1, 8), limit(2, 9, B), began(10), joined(10), limit(11, 5), of("EndpointLeft", 12))
    (pool,) = found.pools
    assert steps(pool.limits) == [(1, 8), (2, 17), (2, None), (11, 5), (12, None)]


def test_a_run_that_an_older_version_began_has_no_kept_results():
    assert history(event("RunStarted"), event("RunStarted", 1)).spoilt == 0


@pytest.mark.parametrize(
    ("name", "keys", "told"),
    [
        ("RunStopping", {"why": "SIGINT"}, ("stopping", "SIGINT")),
        ("EvalGaveUp", {"eval": "e", "why": "stalled"}, ("gave up", "e: stalled")),
        ("Warned", {"message": "odd\nthing"}, ("warning", "odd thing")),
        ("Stalled", {"quiet_s": 300, "picture": {}}, ("stalled", "nothing had come back for 5:00")),
        ("PoolWaiting", {"endpoint_id": "p", "since_time": 1.0, "why": "none"}, ("waiting", "p: none")),
        ("PoolWaiting", {"endpoint_id": "p", "since_time": 1.0, "why": ""}, ("wait over", "p")),
        ("SourceChanged", {"source": "s", "ok": True, "message": "well"}, ("source well", "well")),
        ("SourceChanged", {"source": "s", "ok": False, "message": "gone"}, ("source fails", "gone")),
        ("NetworkLost", {"hosts": 3, "why": "no route"}, ("network lost", "no route")),
        ("NetworkBack", {"lost_s": 61.0}, ("network back", "after 1:01")),
        ("EventsDropped", {"count": 7}, ("events missing", "7 could not be written")),
        (
            "WorkerEnded",
            {"eval": "e", "worker": 3, "how": "died serving", "why": "SIGSEGV", "displaced": 4, "log": "logs/e-0.log"},
            ("worker died", "e: worker 3 died serving (SIGSEGV), 4 rollouts are played elsewhere; see logs/e-0.log"),
        ),
        (
            "WorkerEnded",
            {"eval": "e", "worker": 4, "how": "not spawned", "why": "no\nmemory", "displaced": 0},
            ("no worker", "e: worker 4 cannot be started (no memory)"),
        ),
    ],
)
def test_moments_are_told_in_words(name, keys, told):
    found = history(began(), event(name, 1, **keys))
    assert moments(found) == [told]
    assert found.spoilt == 0


def test_a_worker_that_was_retired_is_no_moment():
    retired = event("WorkerEnded", 1, eval="e", worker=1, how="retired", why="", displaced=0)
    found = history(began(), retired, event("WorkerReady", 2, eval="e", worker=2, pid=7, loading_s=1.0))
    assert (moments(found), found.spoilt) == ([], 0)


def test_dropped_events_are_added_up_and_a_stop_is_forgotten_by_a_resume():
    dropped = event("EventsDropped", 1, count=7)
    found = history(began(), dropped, dropped, event("RunStopping", 2, why="SIGINT"))
    assert (found.dropped, found.stopped) == (14, "SIGINT")
    assert history(began(), event("RunStopping", 2, why="SIGINT"), began(3)).stopped == ""


def test_an_event_that_is_not_known_is_passed_over_but_was_met():
    found = history(event("Reincarnated", 5, soul=1))
    assert (found.spoilt, found.times.ends) == (0, [T0 + 5])


SPOILT = [
    {"time": 5}, {"time": "yesterday"}, {"time": "1969-12-31T23:59:59Z"}, {"event": None},
    {"attempt": []}, {"attempt": {}}, {"tokens": "12"}, {"tokens": True}, {"tokens": -1}, {"tokens": 1e300},
    {"endpoint_id": 3},
]  # fmt: skip


@pytest.mark.parametrize("change", SPOILT)
def test_a_value_of_the_wrong_type_costs_its_line_and_nothing_else(change):
    found = history({**attempt(1), **change})
    assert (found.lines, found.spoilt, list(found.pools), found.times.begins) == (1, 1, [], [])


@pytest.mark.parametrize(
    "line",
    [
        {**finished(1), "error": "no"}, {**finished(1), "timing": {"queued_s": 1}}, {**limit(1, 1), "new": 1.5},
        {**limit(1, 1), "new": True}, {**limit(1, 1), "new": 10**13}, {**limit(1, 1), "reason": None},
        {**sessions(1, 1), "limit": -1}, {**sessions(1, 1), "budget_tokens": float("nan")},
        {**sessions(1, 1), "endpoint_id": []}, event("SourceChanged", source="s", ok="yes", message="m"),
        {**began(), "kept": "all"},
    ],
)  # fmt: skip
def test_other_wrong_values_are_counted_as_well(line):
    assert history(line).spoilt == 1


def test_times_without_a_zone_are_utc_and_others_are_converted():
    lines = [{"time": time, "event": "New"} for time in ("2030-01-01T12:00:00", "2030-01-01T13:00:00+01:00")]
    assert history(*lines).times.ends == [T0]


def test_names_are_cut():
    found = history(finished(1, "é" * 1000), finished(1, "é" * 2000))
    assert [story.name for story in found.evals] == ["é" * NAME_LONGEST]


def test_only_so_many_names_are_told_apart():
    names = Named(EvalStory, 2)
    stories = [names.of(name) for name in ("a", "b", "c", "d", "a")]
    assert [story.name for story in names] == ["a", "b", OTHERS]
    assert stories[2] is stories[3]
    assert stories[0] is stories[4]


def test_of_too_many_endpoints_those_with_the_fewest_tokens_are_forgotten_and_counted():
    stories = EndpointStories(4)
    for number in range(4):
        stories.of("p", str(number)).tokens = float(number)
    stories.of("p", "new")
    assert [story.url for story in stories] == ["2", "3", "new"]
    assert [story.url for story in stories.of_pool("p")] == ["3", "2", "new"]
    assert stories.forgotten == {"p": 2}


def test_of_too_many_moments_the_first_and_the_last_are_kept_and_the_others_counted():
    found = Moments(2)
    for number in range(7):
        found.add(Noted(float(number), "n", ""))
    assert [noted.time for noted in found.first] == [0, 1]
    assert [noted.time for noted in found.last] == [5, 6]
    assert found.others == 3


def test_a_clock_that_went_back_makes_no_gap_and_thousands_of_parts_are_bounded():
    found = Times()
    found.met(100.0)
    found.began(50.0)
    found.met(50.0)
    assert list(found.gaps()) == []
    for number in range(2 * MOST_PARTS):
        found.began(1000.0 + number)
    assert len(found.begins) == MOST_PARTS


def test_what_a_wrong_clock_tells_is_left_out_of_the_first_view():
    lines = [began(), *(finished(at) for at in range(10))]
    wrong = [{**finished(0), "time": "1970-01-02T00:00:00Z"}, {**finished(0), "time": "9999-12-31T00:00:00Z"}]
    assert history(*lines, *wrong).times.view() == (T0, T0 + 9.25, 2)
    assert Times().view() == (0.0, 1.0, 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
GOOD = [
    began(), joined(0), health(1, "live"), limit(2, 8), attempt(3), finished(4), sessions(5, 2, 3, 1e5),
    of("EndpointDraining", 6, why="w"), of("EndpointChanged", 7, what="draining"), of("EndpointLeft", 8),
    event("Warned", 9, message="m"), event("EventsDropped", 9, count=1),
    event("WorkerEnded", 9, eval="e", worker=1, how="died loading", why="exit code 1", displaced=0, log=""),
]  # fmt: skip


@st.composite
def nearly_good(draw: st.DrawFn) -> dict[str, object]:
    line = json.loads(json.dumps(draw(st.sampled_from(GOOD))))
    if draw(st.booleans()):
        line[draw(st.sampled_from(sorted(line)))] = draw(JSON)
    if draw(st.booleans()):
        line["time"] = draw(st.datetimes()).isoformat() + "Z"
    return line


@given(st.lists(nearly_good() | st.dictionaries(st.sampled_from(["time", "event", "url"]), JSON), max_size=30))
def test_no_lines_make_a_report_fail(lines):
    found = history(*lines)
    made = make_report("x", found, Read(), None)
    assert found.lines == len(lines)
    assert len({plot.key for plot in made.plots}) == len(made.plots)
    json.dumps([plot.figure for plot in made.plots], allow_nan=False).encode()
