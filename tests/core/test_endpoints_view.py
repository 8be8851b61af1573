"""What is shown of a fleet's status."""

from __future__ import annotations

from random import Random

import attrs
import orjson
import pytest

from scavenge.core.endpoints_view import (
    GATE_CHARACTERS,
    HEAD,
    LESS_NEEDED,
    SOURCE_CHARACTERS,
    WHY_AT_LEAST,
    as_json,
    can_serve,
    endpoint_table,
    filled,
    is_settled,
    narrowed,
    news,
    notes,
    redacted,
)
from scavenge.core.health import EndpointHealth
from scavenge.core.health_settings import HealthSettings
from scavenge.core.progress_view import WHY_CHARACTERS
from scavenge.core.redaction import Redactor
from scavenge.core.summary import Table
from scavenge.signals import GateView
from scavenge.status import EndpointStatus, FleetStatus, PoolStatus, SessionsStatus, SourceStatus
from scavenge.types import EndpointId, Url


def endpoint(state: str = "live", name: str = "a", why: str = "answered its probe", **more: object) -> EndpointStatus:
    return EndpointStatus(Url(f"http://{name}/v1"), state, why, 0, 8, **more)  # type: ignore[arg-type]


def pool(*endpoints: EndpointStatus, name: str = "glm", waiting: int = 0) -> PoolStatus:
    return PoolStatus(EndpointId(name), endpoints, waiting)


def fleet(*pools: PoolStatus, **more: object) -> FleetStatus:
    return FleetStatus(pools, **more)  # type: ignore[arg-type]


def cells(status: FleetStatus, row: int = 0) -> dict[str, str]:
    return dict(zip(HEAD, endpoint_table(status)[0].rows[row], strict=True))


# --- the verdict


@pytest.mark.parametrize(
    ("states", "enough"),
    [
        (["live"], True),
        (["probation"], True),
        (["ejected", "live"], True),
        (["probing"], False),
        (["draining", "paused", "ejected", "misconfigured"], False),
        ([], False),
    ],
)
def test_a_pool_can_serve_with_one_endpoint_that_takes_work(states, enough):
    assert can_serve(fleet(pool(*map(endpoint, states)))) is enough


def test_one_pool_that_cannot_serve_is_one_too_many():
    served, unserved = pool(endpoint()), pool(endpoint("ejected"), name="other")
    assert can_serve(fleet(served))
    assert not can_serve(fleet(served, unserved))
    assert not can_serve(fleet(unserved, served))


def test_no_pool_serves_nobody():
    assert not can_serve(fleet())


# --- whether everything was heard


def test_an_endpoint_that_was_just_listed_is_not_settled_and_one_whose_probe_ended_is():
    health = EndpointHealth.listed(HealthSettings(), Random(1), 0.0)
    fresh = endpoint(health.state.value, why=health.why)
    assert not is_settled(fleet(pool(endpoint(), fresh)))
    assert is_settled(fleet(pool(endpoint(), attrs.evolve(fresh, why="connection refused"))))
    assert is_settled(fleet(pool(endpoint("draining", why=health.why))))


@pytest.mark.parametrize(
    ("age_s", "trouble", "settled"), [(None, None, False), (3.0, None, True), (None, "no such file", True)]
)
def test_a_source_is_settled_when_it_has_said_something(age_s, trouble, settled):
    sources = (SourceStatus("endpoints.toml", 0, age_s, trouble),)
    assert is_settled(fleet(pool(endpoint()), sources=sources)) is settled


# --- the table


def test_a_row_tells_the_state_with_its_age_and_the_figures():
    busy = EndpointStatus(
        Url("http://a/v1"), "live", "answered its probe", 3, 8, None, "hosts.toml", 252.0, 3.2, 41.26, 17, 2,
        gate=GateView(8, "gain", 1.6, 812.4),
    )  # fmt: skip
    assert cells(fleet(pool(busy))) == {
        "pool": "glm",
        "endpoint": "http://a/v1",
        "state": "live 4:12",
        "in flight": "3/8",
        "gate": "gain",
        "queue": "2",
        "goodput": "812",
        "tokens/s": "41.3",
        "requests": "17",
        "failures": "2",
        "heard": "0:03",
        "source": "hosts.toml",
        "why": "",
    }


