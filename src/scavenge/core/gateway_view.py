"""How a gateway and the fleet behind it are doing, for whoever asks it: health in a word, and all figures. Pure.

Health is shown to anybody, a load balancer first of all: it names pools and counts endpoints, in words of ours only.
What servers, sources and plugins said may name hosts or hold a secret, and so may the name of a pool that is one fixed
server: neither is in it. The whole status is for those who have the token; whoever shows it redacts it first
(:func:`scavenge.core.endpoints_view.redacted`).
"""

from __future__ import annotations

import re
from collections import Counter

import attrs

from scavenge.core.endpoints_view import as_json, takes_work
from scavenge.core.figures import duration
from scavenge.status import FleetStatus, GatewayStatus, PoolStatus

SERVING = "serving"
"""Every pool has an endpoint that takes work."""
DEGRADED = "degraded"
"""Some pool has none, another one has."""
WAITING = "waiting"
"""No pool has one, or there is no pool yet: requests wait."""
STOPPING = "stopping"
"""No more requests are taken."""

_PLACE = re.compile(r"@?\bhttps?://.*", re.IGNORECASE | re.DOTALL)
UNNAMED = "one server"
"""The name of a pool that has nothing but a URL for a name."""


def state_of(fleet: FleetStatus, gateway: GatewayStatus) -> str:
    """The state in a word, never a bare "ok"."""
    if gateway.stopping:
        return STOPPING
    working = [any(map(takes_work, pool.endpoints)) for pool in fleet.pools]
    if not any(working):
        return WAITING
    return SERVING if all(working) else DEGRADED


def health_of(fleet: FleetStatus, gateway: GatewayStatus) -> tuple[int, dict[str, object]]:
    """The HTTP status and the document: 200 while some pool is served, else 503."""
    state = state_of(fleet, gateway)
    document: dict[str, object] = {"state": state, "pools": [_pool(pool) for pool in fleet.pools]}
    if why := _why(fleet):
        document["why"] = why
    return (200 if state in (SERVING, DEGRADED) else 503), document


def _why(fleet: FleetStatus) -> str:
    if fleet.network_down_s is not None:
        return f"this machine has had no network for {duration(fleet.network_down_s)}"
    return "" if fleet.pools else "no endpoint is listed yet"


def _pool(pool: PoolStatus) -> dict[str, object]:
    endpoints = pool.endpoints
    working = sum(map(takes_work, endpoints))
    document: dict[str, object] = {
        "endpoint_id": _PLACE.sub("", pool.endpoint_id).strip() or UNNAMED,
        "endpoints": len(endpoints),
        "working": working,
        "in_flight": sum(endpoint.in_flight for endpoint in endpoints),
        "waiting": pool.waiting,
    }
    return document if working else {**document, "why": _idle(pool)}


def _idle(pool: PoolStatus) -> str:
    """Why no endpoint of a pool takes work, without a word of anybody else's."""
    states = Counter(endpoint.state for endpoint in pool.endpoints)
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no endpoint is listed"


def status_document(fleet: FleetStatus, gateway: GatewayStatus) -> dict[str, object]:
    """All figures: the gateway's, and those that ``scavenge endpoints --json`` has."""
    return {"state": state_of(fleet, gateway), "gateway": attrs.asdict(gateway), **as_json(fleet)}
