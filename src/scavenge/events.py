"""What happened in a run, as frozen values for observers: progress, the event log, the summary. No decisions here.

An observer is a plain callable ``(event) -> None`` that neither waits nor raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from scavenge.rollouts import RolloutRecord
from scavenge.status import ImagesStatus, Picture, WorkersStatus
from scavenge.types import Attempt, EndpointId, Url, Usage


@attrs.frozen
class RunStarted:
    """A run folder is open and the evaluations will be played; ``kept`` results are in it from an earlier part."""

    run_dir: str
    evals: tuple[str, ...]
    kept: int = 0


@attrs.frozen
class EvalSized:
    """An evaluation's dataset was read to its end: ``rollouts`` are wanted in all, those that were kept included."""

    eval: str
    rollouts: int


@attrs.frozen
class RunStopping:
    """The run takes no more samples and drops what is in flight, because of ``why``."""

    why: str


@attrs.frozen
class EndpointJoined:
    """An endpoint was listed for the first time, or again after it had gone; ``source`` is who lists it."""

    endpoint_id: EndpointId
    url: Url
    source: str = ""


@attrs.frozen
class EndpointChanged:
    """The settings of a listed endpoint changed; ``what`` names the keys."""

    endpoint_id: EndpointId
    url: Url
    what: str


@attrs.frozen
class EndpointDraining:
    """An endpoint takes no new work: it is marked so, or its row vanished."""

    endpoint_id: EndpointId
    url: Url
    why: str


@attrs.frozen
class EndpointLeft:
    """An endpoint was removed."""

    endpoint_id: EndpointId
    url: Url


@attrs.frozen
class HealthChanged:
    """An endpoint's health took another state; ``old`` and ``new`` are states' names in :mod:`scavenge.core.health`."""

    endpoint_id: EndpointId
    url: Url
    old: str
    new: str
    why: str


@attrs.frozen
class LimitMoved:
    """An endpoint's gate allows another number of requests in flight, because of ``reason`` (see its policy).

    ``old`` is ``None`` for the limit that an endpoint begins with, also when it has come back.
    """

    endpoint_id: EndpointId
    url: Url
    old: int | None
    new: int
    reason: str
    in_flight: int
    """How many there were at that moment."""
    goodput: float | None = None
    """Tokens per second, as the gate saw them last."""
    queue: float | None = None
    """Requests that the gate takes to be queueing in the server."""
    elasticity: float | None = None
    """What part of one per cent one per cent more in flight would bring."""


@attrs.frozen
class SessionsMoved:
    """A pool's session gate allows more or less than before, because of ``reason``."""

    endpoint_id: EndpointId
    live: int
    reason: str
    limit: int | None = None
    """How many sessions may be live, where their number is bounded."""
    budget_tokens: float | None = None
    """How many tokens their contexts may have together, where that is bounded."""


@attrs.frozen
class LeasesRevoked:
    """The leases on a lost endpoint were ended."""

    endpoint_id: EndpointId
    url: Url
    leases: int
    why: str


@attrs.frozen
class SourceChanged:
    """A source's listing changed state; ``message`` is the one line for the log. ``ok`` is false while it fails."""

    source: str
    ok: bool
    message: str


@attrs.frozen
class NetworkLost:
    """No host of the fleet is heard any more, ``hosts`` in number: this machine's network, or the way out of it."""

    hosts: int
    why: str


@attrs.frozen
class NetworkBack:
    """A host is heard again after ``lost_s`` seconds."""

    lost_s: float


@attrs.frozen
class AttemptStarted:
    """A request was sent to an endpoint; ``again``: it had been sent before, and was not answered."""

    endpoint_id: EndpointId
    url: Url
    again: bool = False


@attrs.frozen
class AttemptEnded:
    """One attempt at a request ended. ``tokens`` are the reply's."""

    endpoint_id: EndpointId
    attempt: Attempt
    tokens: int


@attrs.frozen
class AttemptDropped:
    """An attempt was given up from our side: its rollout was cancelled."""

    endpoint_id: EndpointId
    url: Url


