"""A summary as it was written to ``summary.json``, read back and made into tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from scavenge.core.report import readings
from scavenge.core.report.readings import BadReading
from scavenge.core.summary import EndpointSummary, EvalSummary, Summary, Table, closing_table

ROWS_SHOWN = 200


def closing_tables(document: Mapping[str, object]) -> tuple[Table, ...]:
    """The tables that the run ended with; of very many endpoints, the rows of those with the most requests.

    Raises :class:`BadReading` with the key that is not as it should be. Keys that are not known are passed over.
    """
    summary = parse_summary(document)
    every = len(summary.endpoints)
    if every <= ROWS_SHOWN:
        return closing_table(summary)
    most = sorted(summary.endpoints, key=lambda one: -one.requests)[:ROWS_SHOWN]
    *tables, endpoints = closing_table(attrs.evolve(summary, endpoints=tuple(most)))
    title = f"{endpoints.title}: the {ROWS_SHOWN} with the most requests, of {every}"
    return *tables, attrs.evolve(endpoints, title=title)


def parse_summary(document: Mapping[str, object]) -> Summary:
    """The summary that a document was made of. Raises :class:`BadReading`."""
    return Summary(
        tuple(_eval(entry) for entry in readings.tables(document, "evals")),
        tuple(_endpoint(entry) for entry in readings.tables(document, "endpoints")),
        readings.count(document, "retries"),
        readings.count(document, "revocations"),
    )


def _eval(entry: dict[str, Any]) -> EvalSummary:
    return EvalSummary(
        eval=readings.name(entry, "eval"),
        env_id=readings.name(entry, "env_id"),
        ok=readings.count(entry, "ok"),
        error=readings.count(entry, "error"),
        owed=readings.optional_count(entry, "owed"),
        mean_reward=readings.optional_figure(entry, "mean_reward"),
        mean_reward_stderr=readings.optional_figure(entry, "mean_reward_stderr"),
        mean_reward_errors_as_0=readings.optional_figure(entry, "mean_reward_errors_as_0"),
        pass_at_k=_pass_at_k(entry),
        prompt_tokens=readings.count(entry, "prompt_tokens"),
        completion_tokens=readings.count(entry, "completion_tokens"),
        wall_s=readings.number(entry, "wall_s"),
        tokens_per_s=readings.optional_number(entry, "tokens_per_s"),
        workers_started=readings.optional_count(entry, "workers_started") or 0,
        workers_died=readings.optional_count(entry, "workers_died") or 0,
    )


def _pass_at_k(entry: dict[str, Any]) -> dict[int, float] | None:
    if entry.get("pass_at_k") is None:
        return None
    table = readings.inner(entry, "pass_at_k")
    if not all(k.isascii() and k.isdecimal() and len(k) < 10 for k in table):
        raise BadReading("pass_at_k")
    return {int(k): readings.number(table, k) for k in table}


def _endpoint(entry: dict[str, Any]) -> EndpointSummary:
    failures = readings.inner(entry, "failures")
    return EndpointSummary(
        endpoint_id=readings.name(entry, "endpoint_id"),
        url=readings.name(entry, "url"),
        requests=readings.count(entry, "requests"),
        failures={readings.name({"failures": key}, "failures"): readings.count(failures, key) for key in failures},
        tokens=readings.count(entry, "tokens"),
        alive_s=readings.number(entry, "alive_s"),
        peak_in_flight=readings.count(entry, "peak_in_flight"),
        limit=readings.optional_count(entry, "limit"),
        peak_limit=readings.optional_count(entry, "peak_limit"),
    )
