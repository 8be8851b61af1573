"""Configurations and rows as the tests write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scavenge_slurm.config import SlurmConfig
from scavenge_slurm.jobs import jobs_in_json
from scavenge_slurm.rows import Rows, rows_of, servers
from squeue_double import NOW, document, job

from scavenge.plugin import EndpointSpec

RECORDINGS = Path(__file__).parent / "recordings"


def settings(**keys: Any) -> SlurmConfig:
    """A configuration for the jobs of alice that are called vllm."""
    return SlurmConfig(**{"endpoint_id": "pool", "model": "sim", "job_name": "vllm*", "user": "alice", **keys})


def rows(
    jobs: Sequence[dict[str, Any]],
    files: Mapping[int, Mapping[str, str]] | None = None,
    shape: str = "24.11",
    now: float = NOW,
    **keys: Any,
) -> Rows:
    """What becomes of jobs, from the output of squeue on."""
    config = settings(**keys)
    found = jobs_in_json(json.dumps(document(shape, jobs)).encode())
    return rows_of(servers(found, config, config.user or ""), files or {}, config, now)


def urls(found: Rows) -> list[str]:
    """The URLs of the rows."""
    return [str(spec.url) for spec in found.specs]


def only(*jobs: dict[str, Any], **options: Any) -> EndpointSpec:
    """The one row there is."""
    (spec,) = rows(jobs or [job()], **options).specs
    return spec
