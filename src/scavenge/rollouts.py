"""Frozen values of an evaluation that every ring shares: samples, rollouts and their records. No decisions here."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from scavenge.types import Attempt, Json, Usage


@attrs.frozen
class Example:
    """One sample of a dataset. ``id`` is unique in it; ``error`` marks a row that could not be read."""

    id: str
    data: Json
    error: str | None = None
    images: tuple[str, ...] = ()
    """Canonical names of the container images that a rollout of it needs; scavenge fills it in."""


@attrs.frozen
class Rollout:
    """One sample played out and scored, as an environment returns it."""

    completion: object
    reward: float | None
    metrics: Mapping[str, float] = attrs.field(factory=dict)
    answer: object = None
    info: Json = attrs.field(factory=dict)


@attrs.frozen
class RolloutKey:
    """What makes a result unique in a run folder."""

    eval: str
    example_id: str
    rollout: int


@attrs.frozen
class ErrorInfo:
    """Why a rollout has no result. ``counts`` is false for what the circuit breaker must not count."""

    type: str
    message: str
    counts: bool = True
    misrouted: bool = False
    """Whether no endpoint would have it, for 401, 403, 404 or the like."""


@attrs.frozen
class Failure:
    """A rollout that came to nothing. ``final``: playing it afresh is of no use, whatever ``rollout_retries`` says."""

    error: ErrorInfo
    final: bool = False
    missing_image: str = ""
    """The container image that turned out not to be there; empty: it is not for want of one."""


@attrs.frozen
class Timing:
    """``queued_s`` waiting for slots, ``model_s`` with the model, ``total_s`` from start to end of the rollout."""

    queued_s: float = 0.0
    model_s: float = 0.0
    total_s: float = 0.0


@attrs.frozen
class RolloutRecord:
    """One finished rollout: a line of ``results.jsonl``. ``error`` is ``None`` when it is ok."""

    key: RolloutKey
    env_id: str
    reward: float | None = None
    metrics: Mapping[str, float] = attrs.field(factory=dict)
    prompt: object = None
    completion: object = None
    answer: object = None
    error: ErrorInfo | None = None
    usage: Usage = attrs.field(factory=Usage)
    timing: Timing = Timing()
    attempts: tuple[Attempt, ...] = ()
    info: Json = attrs.field(factory=dict)
