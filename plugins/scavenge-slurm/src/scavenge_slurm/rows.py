"""Which jobs are servers, and the row of each. Pure: what the jobs and their files say, and the time, are arguments.

A job that runs, but of which a fact is missing that the row needs (it tells no port yet), is left out: it costs itself,
and is told of. Of several rows with one URL one stays: that of the job that began last among those that stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase

import attrs

from scavenge.plugin import EndpointSpec
from scavenge_slurm.config import ANY_USER, SlurmConfig
from scavenge_slurm.hostlist import node_names
from scavenge_slurm.jobs import Job
from scavenge_slurm.said import facts_of, says_draining, words

_TELL_PORT = "; the job has to tell it: port=NUMBER in its comment, or in its state file"


@attrs.frozen
class Rows:
    """The rows, and of the jobs that have none though they run, why: by job id."""

    specs: tuple[EndpointSpec, ...]
    left_out: Mapping[int, str]


@attrs.frozen
class _Row:
    job: Job
    spec: EndpointSpec


def servers(jobs: Iterable[Job], config: SlurmConfig, user: str) -> list[Job]:
    """The jobs that are servers by the configuration, and run or are being ended."""
    return [
        job
        for job in jobs
        if (job.is_running or job.is_leaving)
        and (user == ANY_USER or job.user == user)
        and (config.job_name is None or fnmatchcase(job.name, config.job_name))
        and (config.comment is None or any(fnmatchcase(word, config.comment) for word in words(job)))
    ]


def rows_of(jobs: Iterable[Job], files: Mapping[int, Mapping[str, str]], config: SlurmConfig, now: float) -> Rows:
    """The rows of the servers at the instant *now*, given what stands in the state files, by job id."""
    rows: dict[tuple[str, str], _Row] = {}
    left_out: dict[int, str] = {}
    for job in sorted(jobs, key=_rank):
        try:
            for spec in _specs(job, files.get(job.job_id, {}), config, now):
                rows.setdefault((str(spec.endpoint_id), _place(str(spec.url))), _Row(job, spec))
        except ValueError as exc:
            left_out[job.job_id] = str(exc)
    in_order = sorted(rows.values(), key=lambda row: (row.job.job_id, str(row.spec.url)))
    return Rows(tuple(row.spec for row in in_order), left_out)


def _place(url: str) -> str:
    """One text for the spellings of one URL."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{f'{slash}{path}'.rstrip('/')}"


def _rank(job: Job) -> tuple[bool, float, int]:
    return job.is_leaving, -(job.started_at or 0.0), -job.job_id


def _specs(job: Job, file: Mapping[str, str], config: SlurmConfig, now: float) -> Iterator[EndpointSpec]:
    """Raises ``ValueError`` for a job of which not enough is known, before anything else."""
    draining, deadline = _leaves(job, config.drain_before_s, now)
    draining = draining or says_draining(job, file)
    specs = [
        config.row(facts_of(job, node, file), draining=draining, drain_deadline=deadline)
        for node in _nodes(job, config.every_node)
    ]
    for spec in specs:
        if missing := next(_missing(spec), None):
            raise ValueError(missing)
    yield from specs


def _nodes(job: Job, every_node: bool) -> list[str]:
    if job.batch_host and not every_node:
        return [job.batch_host]
    names = node_names(job.nodes)
    if not names:
        raise ValueError("it has no node")
    return names if every_node else names[:1]


def _leaves(job: Job, drain_before_s: float, now: float) -> tuple[bool, datetime | None]:
    """Whether a job takes no new work any more, and when it ends."""
    if job.is_leaving:
        return True, None  # the time it ends at has passed, and its processes get a grace that nobody tells
    ends_at = job.ends_at
    if ends_at is None:
        return job.is_preempted, None
    if now >= ends_at:
        return True, None  # it runs on (OverTimeLimit), or this machine's clock is ahead
    if job.is_preempted or now >= ends_at - drain_before_s:
        return True, datetime.fromtimestamp(ends_at, UTC)
    return False, None


def _missing(spec: EndpointSpec) -> Iterator[str]:
    """What of a row could not be filled with facts."""
    for field in ("endpoint_id", "model", "url", "key", "max_concurrent", "type", "proxy"):
        value, name = getattr(spec, field), "api_client_type" if field == "type" else field
        if value is not None and not isinstance(value, str | int):
            hint = _TELL_PORT if "{url}" in str(value) or "{port}" in str(value) else ""
            yield f"{name} needs {value}{hint}"
    cap = spec.max_concurrent
    if cap is not None and not (isinstance(cap, int) and cap > 0):
        yield f"max_concurrent needs a whole number above 0, got {str(cap)[:60]!r}"
    headers = spec.headers if isinstance(spec.headers, Mapping) else {}
    yield from (f"headers.{name} needs {value}" for name, value in headers.items() if not isinstance(value, str))
