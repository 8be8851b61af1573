"""What the plots show, as data."""

from __future__ import annotations

import copy
import json

import pytest

from report_kit import T0, A, B, attempt, began, event, finished, health, history, joined, limit, of, report, sessions
from scavenge.core.report.closing import ROWS_SHOWN, closing_tables, parse_summary
from scavenge.core.report.contents import Read, Report
from scavenge.core.report.drawing import Figure, Plot, View, broken, plain
from scavenge.core.report.endpoint_plots import BANDS_SHOWN, ENDPOINTS_SHOWN, POOLS_SHOWN
from scavenge.core.report.readings import BadReading
from scavenge.core.summary import EndpointSummary, EvalSummary, Summary, closing_table

EVAL = EvalSummary("math", "chat", 9, 1, None, -0.5, 0.12, 0.45, {1: 0.5, 4: 0.75}, 100, 200, 75.0, 2.5, 5, 2)
EMPTY = EvalSummary("none", "chat", 0, 0, 4, None, None, None, None, 0, 0, 0.0, None)
ENDPOINT = EndpointSummary("glm", "http://a/v1", 12, {"lost": 2, "busy": 1}, 300, 61.0, 8, 48, 64)
SUMMARY = Summary((EVAL, EMPTY), (ENDPOINT, EndpointSummary("glm", "http://b/v1", 0, {}, 0, 0.0, 0)), 3, 4)


def plot(made: Report, key: str) -> Plot:
    (found,) = [one for one in made.plots if one.key == key]
    return found


def traces(made: Report, key: str) -> dict[str, Figure]:
    return {trace["name"]: trace for trace in plot(made, key).figure["data"]}


def seconds(trace: Figure) -> list[float]:
    return [x / 1000 - T0 for x in trace["x"]]


def test_a_run_of_which_nothing_is_known_yet_has_no_plots():
    made = report(began(), event("EvalSized", 1, eval="e", rollouts=3))
    assert (made.plots, made.tables, made.moments.rows) == ((), (), ())


def test_a_full_run_has_its_plots_in_order():
    made = report(began(), joined(0), limit(1, 8), sessions(1, 2, 3), attempt(3), finished(4))
    keys = ["rollouts", "in-flight", "tokens", "limits-0", "sessions", "states", "attempts", "durations"]
    assert [one.key for one in made.plots] == keys
    assert all(one.caption.endswith(".") for one in made.plots)


def test_rollouts_are_cumulative_and_errors_have_a_line_where_there_are_any():
    made = report(began(), finished(1), finished(3), finished(3, error={"type": "X"}), finished(4, "f"))
    found = traces(made, "rollouts")
    assert list(found) == ["e: ok", "e: error", "f: ok"]
    assert (seconds(found["e: ok"]), found["e: ok"]["y"]) == ([1, 1.25, 3.25], [0, 1, 2])
    assert found["e: error"]["line"]["dash"] == "dot"


def test_a_stretch_without_a_run_is_a_hole_in_every_line():
    made = report(began(), finished(1), attempt(1), began(1000, 1), finished(1001), attempt(1001))
    for key, trace in (("rollouts", "e: ok"), ("in-flight", "p"), ("tokens", "p")):
        assert traces(made, key)[trace]["y"].count(None) == 1
    assert traces(made, "rollouts")["e: ok"]["y"] == [0, 1, 1, None, 2]
    assert any("gone on with once" in fact for fact in made.facts)


def test_holes_are_made_where_there_is_a_point_before_and_a_value_to_end():
    view = View(0, 100, ((10, 20), (30, 40)))
    assert broken([(5, 1.0), (50, 2.0)], view) == [(5, 1.0), (10, 1.0), (10, None), (50, 2.0)]
    assert broken([(12, 1.0), (50, 2.0)], view) == [(12, 1.0), (12, 1.0), (12, None), (50, 2.0)]
    assert broken([(16, None), (50, 2.0)], view) == [(16, None), (50, 2.0)]
    assert broken([(25, 3.0)], view) == [(25, 3.0)]


def test_limits_are_bold_steps_with_their_reasons_and_the_requests_in_flight_beside_them():
    made = report(began(), limit(1, 8), limit(2, 12, reason="<b>more</b>"), attempt(5), limit(3, 6, B))
    found = traces(made, "limits-0")
    assert list(found) == [A, f"in flight at {A}", B, "sum of all limits (right)", "in flight in all (right)"]
    assert (seconds(found[A]), found[A]["y"]) == ([1, 2, 5.25], [8, 12, 12])
    assert found[A]["customdata"] == ["gain", "&lt;b&gt;more&lt;/b&gt;", "&lt;b&gt;more&lt;/b&gt;"]
    assert found["sum of all limits (right)"]["y"] == [8, 12, 18, 18]
    assert plot(made, "limits-0").title == "Limits"


