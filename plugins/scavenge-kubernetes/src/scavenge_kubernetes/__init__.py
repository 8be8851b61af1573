"""The endpoint source type ``kubernetes``: inference servers that a cluster's API knows."""

from __future__ import annotations

from scavenge.plugin import EndpointSourceType, hookimpl
from scavenge_kubernetes.config import KubernetesConfig
from scavenge_kubernetes.source import open_kubernetes


@hookimpl
def scavenge_endpoint_sources() -> list[EndpointSourceType]:
    """Add ``type = "kubernetes"``."""
    return [EndpointSourceType(name="kubernetes", config=KubernetesConfig, open=open_kubernetes)]
