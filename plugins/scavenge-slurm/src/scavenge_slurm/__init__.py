"""Inference servers in Slurm jobs as endpoints of scavenge: ``[[source]]`` with ``type = "slurm"``."""

from __future__ import annotations

from scavenge.plugin import EndpointSourceType, hookimpl
from scavenge_slurm.config import SlurmConfig
from scavenge_slurm.source import open_slurm


@hookimpl
def scavenge_endpoint_sources() -> list[EndpointSourceType]:
    """Name the source."""
    return [EndpointSourceType(name="slurm", config=SlurmConfig, open=open_slurm)]