def test_what_is_not_known_is_a_dash():
    row = cells(fleet(pool(endpoint())))
    assert (row["tokens/s"], row["heard"], row["source"]) == ("–", "–", "–")


def test_why_is_told_of_an_endpoint_that_is_not_live_on_one_line_and_cut():
    row = cells(fleet(pool(endpoint("ejected", why="reset\n  by peer " + "x" * 1000))))
    assert row["why"].startswith("reset by peer xxx")
    assert len(row["why"]) == WHY_CHARACTERS


def test_of_a_long_source_the_end_is_shown():
    row = cells(fleet(pool(endpoint(source="/somewhere/far/away/from/here/endpoints.toml"))))
    assert row["source"].startswith("…")
    assert row["source"].endswith("/endpoints.toml")
    assert len(row["source"]) == SOURCE_CHARACTERS
    assert cells(fleet(pool(endpoint(source="x" * SOURCE_CHARACTERS))))["source"] == "x" * SOURCE_CHARACTERS


def test_endpoints_stand_in_the_order_of_their_pools_when_there_is_room():
    status = fleet(pool(endpoint(), endpoint("ejected", "b")), pool(endpoint(name="c"), name="other"))
    for most in (None, 3):
        table, more = endpoint_table(status, most)
        assert [(row[0], row[1]) for row in table.rows] == [
            ("glm", "http://a/v1"),
            ("glm", "http://b/v1"),
            ("other", "http://c/v1"),
        ]
        assert more == ""


def test_where_the_room_is_short_those_come_first_that_take_no_work_and_the_rest_is_counted():
    names = ["a", "b", "c", "d"]
    status = fleet(pool(*(endpoint("ejected" if name == "c" else "live", name) for name in names)))
    table, more = endpoint_table(status, 2)
    assert [row[1] for row in table.rows] == ["http://c/v1", "http://a/v1"]
    assert more == "… 2 more, of which 2 take work"


def test_a_narrow_terminal_loses_columns_until_there_is_room_for_the_reasons():
    table, _ = endpoint_table(fleet(pool(endpoint("ejected", why="connection refused", source="a.toml"))))
    assert narrowed(table, 1000) == table
    heads = [narrowed(table, width).head for width in range(300)]
    assert heads == sorted(heads, key=len)
    assert tuple(name for name in HEAD if name != "goodput") in heads
    assert tuple(name for name in HEAD if name not in ("goodput", "queue", "gate", "source")) in heads
    assert narrowed(table, 0).head == ("endpoint", "state", "why")
    assert narrowed(table, 0).rows == (("http://a/v1", "ejected 0:00", "connection refused"),)


@pytest.mark.parametrize("why", ["answered its probe", "refused", "x" * 200])
@pytest.mark.parametrize("source", ["", "a.toml"])
def test_a_column_is_lost_only_where_it_and_what_is_needed_more_do_not_fit(why, source):
    status = fleet(pool(endpoint(why=why), endpoint("probing", "b", why=why, source=source)))
    table, _ = endpoint_table(status)
    for shown in (table, filled(table), filled(endpoint_table(fleet(pool(endpoint(source=source))))[0])):
        for width in range(200):
            fitted = narrowed(shown, width)
            assert needed(fitted) <= width or fitted.head == narrowed(shown, 0).head
            dropped = [name for name in LESS_NEEDED if name in shown.head and name not in fitted.head]
            assert not dropped or needed(fitted) + 2 + column_width(shown, dropped[-1]) > width


def needed(table: Table) -> int:
    """How long the longest line of a table is when reasons are cut."""
    widths = [column_width(table, name) for name in table.head]
    if table.head[-1] == "why":
        widths[-1] = min(widths[-1], WHY_AT_LEAST)
    return sum(widths) + 2 * (len(widths) - 1)


