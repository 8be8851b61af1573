"""The pages on the gateway say what the code does: routes, headers, errors, states, metrics, bounds."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

import attrs
import pytest
from pages import ROOT, blocks, keyed, read, section, table_rows, words
from prometheus_client.parser import text_string_to_metric_families

from scavenge.config import parse_run
from scavenge.config.schema import GatewaySettings
from scavenge.core import gateway_view
from scavenge.core.call_lines import NOT_OURS, TELL_EVERY_S
from scavenge.core.doorwords import DETAIL, DETAIL_FIELD, error_body
from scavenge.core.gateway_totals import POOLS_MAX, REST, PoolTotals
from scavenge.core.gateway_view import health_of, status_document
from scavenge.edge.gateway.chunks import WAITING
from scavenge.edge.gateway.limits import GatewayLimits
from scavenge.edge.gateway.line import ASK_EVERY_S, ASK_TIMES, SILENT_S
from scavenge.edge.gateway.routes import SESSION_CHARACTERS, SESSION_FIELD, route_of
from scavenge.edge.gateway.wire import Head, Refusal
from scavenge.edge.metrics import Metrics
from scavenge.errors import (
    NoEndpointsError,
    PoisonRequest,
    Stopping,
    UnknownModel,
    UnknownSession,
    UsageError,
)
from scavenge.events import CallEnded
from scavenge.signals import GateView
from scavenge.status import EndpointStatus, FleetStatus, GatewayStatus, PoolStatus, SessionsStatus, SourceStatus
from scavenge.types import Busy, EndpointId, Failed, Lost, Misrouted, Rejected, RequestFailed, TimedOut, Url

PAGE = read("reference/gateway.md")
TEXT = " ".join(PAGE.split())
HOW_TO = read("how-to/gateway.md")
HOW = " ".join(HOW_TO.split())
WHY = " ".join(read("explanation/gateway.md").split())
LIMITS = GatewayLimits()
OPEN = GatewayStatus(0, 0, 0)
PAGES = ("/health", "/metrics", "/status")


def endpoint(state: str, in_flight: int = 0) -> EndpointStatus:
    gate = GateView(limit=8, reason="steady", goodput=1.0)
    return EndpointStatus(Url(f"http://{state}"), state, "", in_flight, 8, tokens_per_s=1.0, gate=gate)


def pool(name: str, *endpoints: EndpointStatus, waiting: int = 0) -> PoolStatus:
    return PoolStatus(EndpointId(name), endpoints, waiting, SessionsStatus("budget", 0, 0))


# --- routes


@pytest.mark.parametrize("cell", [row[0] for row in table_rows(section(PAGE, "Routes"))[1:]])
def test_every_route_is_one(cell):
    for told in words(cell):
        method, _, path = told.rpartition(" ")
        if method:
            path = path.replace("NAME", "m").replace("ID", "s")
            assert route_of(Head(method, path, {}), PAGES) is not None


def test_every_route_that_there_is_is_told():
    with pytest.raises(Refusal) as caught:
        route_of(Head("GET", "/nowhere", {}), PAGES)
    there_is = re.findall(r"(?:GET|POST|DELETE) /[\w/]+", str(caught.value))
    assert len(there_is) == 7
    told = words(" ".join(row[0] for row in table_rows(section(PAGE, "Routes"))))
    assert set(there_is) <= set(told)


def test_the_headers_are_those_of_the_code():
    told = keyed(section(PAGE, "Requests and replies"))
    assert told.keys() == {"Authorization", "X-Scavenge-Session", DETAIL_FIELD, "Retry-After", "x-should-retry"}
    assert SESSION_FIELD.decode() == "x-scavenge-session"
    assert told[DETAIL_FIELD][0].startswith(f"`{DETAIL}`")
    assert f"1 to {SESSION_CHARACTERS} printable characters" in TEXT


# --- errors


def refusals() -> Iterator[tuple[str, int, bool]]:
    """Each code with which the server refuses a request, its status, and whether it has more headers, by its source."""
    for path in (ROOT / "src" / "scavenge" / "edge" / "gateway").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal":
                status, code, _, *headers = node.args
                assert isinstance(code, ast.Constant)
                if isinstance(status, ast.Constant):
                    yield code.value, status.value, "Retry-After" in "".join(map(ast.dump, headers))


def outcomes() -> Iterator[tuple[str, str]]:
    ends = [Lost(""), Failed(""), Misrouted(""), TimedOut(""), Busy("")]
    errors = [NoEndpointsError, PoisonRequest, Stopping, UnknownModel, UnknownSession, UsageError, RuntimeError]
    for exc in [*(RequestFailed(end, ()) for end in ends), *(error("") for error in errors)]:
        status, body = error_body(exc)
        yield json.loads(body)["error"]["code"], str(status)
    for end in (Rejected("", 418), Rejected("", 418, context_length=True)):
        status, body = error_body(RequestFailed(end, ()))
        assert status == 418
        yield json.loads(body)["error"]["code"], "the server's"


def test_every_error_is_there_with_its_status():
    answers, refused = section(PAGE, "Errors").split("Then, what is refused")
    told, early = keyed(answers), keyed(refused)
    assert {code: cells[0] for code, cells in told.items()} == dict(outcomes())
    found = [(code, str(status)) for code, status, _ in refusals()]
    assert {code: cells[0] for code, cells in early.items()} == dict(one for one in found if one[0] not in told)
    for code, status in found:
        assert code in early or status in " ".join(told[code]), code


def test_the_errors_that_have_a_retry_after_are_told():
    told = {code for code, cells in keyed(section(PAGE, "Errors")).items() if "With `Retry-After`" in cells[1]}
    assert told == {"no_endpoints"} | {code for code, _, put_off in refusals() if put_off}


# --- health and status


def test_every_state_is_told_and_in_the_order_of_their_statuses():
    states = [gateway_view.SERVING, gateway_view.DEGRADED, gateway_view.WAITING, gateway_view.STOPPING]
    assert [*keyed(section(PAGE, "Health"))] == states
    assert all(f"`{state}`" in section(HOW_TO, "Watch it") for state in states)


def test_the_example_of_health_is_what_is_answered():
    (text,) = blocks(PAGE, "json")
    fleet = FleetStatus(
        (
            pool("my-model", endpoint("live", 21), endpoint("probation", 20), endpoint("ejected")),
            pool("other", endpoint("probing"), endpoint("ejected"), waiting=7),
        )
    )
    assert health_of(fleet, OPEN) == (200, json.loads(text))


def test_all_that_the_status_has_of_the_gateway_is_told():
    told = words(section(PAGE, "Status"))
    fields = [field.name for field in attrs.fields(GatewayStatus)]
    assert [word for word in told if word in fields] == fields
    assert {"state", "gateway"} <= set(told) & status_document(FleetStatus(()), OPEN).keys()


def test_only_health_needs_no_token():
    assert LIMITS.open_pages == {"/health"}
    assert "`GET /health` needs no token" in TEXT


# --- metrics


def families() -> dict[str, tuple[str, set[str]]]:
    """Every metric of a page that has all, with its type and its labels."""
    fleet = FleetStatus((pool("a", endpoint("live")),), (SourceStatus("file", 1, 1.0),))
    metrics = Metrics(lambda: (fleet, OPEN), str)
    metrics(CallEnded(EndpointId("a"), "ok", True, 1.0, 1, 1.0))
    found = {}
    for family in text_string_to_metric_families(metrics.page().body.decode()):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[family.name + ("_total" if family.type == "counter" else "")] = (family.type, labels)
    return found


def test_every_metric_is_there_with_its_type_and_labels():
    told = {name: (cells[0], set(words(cells[1]))) for name, cells in keyed(section(PAGE, "Metrics")).items()}
    actual = families()
    assert told == {name: found for name, found in actual.items() if name.startswith("scavenge_")}
    assert {name.split("_")[0] for name in actual.keys() - told.keys()} == {"process"}


def test_the_values_of_labels_are_told():
    cells = {name: words(cells[-1]) for name, cells in keyed(section(PAGE, "Metrics")).items()}
    assert set(cells["scavenge_endpoint_changes_total"]) == set(PoolTotals().changes)
    assert set(cells["scavenge_tokens_total"]) == set(PoolTotals().tokens)


def test_the_expressions_of_the_how_to_name_metrics_labels_and_outcomes_that_there_are():
    rows = table_rows(section(HOW_TO, "Watch it").replace(r"\|", "!"))[1:]
    actual = families()
    assert len(rows) == 4
    for _, cell in rows:
        for name in re.findall(r"scavenge_\w+", cell):
            assert name.removesuffix("_bucket") in actual, name
    (outcomes_left_out,) = re.findall(r'outcome!~"([^"]+)"', " ".join(row[1] for row in rows))
    assert set(outcomes_left_out.split("!")) == {"ok", *NOT_OURS}


# --- bounds and numbers


def test_the_limits_are_those_of_the_code():
    told = {row[0]: row[1] for row in table_rows(section(PAGE, "Limits"))[1:]}
    assert told["the bodies of all requests under way"] == f"{LIMITS.max_held_bytes // 2**30} GiB"
    assert told["a request's head"] == f"{LIMITS.max_head_bytes // 1024} KiB"
    assert told["from the first byte of a request to its last"] == f"{LIMITS.request_s:g} s"
    assert told["between two requests on a connection"].startswith(f"{LIMITS.idle_s:g} s")
    assert told["a client that takes nothing of its answer"].startswith(f"{LIMITS.write_s:g} s")
    late = told["the rest of a request that was coming in when the gateway stops"]
    assert late.startswith(f"{LIMITS.late_s:g} s")
    assert told["connections without a whole request"].startswith(f"{LIMITS.max_waiting:,}".replace(",", " "))
    assert LIMITS.max_body_bytes == GatewaySettings().max_body
    assert f"more than {LIMITS.max_head_bytes // 1024} KiB" in TEXT
    assert f"did not come within {LIMITS.request_s:g} seconds" in TEXT
    assert f"more than {LIMITS.max_held_bytes // 2**30} GiB" in TEXT


def test_the_numbers_in_sentences_are_those_of_the_code():
    assert f"`{WAITING.decode().strip()}` shows every {LIMITS.comment_s:g} seconds" in TEXT
    assert f"have `grace` seconds ({GatewaySettings().grace:g})" in HOW
    assert (SILENT_S + ASK_TIMES * ASK_EVERY_S, LIMITS.write_s, TELL_EVERY_S) == (120, 60, 60)
    assert "probes within two minutes" in WHY
    assert "After a minute in which it has taken nothing" in WHY
    assert "a warning, once a minute a pool" in HOW
    assert f"Of more than {POOLS_MAX} pools, the later ones have their totals together, as `{REST}`" in TEXT
    settings = GatewaySettings()
    assert f"`http://{settings.host}:{settings.port}/v1`" in HOW


def test_the_files_of_the_how_to_load(tmp_path):
    (text,) = blocks(HOW_TO, "toml")
    gateway = parse_run(text.encode(), tmp_path, "pool.toml", need_evals=False).gateway
    assert gateway == GatewaySettings(host="0.0.0.0", token_var="GATEWAY_TOKEN")
    (scraping,) = blocks(HOW_TO, "yaml")
    assert f"127.0.0.1:{GatewaySettings().port}" in scraping


def test_the_python_of_the_how_to_makes_a_client(monkeypatch):
    openai = pytest.importorskip("openai")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8400/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    (code,) = blocks(HOW_TO, "python")
    names: dict[str, object] = {}
    exec(compile(code, "how-to/gateway.md", "exec"), names)
    client = names["client"]
    assert isinstance(client, openai.OpenAI)
    assert str(client.base_url) == "http://127.0.0.1:8400/v1/"