def test_one_endpoint_alone_has_no_sum_and_its_line_ends_when_it_leaves():
    made = report(began(), limit(1, 8), of("EndpointLeft", 3), attempt(5))
    found = traces(made, "limits-0")
    assert list(found) == [A, f"in flight at {A}"]
    assert found[A]["y"] == [8, None]


def test_the_endpoints_with_the_most_tokens_are_shown_and_the_others_counted():
    urls = [f"http://{number}/v1" for number in range(ENDPOINTS_SHOWN + 3)]
    lines = [limit(1, 8, url) for url in urls]
    made = report(*lines, attempt(5, urls[-1]))
    found = traces(made, "limits-0")
    assert [name for name in found if name in urls] == [urls[-1], *urls[: ENDPOINTS_SHOWN - 1]]
    assert "left out: 3." in plot(made, "limits-0").caption


def test_what_enormous_figures_swallow_never_makes_a_line_negative():
    made = report(attempt(5, seconds=0.0, tokens=10**12), *(attempt(8, seconds=6.0, tokens=7) for _ in range(4)))
    assert min(traces(made, "tokens")["p"]["y"]) == 0.0


def test_each_pool_has_its_plot_of_limits_up_to_a_dozen():
    made = report(*(limit(1, 8, pool=f"p{number}") for number in range(POOLS_SHOWN + 2)))
    found = [one for one in made.plots if one.key.startswith("limits-")]
    assert [one.title for one in found] == [f"Limits of p{number}" for number in range(POOLS_SHOWN)]
    assert found[-1].caption.endswith("Pools that are left out: 2.")


def test_sessions_are_shown_with_their_limit_or_their_budget():
    made = report(sessions(1, 2, 5), sessions(1, 3, None, 1e5, "q"), sessions(2, 0, None, 1e5, "idle"))
    found = traces(made, "sessions")
    assert list(found) == ["p: live", "p: limit", "q: live", "q: budget (right)"]
    assert "yaxis2" in plot(made, "sessions").figure["layout"]
    assert "yaxis2" not in plot(report(sessions(1, 2, 5)), "sessions").figure["layout"]


def test_an_endpoint_is_a_band_of_its_states_and_nothing_where_it_is_gone():
    why = 'it said <a href="x">'
    lines = [joined(0), health(1, "live"), health(2, "ejected", why=why), of("EndpointLeft", 3), joined(8)]
    found = traces(report(*lines, finished(10)), "states")
    assert list(found) == ["live", "probing", "ejected"]
    assert [base / 1000 - T0 for base in found["probing"]["base"]] == [0, 8]
    assert found["probing"]["x"] == [1000, 2250]
    assert {trace["width"] for trace in found.values()} == {0.75}
    assert found["ejected"]["customdata"] == ['1.0s: it said &lt;a href="x"&gt;']


def test_bands_of_several_pools_name_their_pool_and_the_restless_come_in():
    lines = [joined(0, f"http://{number}/v1", "pq"[number % 2]) for number in range(BANDS_SHOWN + 1)]
    made = report(*lines, joined(1, "http://40/v1", "p"))
    labels = plot(made, "states").figure["layout"]["yaxis"]["ticktext"]
    assert (len(labels), labels[-1]) == (BANDS_SHOWN, "q: http://37/v1")
    assert "p: http://40/v1" in labels
    assert "left out: 1." in plot(made, "states").caption


def test_a_state_that_held_for_no_time_is_no_band():
    assert traces(report(joined(0), health(0, "live"), finished(4)), "states").keys() == {"live"}


def test_attempts_that_were_ok_are_shown_only_where_all_were():
    assert list(traces(report(attempt(1), attempt(2)), "attempts")) == ["ok (2)"]
    made = report(attempt(1), attempt(2, outcome="lost"), attempt(3, outcome="new"))
    assert list(traces(made, "attempts")) == ["lost (1)", "other (1)"]
    assert "beside 1 that were" in plot(made, "attempts").caption


def test_durations_are_bars_of_their_parts_and_a_table_of_quantiles():
    made = report(finished(1), finished(1, total=1.0))
    found = traces(made, "durations")
    assert {name: trace["y"] for name, trace in found.items()} == {
        "waiting for slots": [0.5],
        "with the model": [2.0],
        "in the environment": [0.0],
    }
    table = plot(made, "durations").table
    assert table is not None
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert [row[:3] for row in table.rows] == [
        ("e", "waiting for slots", "0.5s"),
        ("e", "with the model", "2.0s"),
        ("e", "in all", "2.0s"),
    ]