def column_width(table: Table, name: str) -> int:
    column = table.head.index(name)
    return max(len(row[column]) for row in (table.head, *table.rows))


def test_where_no_endpoint_has_a_reason_a_narrow_terminal_loses_columns_all_the_same():
    table, _ = endpoint_table(fleet(pool(endpoint(source="endpoints.toml"))))
    assert LESS_NEEDED[0] in narrowed(table, needed(table)).head
    assert LESS_NEEDED[0] not in narrowed(table, needed(table) - 1).head


def test_a_column_that_tells_nothing_in_any_row_is_left_out():
    table, _ = endpoint_table(fleet(pool(endpoint(), endpoint(name="b"))))
    assert filled(table).head == ("pool", "endpoint", "state")
    assert filled(table).rows[0] == ("glm", "http://a/v1", "live 0:00")


@pytest.mark.parametrize(
    ("column", "more"),
    [
        ("tokens/s", {"tokens_per_s": 0.0}),
        ("requests", {"requests": 10}),
        ("failures", {"failures": 1}),
        ("heard", {"heard_s": 0.0}),
        ("source", {"source": "0"}),
        ("why", {"state": "ejected", "why": "0"}),
    ],
)
def test_one_row_that_tells_something_keeps_its_column(column, more):
    status = fleet(pool(endpoint(), attrs.evolve(endpoint(name="b"), **more)))
    assert filled(endpoint_table(status)[0]).head == ("pool", "endpoint", "state", column)


def test_the_limit_is_shown_beside_requests_in_flight_only():
    status = fleet(pool(endpoint(), attrs.evolve(endpoint(name="b"), in_flight=10, limit=10)))
    shown = filled(endpoint_table(status)[0])
    assert shown.head == ("pool", "endpoint", "state", "in flight")
    assert [row[-1] for row in shown.rows] == ["0/8", "10/10"]


def test_a_pool_may_be_called_as_if_it_were_nothing():
    for name in ("0", "–", "0/1"):
        assert filled(endpoint_table(fleet(pool(endpoint(), name=name)))[0]).rows[0][0] == name


# --- gates


def gated(gate: GateView | None, **more: object) -> dict[str, str]:
    return cells(fleet(pool(attrs.evolve(endpoint(), gate=gate, **more))))


def test_the_gate_s_own_limit_is_told_where_something_else_binds():
    assert gated(GateView(8, "gain"), requests=1)["gate"] == "gain"
    assert gated(GateView(48, "gain"), requests=1)["gate"] == "gain 48"
    assert gated(GateView(48), requests=1)["gate"] == "48"
    assert gated(GateView(8), requests=1)["gate"] == "–"


def test_a_gate_that_has_seen_no_request_tells_nothing():
    seen = GateView(48, "start", 0.0, 0.0)
    nothing = {"gate": "–", "queue": "–", "goodput": "–"}
    assert nothing.items() <= gated(seen).items()
    assert nothing.items() <= gated(None, requests=1).items()
    assert gated(seen, in_flight=1)["gate"] == gated(seen, requests=1)["gate"] == "start 48"


def test_what_a_gate_does_not_know_is_a_dash():
    row = gated(GateView(8, "ramp"), in_flight=1)
    assert (row["gate"], row["queue"], row["goodput"]) == ("ramp", "–", "–")


def test_the_reason_of_a_gate_is_one_short_line():
    row = gated(GateView(8, "a reason\nof a plugin " + "x" * 100), requests=1)
    assert row["gate"].startswith("a reason of")
    assert len(row["gate"]) == GATE_CHARACTERS


def test_the_gates_columns_stay_where_one_row_has_something_for_them():
    with_gate = attrs.evolve(endpoint(name="b"), in_flight=8, gate=GateView(8, "gain", 2.0))
    head = filled(endpoint_table(fleet(pool(endpoint(), with_gate)))[0]).head
    assert head == ("pool", "endpoint", "state", "in flight", "gate", "queue")


