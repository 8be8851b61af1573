"""Frozen values that say how a fleet is doing: what people and programs are shown. No decisions here."""

from __future__ import annotations

import attrs

from scavenge.types import EndpointId, Url


@attrs.frozen
class EndpointStatus:
    """How one endpoint is doing: its health's state (or ``draining``) with the reason, and its slots."""

    url: Url
    state: str
    why: str
    in_flight: int
    limit: int


@attrs.frozen
class PoolStatus:
    """How a pool is doing; ``waiting`` counts the requests that wait for slots."""

    endpoint_id: EndpointId
    endpoints: tuple[EndpointStatus, ...]
    waiting: int
