"""Endpoints from Consul: the instances of a service, or an ``endpoints.toml`` in the key-value store."""

from __future__ import annotations

from scavenge.plugin import EndpointSourceType, hookimpl
from scavenge_consul.config import ConsulConfig
from scavenge_consul.source import open_consul

__all__ = ["ConsulConfig", "open_consul"]


@hookimpl
def scavenge_endpoint_sources() -> list[EndpointSourceType]:
    """Name the one kind of source."""
    return [EndpointSourceType(name="consul", config=ConsulConfig, open=open_consul)]
