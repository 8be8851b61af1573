"""The network of this machine is lost: nobody is ejected for it, it is told once, and the run goes on afterwards."""

from __future__ import annotations

import trio
from cable import Cable
from fleet_kit import POOL, Kit, Questions, open_kit

from scavenge.core.health_settings import HealthSettings
from scavenge.core.retry import RetrySettings
from scavenge.events import HealthChanged, LeasesRevoked, NetworkBack, NetworkLost, PoolWaiting
from scavenge.runtime.run import RunLimits
from scavenge.testing.engine import EngineSettings
from scavenge.testing.fleet import SimulatedFleet
from scavenge.testing.served import SimulatedServer

HEALTH = HealthSettings(interval=5.0)


def slow(*names: str) -> list[SimulatedServer]:
    """Servers whose replies take about half a minute."""
    return [SimulatedServer(name, EngineSettings(1.0, 0.001, slots=4), max_concurrent=4) for name in names]


def whole(keys: list[object], count: int) -> bool:
    """Whether every sample has exactly one result."""
    return sorted(keys) == sorted(("test", str(number), 0) for number in range(count))


async def pull_between(cable: Cable, start_s: float, end_s: float) -> None:
    await trio.sleep(start_s)
    cable.pull()
    await trio.sleep(end_s - start_s)
    cable.plug()


def ejected(kit: Kit) -> set[str]:
    return {event.url for event in kit.events if isinstance(event, HealthChanged) and event.new == "ejected"}


async def play(kit: Kit, cable: Cable, count: int, start_s: float, end_s: float, **settings: object) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pull_between, cable, start_s, end_s)
        await kit.play(kit.job(Questions(count), **settings))


async def test_streams_outlive_a_short_loss_of_the_network_and_nobody_is_blamed(autojump_clock):
    fleet = SimulatedFleet(slow("ep1", "ep2", "ep3"))
    cable = Cable(fleet)
    async with open_kit(fleet, transport=cable, health=HEALTH) as kit:
        await play(kit, cable, 40, 20.0, 80.0)
        assert whole(kit.lines.keys, 40)
        assert all(line["status"] == "ok" and len(line["attempts"]) == 1 for line in kit.lines.written)
        assert not ejected(kit)
        assert not any(isinstance(event, LeasesRevoked) for event in kit.events)
        (lost,) = [event for event in kit.events if isinstance(event, NetworkLost)]
        (back,) = [event for event in kit.events if isinstance(event, NetworkBack)]
        assert lost.hosts == 3
        assert 55.0 <= back.lost_s <= 65.0
        assert kit.fleet.status(trio.current_time()).network_down_s is None


async def test_requests_that_time_out_meanwhile_are_sent_again_free_of_charge(autojump_clock):
    fleet = SimulatedFleet(slow("ep1", "ep2", "ep3"))
    cable = Cable(fleet)
    async with open_kit(fleet, transport=cable, health=HEALTH) as kit:
        retry = RetrySettings(max_retries=0, max_lost=1)
        await play(kit, cable, 40, 20.0, 600.0, idle_timeout=60.0, retry=retry)
        assert whole(kit.lines.keys, 40)
        assert all(line["status"] == "ok" for line in kit.lines.written)
        assert any(attempt["outcome"] == "lost" for attempt in kit.lines.attempts())
        assert not ejected(kit)


async def test_no_request_is_sent_while_the_network_is_known_to_be_lost(autojump_clock):
    fleet = SimulatedFleet(slow("ep1", "ep2", "ep3"))
    cable = Cable(fleet)
    async with open_kit(fleet, transport=cable, health=HEALTH, limits=RunLimits(stall_timeout=10_000)) as kit:
        await play(kit, cable, 60, 20.0, 920.0, idle_timeout=30.0)
        attempts = kit.lines.attempts()
        assert len(attempts) <= 60 + 2 * 12  # those that were under way, and at most one more on each slot
        waits = [event for event in kit.events if isinstance(event, PoolWaiting) and event.why]
        assert waits
        assert "network" in waits[-1].why


async def test_a_server_that_is_still_dead_when_the_network_is_back_is_ejected_then(autojump_clock):
    fleet = SimulatedFleet(slow("ep1", "ep2", "ep3"), "t=40 kill ep2")
    cable = Cable(fleet)
    async with open_kit(fleet, transport=cable, health=HEALTH) as kit:
        await play(kit, cable, 40, 20.0, 80.0)
        assert whole(kit.lines.keys, 40)
        assert ejected(kit) == {"http://ep2.sim/v1"}
        assert all(line["status"] == "ok" for line in kit.lines.written)


async def test_one_host_that_falls_silent_among_others_is_its_own_fault(autojump_clock):
    fleet = SimulatedFleet(slow("ep1", "ep2", "ep3"))
    cable = Cable(fleet, only=frozenset({"http://ep1.sim/v1"}))
    async with open_kit(fleet, transport=cable, health=HEALTH) as kit:
        await play(kit, cable, 40, 20.0, 200.0)
        assert ejected(kit) == {"http://ep1.sim/v1"}
        assert not any(isinstance(event, NetworkLost) for event in kit.events)
        assert any(isinstance(event, LeasesRevoked) for event in kit.events)
        assert whole(kit.lines.keys, 40)


async def test_a_single_host_cannot_tell_and_is_ejected(autojump_clock):
    fleet = SimulatedFleet(slow("ep1"))
    cable = Cable(fleet)
    async with open_kit(fleet, transport=cable, health=HEALTH) as kit:
        await play(kit, cable, 10, 20.0, 200.0)
        assert ejected(kit) == {"http://ep1.sim/v1"}
        assert whole(kit.lines.keys, 10)


async def test_a_run_gives_up_after_the_stall_timeout_without_a_network(autojump_clock):
    fleet = SimulatedFleet(slow("ep1", "ep2"))
    cable = Cable(fleet)
    async with open_kit(fleet, transport=cable, health=HEALTH, limits=RunLimits(stall_timeout=120)) as kit:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull_between, cable, 20.0, 100_000.0)
            await kit.play(kit.job(Questions(40)))
            nursery.cancel_scope.cancel()
        (error,) = kit.run.stalled
        assert "network" in str(error)
        assert error.exit_code == 4
        assert kit.pool.endpoint_id == POOL
