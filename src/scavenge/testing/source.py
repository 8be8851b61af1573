"""The endpoint source type ``simulated``: servers that exist while a run asks for them, for trying scavenge out.

Every run knows this type, and few use it: what the servers are made of is imported where it is needed.

versionadded: 0.1
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
from attrs import validators

from scavenge.errors import ConfigError

if TYPE_CHECKING:
    from scavenge.testing.engine_kinds import AnySettings
    from scavenge.testing.server import FleetPlan, HttpFleet


def server_names(count: int) -> list[str]:
    """The names that scripts use: ``ep1``, ``ep2`` ..."""
    return [f"ep{number}" for number in range(1, count + 1)]


@attrs.frozen
class SimulatedConfig:
    """The keys of a ``[[source]]`` of type ``simulated``."""

    servers: int = attrs.field(default=3, validator=[validators.ge(1), validators.le(1000)])
    """How many, named ``ep1``, ``ep2`` ...; one that joins in the script is absent until then."""
    slots: int = 8
    """How many streams each of them runs at once; more wait in its queue."""
    max_concurrent: int | None = attrs.field(default=None, validator=validators.optional(validators.ge(1)))
    """The cap that they are listed with; absent: none."""
    model: str = attrs.field(default="sim", validator=validators.min_len(1))
    endpoint_id: str = attrs.field(default="sim", validator=validators.min_len(1))
    script: str = ""
    """What happens to them, see :mod:`scavenge.testing.faults`; seconds count from when the source is opened."""
    token_s: float = 0.01
    """Seconds that a token takes on an idle server ..."""
    load_s: float = 0.001
    """... and that each running stream adds."""
    kv_tokens: int | None = attrs.field(default=None, validator=validators.optional(validators.ge(1)))
    """How many tokens of context each of them has room for, with a prefix cache in what the running streams leave free;
    absent: contexts cost nothing."""
    random_seed: int = 0

    def __attrs_post_init__(self) -> None:
        from scavenge.testing.faults import parse_script

        try:
            parse_script(self.script, server_names(self.servers))
        except ConfigError as error:
            raise ValueError("script: " + "; ".join(str(problem) for problem in error.problems)) from error
        self._engine()  # raises for what no engine can be

    def _engine(self) -> AnySettings:
        from scavenge.testing.batching_settings import BatchingSettings
        from scavenge.testing.engine import EngineSettings

        plain = EngineSettings(self.token_s, self.load_s, self.slots, tokens_per_event=1)
        if self.kv_tokens is None:
            return plain
        return BatchingSettings(
            weights_s=self.token_s, overhead_s=0.0, stream_s=self.load_s, kv_tokens=self.kv_tokens, slots=self.slots
        )

    def plan(self, first_port: int = 0) -> FleetPlan:
        """The servers that these keys ask for."""
        from scavenge.testing.served import SimulatedServer
        from scavenge.testing.server import FleetPlan

        servers = [
            SimulatedServer(name, self._engine(), self.model, self.endpoint_id, self.max_concurrent, metrics="vllm")
            for name in server_names(self.servers)
        ]
        return FleetPlan(servers, self.script, self.random_seed, first_port)


@asynccontextmanager
async def open_simulated(config: SimulatedConfig) -> AsyncIterator[HttpFleet]:
    """Start real HTTP servers on free loopback ports and yield the source that lists them as the script has it.

    Leaving, also by cancellation, ends the servers, every connection and every task.
    """
    from scavenge.testing.server import open_http_fleet

    async with open_http_fleet(config.plan()) as fleet:
        yield fleet
