"""Endpoint sources for model servers on rented GPUs: RunPod, Vast.ai and Prime Intellect."""

from __future__ import annotations

from scavenge.plugin import EndpointSourceType, hookimpl
from scavenge_gpucloud.clouds import PRIME, RUNPOD, VAST
from scavenge_gpucloud.config import PrimeConfig, RunPodConfig, VastConfig
from scavenge_gpucloud.source import opener


@hookimpl
def scavenge_endpoint_sources() -> list[EndpointSourceType]:
    """One type a cloud."""
    return [
        EndpointSourceType(name="runpod", config=RunPodConfig, open=opener(RUNPOD)),
        EndpointSourceType(name="vast", config=VastConfig, open=opener(VAST)),
        EndpointSourceType(name="prime", config=PrimeConfig, open=opener(PRIME)),
    ]
