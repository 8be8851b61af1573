"""What Prometheus is shown of a gateway: totals from its events, and how it is doing at the moment of asking.

Nothing here is kept in the client library's own objects; each page is made anew of plain numbers. So an endpoint that
is gone leaves no series behind, a secret that is learnt later is hidden on the next page as well, and an environment
that was made for another program (``PROMETHEUS_MULTIPROC_DIR``) changes nothing.

Invariant: no two series of a page have the same labels, whatever redaction leaves of their names.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, count
from typing import TypeAlias

import attrs
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from scavenge.calls import Page
from scavenge.core.gateway_totals import GatewayTotals, PoolTotals, Spread
from scavenge.core.health_state import State
from scavenge.events import Event
from scavenge.status import EndpointStatus, FleetStatus, GatewayStatus, PoolStatus, SourceStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = (*(state.value for state in State), "draining")
Rows: TypeAlias = "Iterable[tuple[Sequence[str], float | None]]"
"""The labels' values and the figure of each series; those without a figure are left out."""


@attrs.define(eq=False)
class Metrics:
    """Counts events, as an observer, and makes the page. ``status`` is asked whenever the page is.

    ``redact`` takes secrets out of the names of pools, endpoints and sources, which are the only texts of others.
    """

    status: Callable[[], tuple[FleetStatus, GatewayStatus]]
    redact: Callable[[str], str]
    _totals: GatewayTotals = attrs.field(factory=GatewayTotals, init=False)
    _registry: CollectorRegistry = attrs.field(factory=CollectorRegistry, init=False)
    _build: Metric = attrs.field(factory=lambda: _build(), init=False)

    def __attrs_post_init__(self) -> None:
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        self._totals.observe(event)

    def page(self) -> Page:
        """The page in Prometheus' text format."""
        return Page(200, CONTENT_TYPE, generate_latest(self._registry))

    def collect(self) -> Iterator[Metric]:
        """All that the page has, but the figures of the process."""
        fleet, gateway = self.status()
        shown = _Names(self.redact)
        for pool in fleet.pools:
            self._totals.of(pool.endpoint_id)
        yield from _totals([(shown.of(name), totals) for name, totals in self._totals.pools.items()])
        yield from _gateway(gateway)
        yield from _pools([(shown.of(pool.endpoint_id), pool) for pool in fleet.pools])
        yield from _endpoints(
            [
                ((shown.of(pool.endpoint_id), shown.of(endpoint.url)), endpoint)
                for pool in fleet.pools
                for endpoint in pool.endpoints
            ]
        )
        yield from _sources([(shown.of(source.name, index), source) for index, source in enumerate(fleet.sources)])
        known = float(fleet.network_down_s is None)
        yield _gauge("network_up", "1 unless this machine is known to have no network.", (), [((), known)])
        yield self._build


@attrs.define(eq=False)
class _Names:
    """The names of a page as they are shown. Two that redaction makes alike are numbered."""

    redact: Callable[[str], str]
    _shown: dict[tuple[str, int], str] = attrs.field(factory=dict, init=False)
    _taken: set[str] = attrs.field(factory=set, init=False)

    def of(self, name: str, whose: int = 0) -> str:
        """A name as it is shown; the same one with another *whose* is another name."""
        found = self._shown.get((name, whose))
        if found is None:
            text = self.redact(name)
            numbered = (f"{text} ({number})" for number in count(2))
            found = next(one for one in chain((text,), numbered) if one not in self._taken)
            self._taken.add(found)
            self._shown[name, whose] = found
        return found


# --- families


def _gauge(name: str, says: str, labels: Sequence[str], rows: Rows) -> Metric:
    family = GaugeMetricFamily(f"scavenge_{name}", says, labels=labels)
    for values, figure in rows:
        if figure is not None:
            family.add_metric(values, figure)
    return family


def _counter(name: str, says: str, labels: Sequence[str], rows: Rows) -> Metric:
    family = CounterMetricFamily(f"scavenge_{name}", says, labels=labels)
    for values, figure in rows:
        if figure is not None:
            family.add_metric(values, figure)
    return family


def _histogram(name: str, says: str, rows: Iterable[tuple[Sequence[str], Spread]]) -> Metric:
    family = HistogramMetricFamily(f"scavenge_{name}", says, labels=("pool", "streamed"))
    for values, spread in rows:
        buckets = [(_bound(bound), float(count)) for bound, count in spread.up_to()]
        family.add_metric(values, buckets, spread.total)
    return family


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else str(bound)


def _word(value: bool) -> str:
    return "true" if value else "false"


# --- what a page has


def _totals(pools: Sequence[tuple[str, PoolTotals]]) -> Iterator[Metric]:
    yield _counter(
        "calls_total",
        "Requests of clients that are over, by how they ended.",
        ("pool", "outcome", "streamed"),
        (
            ((pool, outcome, _word(streamed)), count)
            for pool, totals in pools
            for (outcome, streamed), count in totals.calls.items()
        ),
    )
    yield _histogram(
        "call_duration_seconds",
        "How long requests of clients took that were answered, all waiting included.",
        (((pool, _word(key)), spread) for pool, totals in pools for key, spread in totals.durations.items()),
    )
    yield _histogram(
        "call_first_byte_seconds",
        "How long requests of clients that were answered took until something of the reply was there.",
        (((pool, _word(key)), spread) for pool, totals in pools for key, spread in totals.first_bytes.items()),
    )
    yield _counter(
        "attempts_total",
        "Requests that were sent to endpoints, by their outcome.",
        ("pool", "outcome"),
        (((pool, outcome), count) for pool, totals in pools for outcome, count in totals.attempts.items()),
    )
    yield _counter(
        "resends_total",
        "Requests that were sent to an endpoint after another attempt had not answered them.",
        ("pool",),
        (((pool,), totals.resent) for pool, totals in pools),
    )
    yield from _more_totals(pools)


