"""The page for Prometheus, read by the parser of its client library, and by its own tool where that is installed."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

import attrs
import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from scavenge.core.redaction import HIDDEN, Redactor
from scavenge.edge.metrics import STATES, Metrics
from scavenge.events import AttemptEnded, CallEnded, EndpointJoined, LeasesRevoked, RolloutStarted
from scavenge.signals import GateView
from scavenge.status import EndpointStatus, FleetStatus, GatewayStatus, PoolStatus, SessionsStatus, SourceStatus
from scavenge.types import Attempt, EndpointId, Url, Usage

GLM, URL = EndpointId("glm"), Url("http://10.0.0.7:8000/v1")
GATEWAY = GatewayStatus(connections=3, calls=2, sessions=1)


def endpoint(url: str = URL, state: str = "live", **more: object) -> EndpointStatus:
    return EndpointStatus(Url(url), state, "answered", 3, 8, **more)  # type: ignore[arg-type]


def fleet(*endpoints: EndpointStatus, name: str = GLM, **more: object) -> FleetStatus:
    sources = (SourceStatus("file pool.toml", 2, 7.5, None), SourceStatus("http", 0, None, "refused"))
    return FleetStatus((PoolStatus(EndpointId(name), endpoints, 4, **more),), sources)  # type: ignore[arg-type]


@attrs.define
class Shown:
    """A page with its metrics, and what stands behind it, which a test may change."""

    fleet: FleetStatus = attrs.field(factory=lambda: fleet(endpoint()))
    gateway: GatewayStatus = GATEWAY
    redact: Redactor = attrs.field(factory=Redactor)
    metrics: Metrics = attrs.field(
        default=attrs.Factory(lambda self: Metrics(lambda: (self.fleet, self.gateway), self.redact), takes_self=True)
    )

    def text(self) -> str:
        return self.metrics.page().body.decode()

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(self.text()):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in found, f"twice: {key}"
                found[key] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float:
        return self.samples()[f"scavenge_{name}", frozenset(labels.items())]

    def labels(self, name: str) -> list[Mapping[str, str]]:
        return [dict(labels) for found, labels in self.samples() if found == f"scavenge_{name}"]


def call(outcome: str = "ok", pool: str = GLM, **more: object) -> CallEnded:
    return CallEnded(EndpointId(pool), outcome, True, 12.0, 2, 0.4, Usage(100, 7, 64), **more)  # type: ignore[arg-type]


def test_the_page_says_what_it_is():
    page = Shown().metrics.page()
    assert (page.status, page.content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")


def test_calls_are_there_with_their_outcomes_times_and_tokens():
    shown = Shown()
    for event in (call(), call("lost"), AttemptEnded(GLM, Attempt(URL, "ok", 0.0, 1.0), 7), RolloutStarted("e")):
        shown.metrics(event)
    assert shown.value("calls_total", pool="glm", outcome="ok", streamed="true") == 1
    assert shown.value("calls_total", pool="glm", outcome="ok", streamed="false") == 0
    assert shown.value("calls_total", pool="glm", outcome="lost", streamed="true") == 1
    assert shown.value("call_duration_seconds_sum", pool="glm", streamed="true") == 12
    assert shown.value("call_duration_seconds_bucket", pool="glm", streamed="true", le="10.0") == 0
    assert shown.value("call_duration_seconds_bucket", pool="glm", streamed="true", le="20.0") == 1
    assert shown.value("call_duration_seconds_bucket", pool="glm", streamed="true", le="+Inf") == 1
    assert shown.value("call_first_byte_seconds_count", pool="glm", streamed="true") == 1
    assert shown.value("tokens_total", pool="glm", kind="prompt") == 200
    assert shown.value("tokens_total", pool="glm", kind="completion") == 7
    assert shown.value("cached_prompt_tokens_total", pool="glm") == 128
    assert shown.value("attempts_total", pool="glm", outcome="ok") == 1


def test_a_pool_is_there_from_its_first_listing_on_with_zeros():
    shown = Shown()
    for name in ("resends_total", "revocations_total", "cached_prompt_tokens_total"):
        assert shown.value(name, pool="glm") == 0
    assert shown.value("attempts_total", pool="glm", outcome="ok") == 0
    assert shown.value("endpoint_changes_total", pool="glm", change="ejected") == 0
    assert shown.value("call_duration_seconds_count", pool="glm", streamed="false") == 0


def test_the_figures_of_this_moment_are_asked_for_whenever_the_page_is():
    gate = GateView(limit=8, reason="steady", goodput=250.0)
    status = endpoint(tokens_per_s=41.5, requests=9, failures=2, gate=gate)
    shown = Shown(fleet(status, endpoint("http://b/v1", "ejected"), sessions=SessionsStatus("budget", 5, 2, 1)))
    mine = {"pool": "glm", "endpoint": URL}
    expected = {
        "endpoint_in_flight": 3, "endpoint_limit": 8, "endpoint_stream_tokens_per_second": 41.5,
        "endpoint_tokens_per_second": 250, "endpoint_attempts_total": 9, "endpoint_failures_total": 2,
    }  # fmt: skip
    assert {name: shown.value(name, **mine) for name in expected} == expected
    assert shown.value("endpoint_state", **mine, state="live") == 1
    assert shown.labels("endpoint_tokens_per_second") == [mine]
    counts = {state: shown.value("endpoints", pool="glm", state=state) for state in STATES}
    assert counts == {**dict.fromkeys(STATES, 0), "live": 1, "ejected": 1}
    sessions = [shown.value("pool_sessions", pool="glm", state=state) for state in ("live", "waiting", "paused")]
    assert sessions == [5, 2, 1]
    assert shown.value("waiting_requests", pool="glm") == 4
    assert [shown.value(f"gateway_{name}") for name in ("connections", "calls", "sessions", "stopping")] == [3, 2, 1, 0]
    shown.gateway = attrs.evolve(GATEWAY, calls=0, stopping=True)
    assert [shown.value(f"gateway_{name}") for name in ("calls", "stopping")] == [0, 1]


def test_sources_and_the_network_are_there():
    shown = Shown()
    assert [shown.value("source_up", source=name) for name in ("file pool.toml", "http")] == [1, 0]
    assert shown.value("source_endpoints", source="file pool.toml") == 2
    assert shown.labels("source_listing_age_seconds") == [{"source": "file pool.toml"}]
    assert shown.value("network_up") == 1
    shown.fleet = attrs.evolve(shown.fleet, network_down_s=3.0)
    assert shown.value("network_up") == 0


def test_an_endpoint_that_is_gone_leaves_no_series_and_its_pool_keeps_its_totals():
    shown = Shown(fleet())
    before = len(shown.samples())
    for number in range(10):
        url = Url(f"http://spot-{number}/v1")
        shown.fleet = fleet(endpoint(url))
        shown.metrics(EndpointJoined(GLM, url))
        shown.metrics(AttemptEnded(GLM, Attempt(url, "ok", 0.0, 1.0), 7))
        shown.metrics(LeasesRevoked(GLM, url, 2, "gone"))
        assert {labels["endpoint"] for labels in shown.labels("endpoint_in_flight")} == {url}
    shown.fleet = fleet()
    assert len(shown.samples()) == before
    assert shown.value("revocations_total", pool="glm") == 20
    assert "spot-" not in shown.text()


def test_a_secret_in_a_name_is_hidden_also_when_it_is_learnt_later():
    shown = Shown(fleet(endpoint("http://h/opal-zebra/v1"), name="opal-zebra"))
    shown.metrics(call(pool="opal-zebra"))
    assert "opal-zebra" in shown.text()
    shown.redact.hide(["opal-zebra"])
    assert "opal-zebra" not in shown.text()
    assert shown.value("endpoint_limit", pool=HIDDEN, endpoint=f"http://h/{HIDDEN}/v1") == 8
    assert shown.value("calls_total", pool=HIDDEN, outcome="ok", streamed="true") == 1


def test_names_that_are_alike_without_their_secrets_are_numbered():
    shown = Shown(fleet(endpoint("http://h/opal-zebra"), endpoint("http://h/jade-tiger"), endpoint("http://c")))
    shown.redact.hide(["opal-zebra", "jade-tiger"])
    told = [labels["endpoint"] for labels in shown.labels("endpoint_limit")]
    assert told == [f"http://h/{HIDDEN}", f"http://h/{HIDDEN} (2)", "http://c"]
    shown.fleet = fleet(
        endpoint("http://h/opal-zebra"), endpoint(f"http://h/{HIDDEN} (2)"), endpoint("http://h/jade-tiger")
    )
    assert len({labels["endpoint"] for labels in shown.labels("endpoint_limit")}) == 3
    alike = SourceStatus("file", 1, 1.0)
    shown.fleet = attrs.evolve(shown.fleet, sources=(alike, alike))
    assert [labels["source"] for labels in shown.labels("source_up")] == ["file", "file (2)"]


HOSTILE = ['a"b', "back\\slash", "two\nlines", "tab\t\x1b[31m", "\ud800", "é中", "", "{}=,", "# HELP x"]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_name_with_any_character_in_it_breaks_nothing(name):
    shown = Shown(fleet(endpoint(f"http://{name}"), name=name))
    shown.metrics(call(pool=name))
    told = shown.redact(name)
    assert shown.value("calls_total", pool=told, outcome="ok", streamed="true") == 1
    assert shown.value("endpoint_limit", pool=told, endpoint=shown.redact(f"http://{name}")) == 8


def test_a_state_that_nobody_knows_is_counted_all_the_same():
    assert Shown(fleet(endpoint(state="odd"))).value("endpoints", pool="glm", state="odd") == 1


def test_the_process_and_its_versions_are_there():
    shown = Shown()
    assert shown.samples()["process_resident_memory_bytes", frozenset()] > 1e6
    (build,) = shown.labels("build_info")
    assert build == {"version": importlib.metadata.version("scavenge"), "python": sys.version.split()[0]}


def test_two_gateways_in_one_process_count_apart_and_not_in_the_librarys_own_registry():
    first, second = Shown(), Shown()
    first.metrics(call())
    assert first.value("calls_total", pool="glm", outcome="ok", streamed="true") == 1
    assert second.value("calls_total", pool="glm", outcome="ok", streamed="true") == 0
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("scavenge")]


def test_an_environment_made_for_another_program_changes_nothing(tmp_path):
    code = (
        "from scavenge.edge.metrics import Metrics\nfrom scavenge.status import FleetStatus, GatewayStatus\n"
        "from scavenge.events import EndpointJoined\n"
        "metrics = Metrics(lambda: (FleetStatus(()), GatewayStatus(0, 0, 0)), str)\n"
        "metrics(EndpointJoined('glm', 'http://a'))\n"
        'assert b\'scavenge_endpoint_changes_total{change="joined",pool="glm"} 1.0\' in metrics.page().body\n'
    )
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_finds_no_fault_in_the_page():
    gate = GateView(limit=8, reason="steady", goodput=250.0)
    shown = Shown(fleet(endpoint(tokens_per_s=1.5, gate=gate), sessions=SessionsStatus("budget", 5, 2, 1)))
    for name in HOSTILE:
        shown.metrics(call(pool=name))
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=shown.metrics.page().body, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
