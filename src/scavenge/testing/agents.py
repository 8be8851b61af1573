"""Multi-turn sessions: contexts that grow from call to call, with the pauses of tools in between. Pure.

It decides what each session will ask for and how long its tools take, all of it before the session starts: the session
of a seed and an index is always the same, whoever serves it and however fast. So two ways of admitting sessions are
compared on the same work. It must not know servers, limits or time.

versionadded: 0.1
"""

from __future__ import annotations

import math
from random import Random

import attrs
from attrs import validators

_COUNT = validators.ge(1)
_SEED_STRIDE = 1_000_003  # a prime above any number of sessions, so that no two seeds share a session


@attrs.frozen
class Spread:
    """A log-normal distribution, by its mean and its standard deviation as a part of the mean; 0: always the mean."""

    mean: float = attrs.field(validator=validators.gt(0))
    variation: float = attrs.field(default=0.0, validator=validators.ge(0))

    def draw(self, random: Random) -> float:
        """One value."""
        if not self.variation:
            return self.mean
        variance = math.log(1 + self.variation**2)
        return random.lognormvariate(math.log(self.mean) - variance / 2, math.sqrt(variance))


@attrs.frozen
class Turn:
    """One call to the model and the pause after it."""

    prompt_tokens: int
    """The whole context that is sent."""
    known_tokens: int
    """Those of them that were sent or answered before: what a server with all of it in its cache need not read."""
    output_tokens: int
    tool_s: float
    """How long the session is busy with something else afterwards; 0 after its last turn."""

    @property
    def context_tokens(self) -> int:
        """The context once the reply is there."""
        return self.prompt_tokens + self.output_tokens


@attrs.frozen
class AgentWorkload:
    """What sessions are like: the defaults are those of a coding agent on an 8B model (3k to some 32k tokens)."""

    first_prompt_tokens: int = attrs.field(default=3000, validator=_COUNT)
    turns: Spread = Spread(25, 0.4)
    """How many calls a session makes, at least two."""
    output_tokens: Spread = Spread(250, 0.8)
    tool_tokens: Spread = Spread(900, 1.0)
    """What a tool's answer adds to the context."""
    tool_s: Spread = Spread(6.0, 1.0)
    max_context_tokens: int = attrs.field(default=60_000, validator=_COUNT)
    """A session ends with the first reply that takes its context beyond."""

    def session(self, seed: int, index: int) -> tuple[Turn, ...]:
        """The turns of one session, the first to the last."""
        random = Random(seed * _SEED_STRIDE + index)  # noqa: S311 - a simulation
        calls = max(2, round(self.turns.draw(random)))
        turns: list[Turn] = []
        prompt, known = self.first_prompt_tokens, 0
        while True:
            output = max(1, round(self.output_tokens.draw(random)))
            turns.append(Turn(prompt, known, output, self.tool_s.draw(random)))
            known = prompt + output
            if len(turns) == calls or known > self.max_context_tokens:
                break
            prompt = known + max(1, round(self.tool_tokens.draw(random)))
        turns[-1] = attrs.evolve(turns[-1], tool_s=0.0)
        return tuple(turns)
