"""Faults of the listing, preemption notices and changes of capacity: what a source says of a simulated fleet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import trio

from scavenge.errors import ConfigError, SourceError
from scavenge.testing import (
    EngineSettings,
    FleetPlan,
    SimulatedFleet,
    SimulatedServer,
    cancel_at_every_step,
    faults,
    open_http_fleet,
)
from scavenge.types import ChatRequest, Endpoint, EndpointId, Lost, Ok, Url

MIDNIGHT = datetime(2030, 1, 1, tzinfo=UTC)
ENGINE = EngineSettings(token_s=0.05, load_s=0.01, slots=4)


def fleet_of(script: str = "", **settings) -> SimulatedFleet:
    servers = [SimulatedServer(name, ENGINE, **settings) for name in ("ep1", "ep2")]
    start = trio.current_time()
    return SimulatedFleet(servers, script, wall_clock=lambda: MIDNIGHT.timestamp() + trio.current_time() - start)


async def listed(fleet: SimulatedFleet) -> list[str]:
    return [row.url[7:10] for row in (await fleet.list_endpoints()).endpoints]


async def test_during_an_outage_the_source_cannot_say(autojump_clock):
    async with fleet_of("t=10 outage fleet for=5").open() as fleet:
        assert await listed(fleet) == ["ep1", "ep2"]
        await trio.sleep(14.9)
        with pytest.raises(SourceError, match="out of order"):
            await fleet.list_endpoints()
        await trio.sleep(0.1)
        assert await listed(fleet) == ["ep1", "ep2"]


async def test_an_empty_listing_is_a_listing(autojump_clock):
    async with fleet_of("t=10 empty fleet; t=20 heal fleet").open() as fleet:
        await trio.sleep(15)
        assert await listed(fleet) == []
        await trio.sleep(6)
        assert await listed(fleet) == ["ep1", "ep2"]


async def test_a_source_that_hangs_answers_when_that_is_over(autojump_clock):
    async with fleet_of("t=0 hang fleet for=7; t=20 hang fleet; t=25 heal fleet; t=30 leave ep2").open() as fleet:
        await trio.sleep(1)
        assert await listed(fleet) == ["ep1", "ep2"]
        assert trio.current_time() == 7
        await trio.sleep(14)
        assert await listed(fleet) == ["ep1", "ep2"]
        assert trio.current_time() == 25


async def test_the_latest_fault_of_the_listing_counts(autojump_clock):
    async with fleet_of("t=0 hang fleet for=100; t=5 outage fleet for=10; t=8 empty fleet for=20").open() as fleet:
        await trio.sleep(1)
        with pytest.raises(SourceError):
            await fleet.list_endpoints()
        assert trio.current_time() == 5
        await trio.sleep(11)
        assert await listed(fleet) == []
        await trio.sleep(12)
        assert await listed(fleet) == ["ep1", "ep2"]


async def test_faults_of_the_listing_touch_no_server(autojump_clock):
    async with fleet_of("t=0 outage fleet").open() as fleet:
        client = fleet.open_client(Endpoint(EndpointId("sim"), "sim", Url("http://ep1.sim/v1")))
        answer = await client.ask(ChatRequest([{"role": "user", "content": "1 + 1"}]))
        assert isinstance(answer.outcome, Ok)


@pytest.mark.parametrize("fault", [faults.Outage(3.0), faults.Empty(), faults.Hang(2.0), faults.Heal()])
async def test_a_fault_of_the_listing_can_be_caused_by_hand(fault, autojump_clock):
    async with fleet_of().open() as fleet:
        fleet.lister.apply(fault)
        assert fleet.lister.fault == (None if isinstance(fault, faults.Heal) else fault)
        fleet.lister.apply(faults.Heal())
        assert await listed(fleet) == ["ep1", "ep2"]


def test_cancelled_at_any_step_a_listing_that_hangs_leaves_nothing_behind():
    async def use() -> None:
        async with fleet_of("t=0 hang fleet for=1").open() as fleet:
            await trio.sleep(0.5)
            await fleet.list_endpoints()

    assert cancel_at_every_step(use, lambda: None) > 2


async def test_a_notice_is_listed_with_its_deadline_and_the_server_dies_then(autojump_clock):
    async with fleet_of("t=10 notice ep1 in=30; t=60 leave ep1; t=90 join ep1").open() as fleet:
        await trio.sleep(20)
        row, other = (await fleet.list_endpoints()).endpoints
        assert (row.draining, row.drain_deadline) == (True, MIDNIGHT + timedelta(seconds=40))
        assert (other.draining, other.drain_deadline) == (None, None)
        assert fleet.nodes["ep1"].host.alive
        await trio.sleep(20.5)
        assert not fleet.nodes["ep1"].host.alive
        assert await listed(fleet) == ["ep1", "ep2"]
        await trio.sleep(60)
        assert fleet.nodes["ep1"].host.alive
        row = (await fleet.list_endpoints()).endpoints[0]
        assert (row.draining, row.drain_deadline) == (None, None)


async def test_what_runs_at_the_deadline_is_reset(autojump_clock):
    async with fleet_of("t=0.1 notice ep1 in=0.3").open() as fleet:
        client = fleet.open_client(Endpoint(EndpointId("sim"), "sim", Url("http://ep1.sim/v1")))
        answer = await client.ask(ChatRequest([{"role": "user", "content": "1 + 1"}]))
        assert answer.outcome == Lost("http://ep1.sim/v1: connection reset")
        assert trio.current_time() == pytest.approx(0.4)


async def test_a_frozen_server_that_is_taken_away_resets_those_who_wait_at_its_door(autojump_clock):
    async with fleet_of("t=0 freeze ep1; t=0 notice ep1 in=2").open() as fleet:
        await trio.sleep(1)
        client = fleet.open_client(Endpoint(EndpointId("sim"), "sim", Url("http://ep1.sim/v1")))
        assert await client.probe("/models") == Lost("http://ep1.sim/v1: connection reset")
        assert trio.current_time() == 2


async def test_joining_takes_a_notice_back(autojump_clock):
    async with fleet_of("t=1 notice ep1 in=5; t=2 join ep1").open() as fleet:
        await trio.sleep(10)
        assert fleet.nodes["ep1"].host.alive
        assert (await fleet.list_endpoints()).endpoints[0].drain_deadline is None


async def test_another_cap_is_listed_and_outlasts_a_restart(autojump_clock):
    async with fleet_of("t=1 cap ep1 max_concurrent=2; t=2 restart ep1", max_concurrent=4).open() as fleet:
        await trio.sleep(3)
        assert [row.max_concurrent for row in (await fleet.list_endpoints()).endpoints] == [2, 4]
        assert fleet.nodes["ep1"].host.server.max_concurrent == 4


async def test_with_fewer_slots_more_wait(autojump_clock):
    async with fleet_of("t=0 cap ep1 slots=1").open() as fleet, trio.open_nursery() as nursery:
        await trio.sleep(0.01)
        client = fleet.open_client(Endpoint(EndpointId("sim"), "sim", Url("http://ep1.sim/v1")))
        for number in range(3):
            nursery.start_soon(client.ask, ChatRequest([{"role": "user", "content": f"story {number}"}]))
        await trio.sleep(0.01)
        assert (fleet.nodes["ep1"].host.running, fleet.nodes["ep1"].host.waiting) == (1, 2)


def test_a_server_cannot_be_called_as_the_listing_is():
    with pytest.raises(ConfigError) as caught:
        SimulatedFleet([SimulatedServer("fleet")])
    assert str(caught.value) == 'servers: the name "fleet" means the listing in scripts'


async def test_servers_on_sockets_have_the_same_faults():
    plan = FleetPlan([SimulatedServer("ep1"), SimulatedServer("ep2")], "t=1000 outage fleet; t=1000 notice ep1 in=9")
    async with open_http_fleet(plan) as fleet:
        fleet.lister.apply(faults.Outage())
        with pytest.raises(SourceError):
            await fleet.list_endpoints()
        fleet.lister.apply(faults.Empty())
        assert fleet.rows() == []
        fleet.lister.apply(faults.Heal())
        fleet.nodes["ep1"].apply(faults.Notice(0.0))
        row = fleet.rows()[0]
        assert row.draining is True
        assert row.drain_deadline is not None
        port = int(row.url.rpartition(":")[2].removesuffix("/v1"))
        assert not fleet.nodes["ep1"].host.alive
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", port)


async def test_whoever_follows_the_steps_hears_of_the_end_of_a_fault_of_the_listing():
    seen: list[tuple[float, str]] = []
    over = trio.Event()

    def note(step: faults.Step, _: object) -> None:
        seen.append((step.at_s, type(step.fault).__name__))
        if len(seen) == 6:
            over.set()

    script = "t=0 empty fleet for=0.02; t=0.01 hang fleet for=0.01; t=0.03 kill ep1; t=0.04 outage fleet for=0.01"
    async with open_http_fleet(FleetPlan([SimulatedServer("ep1")], script), note) as fleet:
        with trio.fail_after(10):
            await over.wait()
        assert fleet.lister.fault is None
    faults_seen = [(0, "Empty"), (0.01, "Hang"), (0.02, "Heal"), (0.03, "Kill"), (0.04, "Outage"), (0.05, "Heal")]
    assert seen == [(pytest.approx(at_s), name) for at_s, name in faults_seen]
