"""What a simulated server is told, takes on and counts: values without decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs
from attrs import validators

from scavenge.testing.engine import EngineSettings
from scavenge.testing.engine_kinds import AnySettings
from scavenge.testing.model import SimulatedReply


def _usual_metrics(server: SimulatedServer) -> Literal["vllm"] | None:
    return None if isinstance(server.engine, EngineSettings) else "vllm"


@attrs.frozen
class SimulatedServer:
    """The settings of one simulated server; ``name`` is what scripts call it."""

    name: str = attrs.field(validator=validators.matches_re("[a-z0-9-]+"))
    engine: AnySettings = attrs.field(factory=EngineSettings)
    model: str = "sim"
    endpoint_id: str = "sim"
    max_concurrent: int | None = None
    """The cap that it is listed with."""
    context_tokens: int | None = attrs.field(default=None, validator=validators.optional(validators.ge(1)))
    """Longer prompts are refused with status 400; ``None``: there is no limit."""
    secret: str | None = attrs.field(default=None, repr=False)
    """The bearer token it asks for; ``None``: it lets everybody in."""
    metrics: Literal["vllm", "llama"] | None = attrs.field(
        default=attrs.Factory(_usual_metrics, takes_self=True), validator=validators.in_(("vllm", "llama", None))
    )
    """Whose figures it offers: vLLM's ``/metrics``, llama.cpp's ``/props`` and ``/slots``, or none. A batching engine
    has vLLM's unless told otherwise, the other one none."""
    reports_cache: bool = True
    """Whether the usage of a reply says how much of the prompt was in the prefix cache, where there is one."""


@attrs.frozen
class Refusal:
    """A request that gets an error instead of a generation: an HTTP status and what the body says."""

    status: int
    message: str
    retry_after_s: float | None = None


@attrs.frozen
class GarbageReply:
    """A request that is answered with status 200 and a page of HTML."""


@attrs.define(eq=False)
class Generation:
    """One request that the server works on. Only its host changes it."""

    request_id: int
    reply: SimulatedReply
    wake: Callable[[], None]
    """Called when there is more to see; it neither waits nor raises."""
    tokens: int = 0
    """How many tokens of the reply there were when its host last looked."""
    first_at: float | None = None
    """When the first of them was there."""
    cached_tokens: int | None = None
    """How many of the prompt's tokens were in the prefix cache, as it is to be told; ``None``: it is not told."""
    finish_reason: str | None = None
    """Set with the last token: the reply's own, or ``abort``."""
    lost: bool = False
    """Whether the server died over it."""

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.lost or self.finish_reason is not None


@attrs.define
class Truth:
    """What a server really did, as only the server can know it."""

    started: int = 0
    finished: int = 0
    cancelled: int = 0
    lost: int = 0
    refused: int = 0
    tokens: int = 0
    """Tokens of the replies that were finished."""
    peak_in_flight: int = 0
    """The most requests that it had taken on at one time, running or waiting for a slot."""
