"""The figures a run ends with: ``summary.json`` and the closing table as plain data. Pure; counts nothing itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from scavenge.core.figures import precise_duration


@attrs.frozen
class EvalSummary:
    """One evaluation. ``owed`` is ``None`` while the size of its dataset is not known.

    ``tokens_per_s`` is of completion tokens, over the wall time in which they are known to have been made.
    ``workers_started`` counts the worker processes, ``workers_died`` those that died or had to be killed.
    """

    eval: str
    env_id: str
    ok: int
    error: int
    owed: int | None
    mean_reward: float | None
    mean_reward_stderr: float | None
    mean_reward_errors_as_0: float | None
    pass_at_k: Mapping[int, float] | None
    """By k; ``None`` with one rollout an example."""
    prompt_tokens: int
    completion_tokens: int
    wall_s: float
    tokens_per_s: float | None
    workers_started: int = 0
    workers_died: int = 0


@attrs.frozen
class EndpointSummary:
    """One endpoint. ``failures`` counts the attempts that were not ``ok`` by outcome.

    ``limit`` and ``peak_limit`` are what its gate allowed last and at most; ``None`` where none was told.
    """

    endpoint_id: str
    url: str
    requests: int
    failures: Mapping[str, int]
    tokens: int
    alive_s: float
    peak_in_flight: int
    limit: int | None = None
    peak_limit: int | None = None


@attrs.frozen
class Summary:
    """A whole run, all its parts together."""

    evals: tuple[EvalSummary, ...]
    endpoints: tuple[EndpointSummary, ...]
    retries: int
    revocations: int

    def as_json(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        return {
            "evals": [_plain(attrs.asdict(part)) for part in self.evals],
            "endpoints": [_plain(attrs.asdict(part)) for part in self.endpoints],
            "retries": self.retries,
            "revocations": self.revocations,
        }


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case float():
            return value if math.isfinite(value) else None
        case _:
            return value


@attrs.frozen
class Table:
    """A table to show: every cell is text, numbers in the form to be read."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def closing_table(summary: Summary) -> tuple[Table, ...]:
    """What ``run`` shows at its end: the evaluations, then the endpoints with the run's counts in the title."""
    ks = sorted({k for part in summary.evals for k in part.pass_at_k or ()})
    evals = Table(
        _evals_title(summary),
        (
            "eval",
            "ok",
            "error",
            "owed",
            "mean reward",
            "errors as 0",
            *(f"pass@{k}" for k in ks),
            "tokens",
            "wall",
            "tokens/s",
        ),
        tuple(_eval_row(part, ks) for part in summary.evals),
    )
    endpoints = Table(
        f"endpoints ({summary.retries} retries, {summary.revocations} leases revoked)",
        (
            "pool",
            "endpoint",
            "requests",
            "failures",
            "tokens",
            "alive",
            "peak in flight",
            "limit",
        ),
        tuple(_endpoint_row(part) for part in summary.endpoints),
    )
    return evals, endpoints


def _evals_title(summary: Summary) -> str:
    died = sum(part.workers_died for part in summary.evals)
    started = sum(part.workers_started for part in summary.evals)
    return f"evaluations ({died} of {started} workers died)" if died else "evaluations"


def _eval_row(part: EvalSummary, ks: list[int]) -> tuple[str, ...]:
    mean = _number(part.mean_reward)
    if part.mean_reward_stderr is not None:
        mean += f" ± {_number(part.mean_reward_stderr)}"
    passes = part.pass_at_k or {}
    return (
        part.eval,
        str(part.ok),
        str(part.error),
        "?" if part.owed is None else str(part.owed),
        mean,
        _number(part.mean_reward_errors_as_0),
        *(_number(passes.get(k)) for k in ks),
        str(part.prompt_tokens + part.completion_tokens),
        precise_duration(part.wall_s),
        "–" if part.tokens_per_s is None else f"{part.tokens_per_s:.1f}",
    )


def _endpoint_row(part: EndpointSummary) -> tuple[str, ...]:
    failures = ", ".join(f"{count} {outcome}" for outcome, count in sorted(part.failures.items())) or "–"
    return (
        part.endpoint_id,
        part.url,
        str(part.requests),
        failures,
        str(part.tokens),
        precise_duration(part.alive_s),
        str(part.peak_in_flight),
        _limit(part),
    )


def _limit(part: EndpointSummary) -> str:
    if part.limit is None:
        return "–"
    return str(part.limit) if part.peak_limit in (None, part.limit) else f"{part.limit} (peak {part.peak_limit})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