def test_names_are_only_text_in_figures():
    name = '<img src=x onerror=alert(1)>&amp;"'
    made = report(began(), limit(1, 8, name, name), attempt(3, name, pool=name), finished(2, name), joined(1, name))
    text = json.dumps([one.figure for one in made.plots])
    assert "<" not in text
    assert "&amp;amp;" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a<b", "a&lt;b"), ("x" * 5 + "y" * 5, "xxx…yyyy"), ("a\n\tb\u2028", "a b"), ("\u202egnp\ud800", "gnp")],
)
def test_a_label_is_one_line_of_text_cut_in_the_middle(text, shown):
    assert plain(text, 8) == shown


def test_equal_events_make_equal_reports():
    lines = [began(), joined(0), limit(1, 8), attempt(3), finished(4), event("Warned", 5, message="m")]
    assert report(*lines) == report(*copy.deepcopy(lines))


def test_facts_tell_of_the_run_and_of_what_is_missing():
    wrong = {**finished(0), "time": "1980-01-01T00:00:00Z"}
    lines = [began(), finished(1), event("RunStopping", 2, why="SIGINT"), event("EventsDropped", 3, count=2), {}, wrong]
    facts = report(*lines, began(5), began(6), read=Read(3, torn=True)).facts
    assert facts[0] == "From 2030-01-01 12:00:00 to 2030-01-01 12:00:06 UTC, from the first event to the last."
    for part in (
        "2 times",
        "wrong clock: 1;",
        "left out: 4.",
        "not whole",
        "missing here: 2.",
    ):
        assert any(part in fact for fact in facts), part
    assert any("stopped early: SIGINT" in fact for fact in report(*lines[:3]).facts)


def test_moments_are_a_table_with_the_number_of_those_left_out():
    made = report(began(), *(event("Warned", at, message=f"m{at}") for at in range(203)))
    rows = made.moments.rows
    assert (len(rows), rows[0], rows[100]) == (201, ("2030-01-01 12:00:00", "warning", "m0"), ("", "", "3 more"))
    assert rows[101][2] == "m103"


# --- the closing tables


def test_a_summary_that_was_written_gives_the_tables_that_the_run_showed():
    written = json.loads(json.dumps({**SUMMARY.as_json(), "new": 1}))
    assert parse_summary(written) == SUMMARY
    assert report(began(), summary=written).tables == closing_table(SUMMARY)


def test_a_summary_of_an_older_version_has_no_limits_and_no_workers():
    written = SUMMARY.as_json()
    for entry in written["evals"]:
        del entry["workers_started"], entry["workers_died"]
    for entry in written["endpoints"]:
        del entry["limit"], entry["peak_limit"]
    assert parse_summary(written).endpoints[0].limit is None
    assert parse_summary(written).evals[0].workers_died == 0


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("evals", "ok", "9"), ("evals", "wall_s", None), ("evals", "mean_reward", "high"), ("evals", "owed", 1.5),
        ("evals", "mean_reward", True), ("evals", "pass_at_k", [1]), ("evals", "pass_at_k", {"x": 1.0}),
        ("evals", "pass_at_k", {"1": None}), ("evals", "workers_died", "2"),
        ("endpoints", "failures", {"lost": "2"}), ("endpoints", "url", None),
        ("", "retries", None), ("", "evals", {}), ("", "endpoints", [3]),
    ],
)  # fmt: skip
def test_a_summary_with_a_wrong_value_is_no_summary_and_the_report_says_which_key(part, key, value):
    written = json.loads(json.dumps(SUMMARY.as_json()))
    (written[part][0] if part else written)[key] = value
    with pytest.raises(BadReading):
        parse_summary(written)
    made = report(began(), summary=written)
    assert made.tables == ()
    assert any("summary.json cannot be used" in fact for fact in made.facts)


def test_a_report_without_a_summary_says_so():
    assert any("no summary.json" in fact for fact in report(began()).facts)


def test_of_very_many_endpoints_those_with_the_most_requests_have_a_row():
    endpoints = tuple(EndpointSummary("p", f"http://{n}/v1", n, {}, 0, 0.0, 0) for n in range(ROWS_SHOWN + 50))
    *_, table = closing_tables(json.loads(json.dumps(Summary((), endpoints, 0, 0).as_json())))
    assert (len(table.rows), table.rows[0][1]) == (ROWS_SHOWN, "http://249/v1")
    assert table.title.endswith("the 200 with the most requests, of 250")


def test_the_history_of_the_kit_is_whole():
    assert history(began(), joined(0), limit(1, 8), sessions(1, 2, 3), attempt(3), finished(4)).spoilt == 0
