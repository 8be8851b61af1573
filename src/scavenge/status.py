"""Frozen values that say how a fleet is doing: what people and programs are shown. No decisions here.

Ages and durations are in seconds at the moment the value was made.
"""

from __future__ import annotations

import attrs

from scavenge.signals import GateView
from scavenge.types import EndpointId, Url


@attrs.frozen
class EndpointStatus:
    """How one endpoint is doing: its health's state (or ``draining``) with the reason, its slots and its figures."""

    url: Url
    state: str
    why: str
    in_flight: int
    limit: int
    """How many requests it may have in flight now."""
    max_concurrent: int | None = None
    source: str = ""
    """The source that lists it."""
    state_s: float = 0.0
    """For how long it has been in this state."""
    heard_s: float | None = None
    """How long ago a byte last came from it; ``None``: never."""
    tokens_per_s: float | None = None
    """The speed of one stream there now, as seen; ``None``: nothing seen yet."""
    requests: int = 0
    """Attempts that ended there."""
    failures: int = 0
    """Those of them that were not ``ok``."""
    probe_s: float | None = None
    """How long its last answered probe took."""
    gate: GateView | None = None
    """What its admission policy says; ``limit`` may be lower, for the endpoint's health, cap or quota."""


@attrs.frozen
class LeaseStatus:
    """Slots that are held, and for how long."""

    url: Url
    slots: int
    age_s: float
    revoked: bool = False


@attrs.frozen
class WaitingStatus:
    """Somebody who waits for slots: how many, for how long, avoiding which endpoints."""

    slots: int
    age_s: float
    avoid: tuple[Url, ...] = ()


@attrs.frozen
class SessionsStatus:
    """How the sessions of a pool are doing, and what their gate allows."""

    policy: str
    live: int
    """Sessions that have their place."""
    waiting: int
    """Sessions that wait at the door."""
    paused: int = 0
    """Sessions that have their place and wait between two calls."""
    limit: int | None = None
    """How many sessions may be live; ``None``: it is not their number that is bounded."""
    context_tokens: float = 0.0
    """Tokens of all contexts that count."""
    budget_tokens: float | None = None
    reason: str = ""
    """Why the gate allows what it does, in a few words."""


@attrs.frozen
class PoolStatus:
    """How a pool is doing; ``waiting`` counts the requests that wait for slots."""

    endpoint_id: EndpointId
    endpoints: tuple[EndpointStatus, ...]
    waiting: int
    sessions: SessionsStatus | None = None
    """``None`` while no session has asked for a place."""


@attrs.frozen
class SourceStatus:
    """How an endpoint source is doing."""

    name: str
    endpoints: int
    """How many endpoints its last good listing has."""
    listing_age_s: float | None
    """The age of its last good listing; ``None``: there was none yet."""
    trouble: str | None = None
    """Why it cannot say now."""
    restarts: int = 0
    """How often it died and was opened again."""


@attrs.frozen
class FleetStatus:
    """How everything that serves is doing."""

    pools: tuple[PoolStatus, ...]
    sources: tuple[SourceStatus, ...] = ()
    network_down_s: float | None = None
    """For how long this machine has had no network; ``None``: it has one, or nothing tells otherwise."""


@attrs.frozen
class GatewayStatus:
    """How a gateway is doing."""

    connections: int
    """Clients that are connected."""
    calls: int
    """Requests for a model that are under way, those that wait included."""
    sessions: int
    """Sessions that are open."""
    stopping: bool = False
    """Whether it takes no more requests and is about to end."""


@attrs.frozen
class WorkersStatus:
    """How the worker processes of one evaluation are doing. ``state`` is never a bare "ok".

    ``starting``: none is ready yet, some load; ``ready``: those that are ready do, others may be loading beside them;
    ``degraded``: fewer are ready than are wanted, because some failed; ``empty``: none is ready, and none is loading;
    ``closed``: the evaluation is over.
    """

    eval: str
    state: str
    ready: int
    starting: int
    wanted: int
    """How many the work calls for."""
    playing: int
    """Rollouts in workers."""
    parked: int
    """Rollouts that wait for a worker."""
    why: str = ""
    """One line that says what failed last, and when that is tried again; empty while nothing is wrong."""


@attrs.frozen
class DeliveryStatus:
    """An image that is being delivered: from which lane, how far, for how long."""

    image: str
    source: str
    done_bytes: int
    total_bytes: int | None
    age_s: float


@attrs.frozen
class ImagesStatus:
    """How the container images of a run are doing. ``state`` is never a bare "ok".

    ``idle``: nothing is wanted; ``delivering``; ``waiting``: something is wanted and cannot be fetched now, because of
    ``why``; ``disk-bound``: there is no room; ``silent``: the engine does not answer.
    """

    state: str
    wanted: int
    """Images that are registered and that pending samples need."""
    present: int
    """Those of them that are there."""
    failed: int
    """Those of them that no source gives."""
    waiting: int
    """Rollouts that wait for an image."""
    deliveries: tuple[DeliveryStatus, ...] = ()
    why: str = ""
    free_bytes: int | None = None
    """Room on the engine's disk; ``None``: not known."""
    brought: int = 0
    """Images that this run brought and has not removed."""


@attrs.frozen
class TaskStatus:
    """A task and where it waits: the innermost lines of its stack, ``file:line function``, the outermost first."""

    name: str
    stack: tuple[str, ...]


@attrs.frozen
class PoolPicture:
    """Everything about a pool: its status, who holds slots and who waits. Long lists are cut; the counts are whole."""

    status: PoolStatus
    leases: tuple[LeaseStatus, ...]
    leases_in_all: int
    waiting: tuple[WaitingStatus, ...]
    places: int
    """Sessions under way."""
    places_waiting: int
    """Sessions that wait for their place."""
    stalled_s: float
    why: str


@attrs.frozen
class Picture:
    """The full picture of a run at one moment, for finding out what it waits for."""

    pools: tuple[PoolPicture, ...]
    sources: tuple[SourceStatus, ...]
    network_down_s: float | None
    tasks: tuple[TaskStatus, ...]
    tasks_in_all: int
    workers: tuple[WorkersStatus, ...] = ()
    images: ImagesStatus | None = None
    """``None``: no sample has asked for one."""
