"""What the edge gives a fleet that no run is played on: the clock, the connections, the check of what is listed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from random import Random

from scavenge.config.endpoint_rows import check_listing, pool_modes
from scavenge.core.redaction import Redactor
from scavenge.core.sessions.table import MakeSessions
from scavenge.edge.model_http import HttpModelTransport
from scavenge.events import Observer
from scavenge.listings import CheckedListing, Listing
from scavenge.runtime.fleet import FleetPorts
from scavenge.runtime.ports import AdmissionPolicy
from scavenge.runtime.sources import NamedSource
from scavenge.types import Endpoint


def fleet_ports(
    sources: Sequence[NamedSource],
    make_policy: Callable[[], AdmissionPolicy],
    make_sessions: MakeSessions,
    fixed: Iterable[Endpoint],
    emit: Observer,
    redact: Redactor,
) -> FleetPorts:
    """The ports of a fleet; *redact* learns the keys of its endpoints, those in *fixed* at once."""

    def check(listing: Listing, present: Sequence[Endpoint]) -> CheckedListing:
        checked = check_listing(listing, os.environ, present=pool_modes(present))
        for endpoint in checked.endpoints:
            redact.hide_endpoint(endpoint.secret, endpoint.headers)
        return checked

    for endpoint in fixed:
        redact.hide_endpoint(endpoint.secret, endpoint.headers)
    return FleetPorts(
        sources=sources,
        check=check,
        transport=HttpModelTransport(),
        make_policy=make_policy,
        emit=emit,
        random=Random(),  # noqa: S311 - jitter, not a secret
        wall_clock=time.time,
        make_sessions=make_sessions,
    )
