"""A hostile user of the network judge: witnesses that nobody can ask, settings that change in mid-probe, no probes."""

from __future__ import annotations

import attrs
import trio
from cable import Cable
from fleet_kit import open_kit
from tampered import Tampered, url
from test_network_lost import ejected, play, slow, whole

from scavenge.core.health_settings import HealthSettings
from scavenge.core.health_state import State
from scavenge.core.roster import Added, Changed, Removed
from scavenge.events import HealthChanged, NetworkBack, NetworkLost
from scavenge.runtime.run import RunLimits
from scavenge.testing.fleet import SimulatedFleet
from scavenge.types import Healthy, Misrouted

HEALTH = HealthSettings(interval=5.0)


async def test_a_host_that_refuses_our_key_does_not_hide_that_the_network_is_lost(autojump_clock):
    locked = [attrs.evolve(server, secret="other") for server in slow("locked")]
    fleet = SimulatedFleet([*slow("ep1", "ep2", "ep3"), *locked])
    cable = Cable(fleet)
    async with open_kit(fleet, transport=cable, health=HEALTH) as kit:
        await play(kit, cable, 40, 20.0, 200.0)
        assert whole(kit.lines.keys, 40)
        assert not ejected(kit)
        assert [event.hosts for event in kit.events if isinstance(event, NetworkLost)] == [4]


async def test_without_probes_a_run_goes_on_when_the_network_is_back(autojump_clock):
    fleet = SimulatedFleet(slow("ep1", "ep2", "ep3"))
    cable = Cable(fleet)
    health = HealthSettings(probe=False)
    async with open_kit(fleet, transport=cable, health=health, limits=RunLimits(stall_timeout=3600)) as kit:
        await play(kit, cable, 40, 20.0, 200.0, idle_timeout=30.0)
        assert not kit.run.stalled
        assert whole(kit.lines.keys, 40)
        assert trio.current_time() < 1000


async def test_a_probe_with_an_old_key_says_nothing_of_the_new_one(autojump_clock):
    fleet = SimulatedFleet(slow("ep1"))

    async def refuses_later(client, path):
        await trio.sleep(3)
        return Misrouted("status 401: the key is refused", curable=False)

    tampered = Tampered(fleet, probes={"ep1": refuses_later})
    async with open_kit(fleet, transport=tampered, health=HEALTH, poll_interval_s=1000.0) as kit:
        await trio.sleep(1)
        member = kit.pool.members[url("ep1")]
        del tampered.probes["ep1"]
        kit.fleet.apply([Changed(attrs.evolve(member.endpoint, key="NEW", secret="new"), ("key", "secret"))])
        await trio.sleep(5)
        assert member.health.state is State.LIVE
        await trio.sleep(60)
        assert member.health.next_probe_at is not None


async def test_an_answer_to_an_old_key_lets_nobody_in_with_a_new_one(autojump_clock):
    fleet = SimulatedFleet(slow("ep1"))

    async def answers_later(client, path):
        await trio.sleep(3)
        return Healthy()

    async def refuses(client, path):
        await trio.sleep(1)
        return Misrouted("status 401: the key is refused", curable=False)

    tampered = Tampered(fleet, probes={"ep1": answers_later})
    async with open_kit(fleet, transport=tampered, health=HEALTH, poll_interval_s=1000.0) as kit:
        await trio.sleep(1)
        member = kit.pool.members[url("ep1")]
        tampered.probes["ep1"] = refuses
        kit.fleet.apply([Changed(attrs.evolve(member.endpoint, key="NEW", secret="new"), ("key", "secret"))])
        await trio.sleep(10)
        assert member.health.state is State.MISCONFIGURED
        changed = [event for event in kit.events if isinstance(event, HealthChanged)]
        assert [event.new for event in changed] == ["misconfigured"]


async def test_a_live_endpoint_goes_on_being_probed_after_its_key_changed_in_mid_probe(autojump_clock):
    fleet = SimulatedFleet(slow("ep1"))

    async def answers_later(client, path):
        await trio.sleep(3)
        return await client.probe(path)

    tampered = Tampered(fleet, probes={"ep1": answers_later})
    async with open_kit(fleet, transport=tampered, health=HEALTH, poll_interval_s=1000.0) as kit:
        member = kit.pool.members[url("ep1")]
        await trio.sleep(9)  # live since 3 s, and the probe of 8 s is under way
        assert member.probing
        assert member.health.state is State.LIVE
        kit.fleet.apply([Changed(attrs.evolve(member.endpoint, key="NEW", secret="new"), ("key", "secret"))])
        await trio.sleep(20)
        assert member.probed_at > 20


async def test_a_proxy_that_is_no_longer_used_is_no_witness(autojump_clock):
    fleet = SimulatedFleet(slow("ep1", "ep2", "ep3"))
    cable = Cable(fleet)
    async with open_kit(fleet, transport=cable, health=HEALTH, poll_interval_s=10_000.0) as kit:
        for member in list(kit.pool.members.values()):
            through = attrs.evolve(member.endpoint, proxy=f"http://proxy-{member.host}:3128")
            kit.fleet.apply([Changed(through, ("proxy",))])
        await trio.sleep(10)
        for member in list(kit.pool.members.values()):
            kit.fleet.apply([Changed(attrs.evolve(member.endpoint, proxy=None), ("proxy",))])
        await trio.sleep(10)
        await play(kit, cable, 40, 20.0, 200.0)
        assert whole(kit.lines.keys, 40)
        assert not ejected(kit)
        assert any(isinstance(event, NetworkBack) for event in kit.events)


async def test_removing_thousands_of_endpoints_looks_at_each_once(autojump_clock):
    looks = 0

    async with open_kit(SimulatedFleet(slow("ep1"))) as kit:
        network, members = kit.fleet.network, kit.fleet.members

        def counted():
            nonlocal looks
            looks += 1
            return members()

        network.members = counted
        more = [attrs.evolve(next(iter(kit.pool.members.values())).endpoint, url=url(f"m{n}")) for n in range(50)]
        kit.fleet.apply([Added(one) for one in more])
        kit.fleet.apply([Removed(one) for one in more])
        assert looks == 0