# --- sessions


@pytest.mark.parametrize(
    ("sessions", "line"),
    [
        (SessionsStatus("off", 3, 0), "sessions of glm: 3 live (off)"),
        (
            SessionsStatus("budget", 12, 5, 2, None, 81_250.4, 120_000.0, "hits fell"),
            "sessions of glm: 12 live, contexts 81250 of 120000 tokens, waiting: 5, paused: 2 (budget: hits fell)",
        ),
        (SessionsStatus("fixed", 7, 1, limit=8), "sessions of glm: 7 of at most 8 live, waiting: 1 (fixed)"),
        (SessionsStatus("odd", 0, 0, reason="two\nlines"), "sessions of glm: 0 live (odd: two lines)"),
    ],
)
def test_the_sessions_of_a_pool_have_a_line_below_it(sessions, line):
    first = attrs.evolve(pool(endpoint()), sessions=sessions)
    assert notes(fleet(first, pool(endpoint(), name="other"))) == [
        "pool glm: 1 of 1 take work",
        line,
        "pool other: 1 of 1 take work",
    ]


# --- the lines below it


def test_each_pool_says_how_many_take_work_and_wait():
    pools = pool(endpoint(), endpoint("ejected", "b"), waiting=7), pool(endpoint(), name="idle"), pool(name="other")
    assert notes(fleet(*pools, sources=(SourceStatus("a.toml", 3, 1.0),)))[:3] == [
        "pool glm: 1 of 2 take work, waiting: 7",
        "pool idle: 1 of 1 take work",
        "pool other: no endpoint has this id",
    ]


@pytest.mark.parametrize("listed", [(), (0,), (0, 0)])
def test_a_pool_without_an_endpoint_does_not_speak_of_ids_where_nothing_is_listed_at_all(listed):
    sources = tuple(SourceStatus("a.toml", count, None) for count in listed)
    assert notes(fleet(pool(waiting=2), sources=sources))[0] == "pool glm: no endpoint is listed, waiting: 2"
    some = SourceStatus("b.toml", 1, 1.0)
    assert notes(fleet(pool(), sources=(*sources, some)))[0] == "pool glm: no endpoint has this id"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (SourceStatus("a.toml", 3, 4.9), "source a.toml: 3 listed 0:04 ago"),
        (SourceStatus("a.toml", 0, None), "source a.toml: no listing yet"),
        (SourceStatus("a.toml", 3, 65.0, "a.toml: no\nfile"), "source a.toml: 3 listed 1:05 ago; now: no file"),
        (SourceStatus("hosts", 3, 4.0, None, 2), "source hosts: 3 listed 0:04 ago; restarts: 2"),
    ],
)  # fmt: skip
def test_each_source_says_how_old_its_listing_is_and_its_trouble(source, line):
    assert notes(fleet(sources=(source,))) == [line]


def test_a_network_that_is_down_is_told_first():
    first, *others = notes(fleet(pool(endpoint()), network_down_s=12.0))
    assert "no network for 0:12" in first
    assert len(others) == 1


# --- secrets


def test_no_text_of_a_status_keeps_a_secret():
    redact = Redactor()
    redact.hide(["opal-zebra-17"])
    said = "you sent opal-zebra-17"
    ill = endpoint("ejected", why=said, source=said, gate=GateView(8, said))
    status = fleet(
        attrs.evolve(pool(ill, name=said), sessions=SessionsStatus(said, 1, 0, reason=said)),
        sources=(SourceStatus(said, 1, 0.5, said),),
    )
    clean = redacted(status, redact)
    assert "zebra" not in repr(clean)
    assert clean.pools[0].endpoints[0].limit == 8
    assert clean.sources[0].listing_age_s == 0.5


def test_a_secret_at_the_edge_of_what_is_cut_leaves_no_half_of_it():
    redact = Redactor()
    redact.hide(["opal-zebra-17"])
    status = fleet(pool(endpoint("ejected", why="x" * (WHY_CHARACTERS - 6) + "opal-zebra-17")))
    assert "opal" not in cells(redacted(status, redact))["why"]