def _more_totals(pools: Sequence[tuple[str, PoolTotals]]) -> Iterator[Metric]:
    yield _counter(
        "tokens_total",
        "Tokens of prompts and of replies, as servers counted them; of a stream that counted none, its pieces.",
        ("pool", "kind"),
        (((pool, kind), count) for pool, totals in pools for kind, count in totals.tokens.items()),
    )
    yield _counter(
        "cached_prompt_tokens_total",
        "Tokens of prompts that servers found in their caches.",
        ("pool",),
        (((pool,), totals.cached_tokens) for pool, totals in pools),
    )
    yield _counter(
        "revocations_total",
        "Requests that were taken from an endpoint because it was lost, to be sent elsewhere.",
        ("pool",),
        (((pool,), totals.revoked) for pool, totals in pools),
    )
    yield _counter(
        "endpoint_changes_total",
        "Endpoints that joined, left, or were taken out of work.",
        ("pool", "change"),
        (((pool, change), count) for pool, totals in pools for change, count in totals.changes.items()),
    )


def _gateway(gateway: GatewayStatus) -> Iterator[Metric]:
    yield _gauge("gateway_connections", "Clients that are connected.", (), [((), gateway.connections)])
    says = "Requests of clients that are under way, those that wait included."
    yield _gauge("gateway_calls", says, (), [((), gateway.calls)])
    yield _gauge("gateway_sessions", "Sessions that are open.", (), [((), gateway.sessions)])
    says = "1 while no more requests are taken because the gateway is about to end."
    yield _gauge("gateway_stopping", says, (), [((), gateway.stopping)])


def _pools(pools: Sequence[tuple[str, PoolStatus]]) -> Iterator[Metric]:
    counts = [(name, Counter(endpoint.state for endpoint in pool.endpoints)) for name, pool in pools]
    yield _gauge(
        "endpoints",
        "Endpoints of a pool, by their state.",
        ("pool", "state"),
        (((name, state), count[state]) for name, count in counts for state in dict.fromkeys((*STATES, *count))),
    )
    waiting = (((name,), pool.waiting) for name, pool in pools)
    yield _gauge("waiting_requests", "Requests that wait for an endpoint.", ("pool",), waiting)
    yield _gauge(
        "pool_sessions",
        "Sessions of a pool: those that have their place, those of them that are held back, and those that wait.",
        ("pool", "state"),
        (
            ((name, state), getattr(pool.sessions, state))
            for name, pool in pools
            for state in ("live", "paused", "waiting")
            if pool.sessions is not None
        ),
    )


def _endpoints(endpoints: Sequence[tuple[tuple[str, str], EndpointStatus]]) -> Iterator[Metric]:
    labels = ("pool", "endpoint")

    def rows(figure: Callable[[EndpointStatus], float | None]) -> Rows:
        return ((names, figure(endpoint)) for names, endpoint in endpoints)

    states: Rows = (((*names, endpoint.state), 1) for names, endpoint in endpoints)
    yield _gauge("endpoint_state", "1, with the state that an endpoint is in.", (*labels, "state"), states)
    yield _gauge("endpoint_in_flight", "Requests in flight.", labels, rows(lambda one: one.in_flight))
    says = "How many requests may be in flight."
    yield _gauge("endpoint_limit", says, labels, rows(lambda one: one.limit))
    says = "Tokens per second of one stream, as seen last."
    yield _gauge("endpoint_stream_tokens_per_second", says, labels, rows(lambda one: one.tokens_per_s))
    says = "Tokens per second of all streams together, as the gate sees them."
    yield _gauge("endpoint_tokens_per_second", says, labels, rows(lambda one: one.gate.goodput if one.gate else None))
    says = "Attempts that ended there since it was listed."
    yield _counter("endpoint_attempts_total", says, labels, rows(lambda one: one.requests))
    says = "Those attempts that were not answered."
    yield _counter("endpoint_failures_total", says, labels, rows(lambda one: one.failures))


def _sources(sources: Sequence[tuple[str, SourceStatus]]) -> Iterator[Metric]:
    labels = ("source",)
    up: Rows = (((name,), source.trouble is None) for name, source in sources)
    yield _gauge("source_up", "Whether a source of endpoints can say what there is.", labels, up)
    listed: Rows = (((name,), source.endpoints) for name, source in sources)
    yield _gauge("source_endpoints", "Endpoints in its last good listing.", labels, listed)
    ages: Rows = (((name,), source.listing_age_s) for name, source in sources)
    yield _gauge("source_listing_age_seconds", "The age of its last good listing.", labels, ages)


def _build() -> Metric:
    values = (_own_version(), platform.python_version())
    return _gauge("build_info", "1, with the versions of what runs.", ("version", "python"), [(values, 1)])


def _own_version() -> str:
    try:
        return version("scavenge")
    except PackageNotFoundError:  # run from its sources
        return "unknown"
