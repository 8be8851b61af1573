"""What a closed loop is run on: a server, the requests that never end, and what happens to both. Frozen values only.

versionadded: 0.1
"""

from __future__ import annotations

import enum
from random import Random

import attrs
from attrs import validators

from scavenge.signals import ServerLoad
from scavenge.testing.agents import Spread
from scavenge.testing.batching import BatchingSettings

SHORTEST_PROMPT = 8
"""Tokens; what a chat template makes of nothing."""


@attrs.frozen
class RequestKind:
    """Requests that are alike."""

    prompt_tokens: Spread
    output_tokens: Spread
    most_output_tokens: int = attrs.field(default=16_384, validator=validators.ge(1))
    share: float = attrs.field(default=1.0, validator=validators.gt(0))
    """How often it comes, compared with the other kinds of a workload."""

    def draw(self, random: Random) -> tuple[int, int]:
        """Tokens of a prompt and of its reply, rounded down."""
        prompt = max(SHORTEST_PROMPT, int(self.prompt_tokens.draw(random)))
        return prompt, min(self.most_output_tokens, max(1, int(self.output_tokens.draw(random))))


@attrs.frozen
class Workload:
    """Requests of a few kinds, which are drawn independently."""

    kinds: tuple[RequestKind, ...] = attrs.field(validator=validators.min_len(1))

    def draw(self, random: Random) -> tuple[int, int]:
        """Tokens of a prompt and of its reply."""
        if len(self.kinds) == 1:
            return self.kinds[0].draw(random)
        return random.choices(self.kinds, [kind.share for kind in self.kinds])[0].draw(random)


@attrs.frozen
class Change:
    """Something that happens at an instant; what is ``None`` stays as it is."""

    at: float
    speed: float | None = None
    """How many times its normal speed the server has from now on."""
    kv: float | None = None
    """The part of its pool that the server has from now on."""
    slots: int | None = None
    down_s: float | None = None
    """The server is lost with everything in it, and is there again after so many seconds."""
    workload: Workload | None = None
    """What is asked for from now on."""


class Tells(enum.Enum):
    """What a server tells of itself."""

    NOTHING = "nothing"
    VLLM = "vllm"
    """``/metrics`` of vLLM: everything but the number of its slots."""
    LLAMA_CPP = "llama.cpp"
    """``/metrics`` and ``/slots`` of llama.cpp: what runs, what waits, and how many slots there are."""

    def of(self, load: ServerLoad) -> ServerLoad | None:
        """As much of the server's figures as it tells."""
        match self:
            case Tells.NOTHING:
                return None
            case Tells.VLLM:
                return attrs.evolve(load, slots=None)
            case Tells.LLAMA_CPP:
                return ServerLoad(running=load.running, waiting=load.waiting, slots=load.slots)


@attrs.frozen
class LoopCase:
    """A server and a backlog that has no end, for so many ``seconds`` of virtual time."""

    server: BatchingSettings
    workload: Workload
    seconds: float = attrs.field(validator=validators.gt(0))
    changes: tuple[Change, ...] = ()
    error_rate: float = attrs.field(default=0.0, validator=[validators.ge(0.0), validators.lt(1.0)])
    """The part of the requests that is answered with 500 when they arrive."""
    request_timeout_s: float | None = attrs.field(default=600.0)
    delay_s: float = attrs.field(default=0.05, validator=validators.ge(0.0))
    """How long a request is on its way to the server and its reply on the way back, all of it before it arrives."""
    streamed: bool = True
    tells: Tells = Tells.VLLM
    max_concurrent: int | None = None
    """The endpoint's own cap, which no policy may exceed."""
    opens_slowly: bool = False
    """Whether the server is new at the start, so that it opens up as after an outage."""
    sample_s: float = attrs.field(default=5.0, validator=validators.gt(0))
    """The time that one row of the report stands for."""

    @request_timeout_s.validator
    def _check_timeout(self, field: attrs.Attribute[float], value: float | None) -> None:
        if value is not None and not value > 0:
            raise ValueError(f"{field.name}: expected a number above 0, or None, got {value}")
