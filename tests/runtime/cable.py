"""A cable between this machine and a simulated fleet, that can be pulled: packets vanish in both directions."""

from __future__ import annotations

import math

import attrs
import trio

from scavenge.core.flow import Stream
from scavenge.runtime.ports import ModelClient, RelayRequest, ReplySink
from scavenge.signals import ServerLoad
from scavenge.testing.fleet import SimulatedFleet
from scavenge.types import Answer, ChatRequest, Endpoint, Healthy, Lost, LostCause, Outcome

CONNECT_WITHIN_S = 10.0


@attrs.define(eq=False)
class Cable:
    """A transport to *fleet*. While it is pulled the servers go on, and nobody hears them."""

    fleet: SimulatedFleet
    only: frozenset[str] | None = None
    """The urls that are reached by it; ``None``: all."""
    pulled_at: float | None = None
    _plugged: trio.Event = attrs.field(factory=trio.Event)
    _waits: dict[trio.CancelScope, float] = attrs.field(factory=dict)
    """The idle times of the requests that are under way."""

    def open_client(self, endpoint: Endpoint) -> ModelClient:
        inner = self.fleet.open_client(endpoint)
        return inner if self.only is not None and endpoint.url not in self.only else FarClient(self, inner)

    def pull(self) -> None:
        self.pulled_at = trio.current_time()
        self._plugged = trio.Event()
        for scope, idle_s in self._waits.items():
            scope.deadline = self.pulled_at + idle_s

    def plug(self) -> None:
        self.pulled_at = None
        self._plugged.set()
        for scope in self._waits:
            scope.deadline = math.inf

    async def wait_plugged(self) -> None:
        await trio.lowlevel.checkpoint()
        while self.pulled_at is not None:
            await self._plugged.wait()


@attrs.define(eq=False)
class FarSink:
    """A sink to which nothing comes while the cable is pulled."""

    cable: Cable
    inner: ReplySink

    @property
    def begun(self) -> bool:
        return self.inner.begun

    async def take(self, events: bytes) -> None:
        await self.cable.wait_plugged()
        await self.inner.take(events)


@attrs.define(eq=False)
class FarClient:
    """A client whose server is at the other end of a cable."""

    cable: Cable
    inner: ModelClient

    @property
    def heard_at(self) -> float:
        return min(self.inner.heard_at, math.inf if self.cable.pulled_at is None else self.cable.pulled_at)

    @property
    def reached_at(self) -> float:
        return min(self.inner.reached_at, math.inf if self.cable.pulled_at is None else self.cable.pulled_at)

    async def ask(self, request: ChatRequest | RelayRequest, stream: Stream | None = None) -> Answer:
        cable = self.cable
        if isinstance(request, RelayRequest) and request.sink is not None:
            request = attrs.evolve(request, sink=FarSink(cable, request.sink))
        with trio.move_on_after(CONNECT_WITHIN_S) as connecting:
            await cable.wait_plugged()
        if connecting.cancelled_caught:
            return Answer(Lost(f"no answer within {CONNECT_WITHIN_S:g} s", LostCause.SILENT))
        with trio.CancelScope() as scope:
            cable._waits[scope] = request.idle_timeout_s
            try:
                answer = await self.inner.ask(request, stream)
                await cable.wait_plugged()
                return answer
            finally:
                del cable._waits[scope]
        return Answer(Lost("not a byte", LostCause.SILENT))

    async def probe(self, path: str) -> Healthy | Outcome:
        await self.cable.wait_plugged()
        return await self.inner.probe(path)

    async def read_load(self) -> ServerLoad | None:
        await self.cable.wait_plugged()
        return await self.inner.read_load()

    def close(self) -> None:
        self.inner.close()