# --- news


@pytest.mark.parametrize(
    "change",
    [
        {"state_s": 9.0},
        {"heard_s": 9.0},
        {"tokens_per_s": 9.0},
        {"probe_s": 9.0},
        {"requests": 1},
        {"failures": 1},
        {"limit": 9},
        {"in_flight": 1},
        {"gate": GateView(9, "flat", 2.0, 800.0)},
    ],
    ids=str,
)
def test_figures_are_no_news(change):
    assert news(fleet(pool(endpoint()))) == news(fleet(pool(attrs.evolve(endpoint(), **change), waiting=3)))


def test_what_becomes_of_sessions_is_no_news():
    with_sessions = attrs.evolve(pool(endpoint()), sessions=SessionsStatus("budget", 3, 1, reason="hits"))
    assert news(fleet(pool(endpoint()))) == news(fleet(with_sessions))


@pytest.mark.parametrize(
    "change",
    [{"state": "ejected"}, {"why": "other"}, {"max_concurrent": 9}, {"source": "b"}],
    ids=str,
)
def test_what_happened_to_an_endpoint_is_news(change):
    assert news(fleet(pool(endpoint()))) != news(fleet(pool(attrs.evolve(endpoint(), **change))))


def test_a_reason_in_which_only_a_number_differs_is_no_news():
    ages = [
        news(fleet(pool(endpoint(why=f"silent for {n} s")), sources=(SourceStatus("a", 1, 1.0, f"line {n}"),)))
        for n in (1, 22)
    ]
    assert ages[0] == ages[1]


def test_an_older_listing_is_no_news_and_the_first_one_is():
    def of(age_s: float | None, trouble: str | None = None) -> FleetStatus:
        return news(fleet(sources=(SourceStatus("a", 1, age_s, trouble),)))

    assert of(1.0) == of(2.0)
    assert of(None) != of(1.0)
    assert of(1.0) != of(1.0, "gone")


def test_a_network_that_goes_is_news_and_that_it_stays_away_is_not():
    down = [news(fleet(network_down_s=age_s)) for age_s in (None, 0.0, 1.0)]
    assert down[0] != down[1] == down[2]


# --- JSON


def test_json_has_the_fields_by_their_names_with_rounded_ages():
    status = fleet(pool(endpoint(state_s=1.23456, heard_s=0.0004)), sources=(SourceStatus("a", 1, 2.00049),))
    document = orjson.loads(orjson.dumps(as_json(status)))
    assert document.keys() == {field.name for field in attrs.fields(FleetStatus)}
    (listed,) = document["pools"]
    assert listed.keys() == {field.name for field in attrs.fields(PoolStatus)}
    (one,) = listed["endpoints"]
    assert one.keys() == {field.name for field in attrs.fields(EndpointStatus)}
    assert (one["state_s"], one["heard_s"], one["limit"], one["probe_s"]) == (1.235, 0.0, 8, None)
    assert document["sources"][0]["listing_age_s"] == 2.0


def test_json_has_what_the_gates_say():
    gated = endpoint(gate=GateView(8, "gain", 0.12345, 812.5, elasticity=0.3, half_load=44.0, settled=True))
    status = fleet(attrs.evolve(pool(gated), sessions=SessionsStatus("budget", 3, 1, budget_tokens=60_000.0)))
    (listed,) = orjson.loads(orjson.dumps(as_json(status)))["pools"]
    assert listed["endpoints"][0]["gate"] == {
        "limit": 8, "reason": "gain", "queue": 0.123, "goodput": 812.5, "elasticity": 0.3, "half_load": 44.0,
        "settled": True,
    }  # fmt: skip
    assert listed["sessions"] == {
        "policy": "budget", "live": 3, "waiting": 1, "paused": 0, "limit": None, "context_tokens": 0.0,
        "budget_tokens": 60_000.0, "reason": "",
    }  # fmt: skip
