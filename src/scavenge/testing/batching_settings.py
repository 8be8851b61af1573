"""What a simulated server with continuous batching is made of; see :mod:`scavenge.testing.batching`. Pure."""

from __future__ import annotations

import math

import attrs
from attrs import validators


@attrs.frozen
class BatchingSettings:
    """What a simulated server is made of; the defaults are those of an 8B model on one H100."""

    weights_s: float = attrs.field(default=0.006, validator=[validators.gt(0), validators.lt(math.inf)])
    """W: seconds to read the weights once; no step is shorter."""
    gemm_s: float = attrs.field(default=32e-6, validator=[validators.ge(0), validators.lt(math.inf)])
    """g: seconds of arithmetic for each token of a step."""
    kv_read_s: float = attrs.field(default=0.049e-6, validator=[validators.ge(0), validators.lt(math.inf)])
    """R: seconds to read one token of context."""
    attention_s: float = attrs.field(default=1.06e-9, validator=[validators.ge(0), validators.lt(math.inf)])
    """Q: seconds for each pair of a prefilled token and a token before it."""
    overhead_s: float = attrs.field(default=0.0015, validator=[validators.ge(0), validators.lt(math.inf)])
    """O: seconds of each step."""
    stream_s: float = attrs.field(default=15e-6, validator=[validators.ge(0), validators.lt(math.inf)])
    """o: seconds of each step for each running request."""
    kv_tokens: int = attrs.field(default=400_000, validator=validators.ge(1))
    """The size of the pool."""
    slots: int = attrs.field(default=256, validator=validators.ge(1))
    """How many requests run at once."""
    prefill_tokens: int = attrs.field(default=8192, validator=validators.ge(1))
    """How many tokens a step may have, decoded and prefilled together."""
    max_waiting: int | None = attrs.field(default=None, validator=validators.optional(validators.ge(0)))
    """How many requests may wait for a slot before the next is turned away; ``None``: any number."""
    max_in_flight: int | None = attrs.field(default=None, validator=validators.optional(validators.ge(1)))
    """How many may be there, running or waiting, before the next is turned away; ``None``: any number."""
    noise: float = attrs.field(default=0.0, validator=[validators.ge(0), validators.lt(1)])
    """Each run of steps draws a factor from ``[1 - noise, 1 + noise]`` on its time."""

    def turns_away(self, in_flight: int, slots: int) -> bool:
        """Whether the front door is closed for one more than *in_flight* requests."""
        if self.max_in_flight is not None and in_flight >= self.max_in_flight:
            return True
        return self.max_waiting is not None and in_flight >= slots + self.max_waiting