@attrs.frozen
class CallEnded:
    """A foreign client's request to a gateway is over. ``outcome`` is ``ok``, the last outcome's name, or how it ended.

    Other ends: ``hung up`` (the client was gone first), ``ended`` (its session was), ``stalled`` (``stall_timeout``).
    """

    endpoint_id: EndpointId
    outcome: str
    streamed: bool
    duration_s: float
    attempts: int
    """How often it was sent."""
    first_byte_s: float | None = None
    """From when it came until something of the reply was there for the client."""
    usage: Usage = attrs.field(factory=Usage)


@attrs.frozen
class RolloutStarted:
    """A rollout began."""

    eval: str


@attrs.frozen
class RolloutFinished:
    """A rollout's result is on disk."""

    record: RolloutRecord


@attrs.frozen
class PoolWaiting:
    """A pool has no usable endpoint since ``since_time`` (epoch) because of ``why``; an empty ``why`` ends the wait."""

    endpoint_id: EndpointId
    since_time: float
    why: str


@attrs.frozen
class WorkerStarting:
    """A worker process of an evaluation is being started; ``worker`` numbers all that the evaluation starts."""

    eval: str
    worker: int


@attrs.frozen
class WorkerReady:
    """A worker has loaded its environment, which took ``loading_s``, and takes rollouts."""

    eval: str
    worker: int
    pid: int
    loading_s: float


@attrs.frozen
class WorkerEnded:
    """A worker is gone. ``displaced`` rollouts were in it unanswered, and are played elsewhere.

    ``how`` is ``not spawned``, ``died loading``, ``died serving`` or, where it was told to end or ended with the run,
    ``retired``; ``why`` is one line, with the exit code or the signal.
    """

    eval: str
    worker: int
    how: str
    why: str
    displaced: int = 0
    log: str = ""
    """The file with what it printed, relative to the run's folder; empty where there is none."""


@attrs.frozen
class WorkersChanged:
    """The workers of an evaluation are in another state, or others of them are ready, than before."""

    status: WorkersStatus


@attrs.frozen
class ImageFetching:
    """A container image is being delivered; ``source`` is the lane."""

    image: str
    source: str


@attrs.frozen
class ImageReady:
    """A container image was delivered in ``seconds``, from the start of that delivery."""

    image: str
    source: str
    seconds: float
    size_bytes: int


@attrs.frozen
class ImageTrouble:
    """A delivery failed. ``outcome`` is ``missing``, ``denied``, ``throttled``, ``unfit``, ``broken``, ``disk full`` or
    ``engine silent``; ``retry_s`` says in how many seconds that source is asked for it again, ``None``: never.
    """

    image: str
    source: str
    outcome: str
    why: str
    retry_s: float | None = None


@attrs.frozen
class ImageFailed:
    """No source gives an image; the samples that need it are errors."""

    image: str
    why: str


@attrs.frozen
class ImageReleased:
    """An image that was brought is removed again, or is left for ``why``."""

    image: str
    why: str = ""


@attrs.frozen
class ImagesChanged:
    """The images of the run are doing another way than before."""

    status: ImagesStatus


@attrs.frozen
class Stalled:
    """Nothing has come of the run for ``quiet_s`` seconds although something is owed; ``picture`` shows everything."""

    quiet_s: float
    picture: Picture


@attrs.frozen
class Warned:
    """Something is wrong that does not end the run."""

    message: str


@attrs.frozen
class EvalGaveUp:
    """An evaluation stopped waiting for its pool."""

    eval: str
    why: str


Event: TypeAlias = (
    "RunStarted | EvalSized | RunStopping"
    " | EndpointJoined | EndpointChanged | EndpointDraining | EndpointLeft | HealthChanged | LeasesRevoked"
    " | LimitMoved | SessionsMoved"
    " | WorkerStarting | WorkerReady | WorkerEnded | WorkersChanged"
    " | ImageFetching | ImageReady | ImageTrouble | ImageFailed | ImageReleased | ImagesChanged"
    " | NetworkLost | NetworkBack | SourceChanged | AttemptStarted | AttemptEnded | AttemptDropped | CallEnded"
    " | RolloutStarted | RolloutFinished | PoolWaiting | EvalGaveUp | Stalled | Warned"
)
Observer: TypeAlias = Callable[[Event], None]
