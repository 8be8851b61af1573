"""A whole run in memory over sources that die and hand endpoints over: no request notices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio
from fleet_kit import Questions, open_kit

from scavenge.events import EndpointChanged, EndpointJoined, HealthChanged, SourceChanged
from scavenge.listings import Listing
from scavenge.runtime.sources import NamedSource, lent
from scavenge.testing.engine import EngineSettings
from scavenge.testing.fleet import SimulatedFleet
from scavenge.testing.served import SimulatedServer


def fleet() -> SimulatedFleet:
    return SimulatedFleet([SimulatedServer(name, EngineSettings(0.5, 0.0, 8)) for name in ("ep1", "ep2")])


@attrs.define
class Part:
    """Lists some servers of a fleet, others from ``later_at`` on; each of its lives ends after ``life_s``."""

    fleet: SimulatedFleet
    names: Sequence[str]
    life_s: float = float("inf")
    later_at: float = float("inf")
    later: Sequence[str] = ()
    lives: int = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Part]:
        self.lives += 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._die)
            yield self
            nursery.cancel_scope.cancel()

    async def _die(self) -> None:
        await trio.sleep(self.life_s)
        raise ConnectionError("watch lost")

    async def list_endpoints(self) -> Listing:
        listing = await self.fleet.list_endpoints()
        names = self.names if trio.current_time() < self.later_at else self.later
        return Listing([row for row in listing.endpoints if any(f"//{name}." in str(row) for name in names)])


async def test_a_source_that_dies_again_and_again_costs_no_request(autojump_clock):
    servers = fleet()
    dying = Part(servers, ["ep1"], life_s=3.0)
    sources = [NamedSource("dying", dying.open), lent("steady", Part(servers, ["ep2"]))]
    async with open_kit(servers, sources=sources) as kit:
        await kit.play(kit.job(Questions(200)))
    assert dying.lives > 3
    assert len(set(kit.lines.keys)) == len(kit.lines.keys) == 200
    assert {attempt["outcome"] for attempt in kit.lines.attempts()} == {"ok"}
    assert len({attempt["endpoint"] for attempt in kit.lines.attempts()}) == 2
    assert sum(isinstance(event, EndpointJoined) for event in kit.events) == 2
    told = [event.message for event in kit.events if isinstance(event, SourceChanged)]
    place = f"(test_run_sources.py, line {Part._die.__code__.co_firstlineno + 2})"
    assert told[0] == f"died: ConnectionError: watch lost {place}; the last good listing, 1 endpoint, stands"
    assert told[1].startswith("readable again after 0:0")
    assert len(told) in (2 * dying.lives - 2, 2 * dying.lives - 1)


async def test_an_endpoint_that_goes_from_one_source_to_another_works_on(autojump_clock):
    servers = fleet()
    first = Part(servers, ["ep1", "ep2"], later_at=10.0, later=["ep2"])
    sources = [lent("first", first), lent("second", Part(servers, ["ep1"]))]
    async with open_kit(servers, sources=sources) as kit:
        await kit.play(kit.job(Questions(200)))
    assert trio.current_time() > 12
    changes = [event for event in kit.events if isinstance(event, EndpointChanged)]
    assert [(event.url, event.what) for event in changes] == [("http://ep1.sim/v1", "source")]
    after = kit.events[kit.events.index(changes[0]) :]
    assert not any(isinstance(event, HealthChanged) for event in after)
    assert {attempt["outcome"] for attempt in kit.lines.attempts()} == {"ok"}
