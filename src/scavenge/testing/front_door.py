"""What stands before the engine of a simulated server: who is turned away, with what. Pure.

It must not know what becomes of a request that it lets in, nor when a fault ends.
"""

from __future__ import annotations

import random

import attrs

from scavenge.signals import ServerLoad
from scavenge.testing.engine import EngineSettings
from scavenge.testing.faults import Busy, Error
from scavenge.testing.served import GarbageReply, Refusal, SimulatedServer


@attrs.define
class FrontDoor:
    """The front door of one server; its host says which faults there are."""

    server: SimulatedServer
    random: random.Random
    busy: Busy | None = None
    error: Error | None = None
    garbage: bool = False

    @property
    def fails_all(self) -> bool:
        """Whether whoever gets past it comes to nothing."""
        return self.garbage or (self.error is not None and self.error.rate >= 1)

    def lift(self, name: str) -> None:
        """The fault of this name, if it is one of the front door, is over."""
        match name:
            case "busy":
                self.busy = None
            case "error":
                self.error = None
            case "garbage":
                self.garbage = False

    def check_token(self, secret: str | None) -> Refusal | None:
        """Whether a bearer token is the right one."""
        if self.server.secret not in (None, secret):
            return Refusal(401, "the bearer token is missing or wrong")
        return None

    def check(self, model: str, secret: str | None, prompt_tokens: int) -> Refusal | GarbageReply | None:
        """What a request for a completion gets; ``None`` lets it in."""
        if (refusal := self.check_token(secret)) is not None:
            return refusal
        if self.busy is not None:
            return Refusal(self.busy.status, "too many requests, come back later", self.busy.retry_after_s)
        if self.error is not None and self.random.random() < self.error.rate:
            return Refusal(self.error.status, "simulated error")
        if self.garbage:
            return GarbageReply()
        if model != self.server.model:
            return Refusal(404, f'the model "{model}" does not exist, this server has "{self.server.model}"')
        limit = self.server.context_tokens
        if limit is not None and prompt_tokens > limit:
            what = f"this model's maximum context length is {limit} tokens, the prompt has {prompt_tokens}"
            return Refusal(400, what)
        return None

    def figures(self, load: ServerLoad) -> ServerLoad | None:
        """What the server tells of its *load*: as much as the one whose pages it offers; ``None``: nothing."""
        match self.server.metrics:
            case "vllm":
                return attrs.evolve(load, slots=None)
            case "llama":
                return ServerLoad(running=load.running, slots=load.slots)
        return None

    @property
    def full(self) -> Refusal:
        """What a request gets that the engine has no room for."""
        if isinstance(self.server.engine, EngineSettings):
            return Refusal(503, "the queue is full")
        return Refusal(429, "too many requests are here already")
