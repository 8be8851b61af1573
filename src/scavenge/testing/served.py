"""What a simulated server is told, takes on and counts: values without decisions."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from attrs import validators

from scavenge.testing.engine import EngineSettings
from scavenge.testing.model import SimulatedReply


@attrs.frozen
class SimulatedServer:
    """The settings of one simulated server; ``name`` is what scripts call it."""

    name: str = attrs.field(validator=validators.matches_re("[a-z0-9-]+"))
    engine: EngineSettings = attrs.field(factory=EngineSettings)
    model: str = "sim"
    endpoint_id: str = "sim"
    max_concurrent: int | None = None
    """The cap that it is listed with."""
    context_tokens: int | None = attrs.field(default=None, validator=validators.optional(validators.ge(1)))
    """Longer prompts are refused with status 400; ``None``: there is no limit."""
    secret: str | None = attrs.field(default=None, repr=False)
    """The bearer token it asks for; ``None``: it lets everybody in."""


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
    """How many tokens of the reply there are so far."""
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
