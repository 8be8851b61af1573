"""A transport to a simulated fleet whose answers a test changes: one server's requests, or its probes, go another way.

The rest, and what is heard of the servers, is the fleet's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from scavenge.core.flow import Stream
from scavenge.runtime.ports import ModelClient, RelayRequest
from scavenge.signals import ServerLoad
from scavenge.testing.fleet import SimulatedFleet
from scavenge.types import Answer, ChatRequest, Endpoint, Healthy, Outcome

Ask = Callable[[ModelClient, ChatRequest | RelayRequest], Awaitable[Answer]]
Probe = Callable[[ModelClient, str], "Awaitable[Healthy | Outcome]"]


def url(name: str) -> str:
    """Where a simulated server is."""
    return f"http://{name}.sim/v1"


@attrs.define(eq=False)
class Tampered:
    """``asks`` and ``probes`` say by the server's name what becomes of a request and of a probe."""

    fleet: SimulatedFleet
    asks: dict[str, Ask] = attrs.field(factory=dict)
    probes: dict[str, Probe] = attrs.field(factory=dict)

    def open_client(self, endpoint: Endpoint) -> ModelClient:
        name = endpoint.url.removeprefix("http://").removesuffix(".sim/v1")
        return TamperedClient(self, name, self.fleet.open_client(endpoint))


@attrs.define(eq=False)
class TamperedClient:
    """A client of the fleet with another's way of asking."""

    transport: Tampered
    name: str
    inner: ModelClient

    @property
    def heard_at(self) -> float:
        return self.inner.heard_at

    @property
    def reached_at(self) -> float:
        return self.inner.reached_at

    async def ask(self, request: ChatRequest | RelayRequest, stream: Stream | None = None) -> Answer:
        ask = self.transport.asks.get(self.name)
        return await (self.inner.ask(request, stream) if ask is None else ask(self.inner, request))

    async def probe(self, path: str) -> Healthy | Outcome:
        probe = self.transport.probes.get(self.name)
        return await (self.inner.probe(path) if probe is None else probe(self.inner, path))

    async def read_load(self) -> ServerLoad | None:
        return await self.inner.read_load()

    def close(self) -> None:
        self.inner.close()
