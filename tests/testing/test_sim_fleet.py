"""The fleet in memory, on a virtual clock."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock

import scavenge.testing
from scavenge.errors import ConfigError, UsageError
from scavenge.testing import EngineSettings, SimulatedFleet, SimulatedServer, cancel_at_every_step, faults
from scavenge.testing.driver import TrioDriver
from scavenge.testing.node import Bell
from scavenge.types import ChatRequest, Endpoint, EndpointId, Healthy, Lost, LostCause, Ok, Url

ENGINE = EngineSettings(token_s=0.05, load_s=0.01, slots=4)


def endpoint(name: str, **settings) -> Endpoint:
    return Endpoint(EndpointId("sim"), "sim", Url(f"http://{name}.sim/v1"), **settings)


def question(text: str = "What is 2 + 3?", **settings) -> ChatRequest:
    return ChatRequest([{"role": "user", "content": text}], **settings)


def fleet_of(*names: str, script: str = "", **settings) -> SimulatedFleet:
    return SimulatedFleet([SimulatedServer(name, ENGINE, **settings) for name in names], script)


async def test_a_reply_takes_as_long_as_the_engine_says(autojump_clock):
    async with fleet_of("ep1").open() as fleet:
        answer = await fleet.open_client(endpoint("ep1")).ask(question())
        assert isinstance(answer.outcome, Ok)
        assert trio.current_time() == pytest.approx(answer.outcome.reply.usage.completion_tokens * 0.06)
        assert answer.first_byte_s == pytest.approx(0.06)
        assert answer.outcome.reply.raw["choices"][0]["message"]["content"] == answer.outcome.reply.text


async def test_the_server_measures_the_peak_itself(autojump_clock):
    async with fleet_of("ep1").open() as fleet, trio.open_nursery() as nursery:
        client = fleet.open_client(endpoint("ep1"))
        for number in range(7):
            nursery.start_soon(client.ask, question(f"story {number}"))
        await trio.sleep(0.01)
        assert (fleet.nodes["ep1"].host.running, fleet.nodes["ep1"].host.waiting) == (4, 3)
    truth = fleet.truth["ep1"]
    assert (truth.peak_in_flight, truth.started, truth.finished) == (7, 7, 7)


async def test_cancelling_a_request_stops_the_generation_at_once(autojump_clock):
    async with fleet_of("ep1").open() as fleet:
        with trio.move_on_after(0.1):
            await fleet.open_client(endpoint("ep1")).ask(question())
        assert fleet.nodes["ep1"].host.running == 0
        assert fleet.truth["ep1"].cancelled == 1


@pytest.mark.parametrize("script", ["", "t=0 freeze ep1 for=1; t=1.1 freeze ep1 for=1"])
@pytest.mark.parametrize("stream", [True, False])
def test_cancelled_at_any_step_a_request_leaves_nothing_behind(script, stream):
    fleets: list[SimulatedFleet] = []

    async def use() -> None:
        fleets.append(fleet_of("ep1", script=script))
        async with fleets[-1].open() as fleet:
            await fleet.open_client(endpoint("ep1")).ask(question(stream=stream))

    def check() -> None:
        truth = fleets[-1].truth["ep1"]
        assert fleets[-1].nodes["ep1"].host.in_flight == ()
        assert truth.started == truth.finished + truth.cancelled

    assert cancel_at_every_step(use, check) > 5
    assert fleets[-1].truth["ep1"].finished == 1
    assert any(fleet.truth["ep1"].cancelled for fleet in fleets)


async def test_the_listing_follows_the_script(autojump_clock):
    script = "t=10 join ep3; t=20 drain ep1; t=30 leave ep1; t=40 kill ep2; t=50 join ep1"
    async with fleet_of("ep1", "ep2", "ep3", script=script, max_concurrent=4).open() as fleet:

        async def listed_at(seconds: float) -> list[tuple[object, object]]:
            await trio.sleep_until(seconds + 0.5)
            listing = await fleet.list_endpoints()
            rows = listing.endpoints
            assert all((row.endpoint_id, row.model, row.max_concurrent) == ("sim", "sim", 4) for row in rows)
            return [(row.url[7:10], row.draining) for row in rows]

        assert await listed_at(0) == [("ep1", None), ("ep2", None)]
        assert await listed_at(10) == [("ep1", None), ("ep2", None), ("ep3", None)]
        assert await listed_at(20) == [("ep1", True), ("ep2", None), ("ep3", None)]
        assert await listed_at(30) == [("ep2", None), ("ep3", None)]
        assert await listed_at(40) == [("ep2", None), ("ep3", None)]
        assert await listed_at(50) == [("ep1", None), ("ep2", None), ("ep3", None)]


async def test_a_stream_that_outlasts_the_idle_time_is_not_idle(autojump_clock):
    async with fleet_of("ep1").open() as fleet:
        answer = await fleet.open_client(endpoint("ep1")).ask(question(idle_timeout_s=0.07))
        assert isinstance(answer.outcome, Ok)


async def test_waiting_for_a_slot_is_silence(autojump_clock):
    async with fleet_of("ep1").open() as fleet, trio.open_nursery() as nursery:
        client = fleet.open_client(endpoint("ep1"))
        for number in range(4):
            nursery.start_soon(client.ask, question(f"story {number}"))
        await trio.sleep(0.01)
        answer = await client.ask(question(idle_timeout_s=0.3))
        assert answer.outcome == Lost("nothing heard for 0.3 s", LostCause.SILENT)
        assert trio.current_time() == pytest.approx(0.31)
        assert fleet.truth["ep1"].cancelled == 1


async def test_a_frozen_stream_is_lost_after_the_idle_time_counted_from_the_freeze(autojump_clock):
    async with fleet_of("ep1", script="t=0.2 freeze ep1").open() as fleet:
        answer = await fleet.open_client(endpoint("ep1")).ask(question(idle_timeout_s=5))
        assert isinstance(answer.outcome, Lost)
        assert trio.current_time() == pytest.approx(5.2)


async def test_a_stream_goes_on_after_a_short_freeze(autojump_clock):
    async with fleet_of("ep1", script="t=0.2 freeze ep1 for=4; t=4.3 freeze ep1 for=4").open() as fleet:
        answer = await fleet.open_client(endpoint("ep1")).ask(question(idle_timeout_s=5))
        assert isinstance(answer.outcome, Ok)
        assert trio.current_time() == pytest.approx(8 + answer.outcome.reply.usage.completion_tokens * 0.06)


async def test_a_whole_reply_is_waited_for_as_long_as_it_takes(autojump_clock):
    async with fleet_of("ep1", script="t=0.2 freeze ep1 for=4000").open() as fleet:
        answer = await fleet.open_client(endpoint("ep1")).ask(question(stream=False, idle_timeout_s=5))
        assert isinstance(answer.outcome, Ok)
        assert trio.current_time() > 4000
        assert answer.first_byte_s == pytest.approx(trio.current_time())


async def test_a_server_that_dies_frozen_resets_those_who_wait_at_its_door(autojump_clock):
    async with fleet_of("ep1", script="t=0 freeze ep1; t=1 restart ep1").open() as fleet:
        await trio.sleep(0.1)
        client = fleet.open_client(endpoint("ep1"))
        assert (await client.ask(question())).outcome == Lost("http://ep1.sim/v1: connection reset")
        assert trio.current_time() == 1


async def test_a_server_that_is_restarted_and_frozen_in_one_instant_has_forgotten_who_waited(autojump_clock):
    async with fleet_of("ep1").open() as fleet, trio.open_nursery() as nursery:
        node, probed = fleet.nodes["ep1"], []
        node.apply(faults.Freeze())

        async def probe() -> None:
            probed.append(await fleet.open_client(endpoint("ep1")).probe("/models"))

        nursery.start_soon(probe)
        await trio.sleep(1)
        node.apply(faults.Restart())
        node.apply(faults.Freeze())
        await trio.sleep(1)
        assert probed == [Lost("http://ep1.sim/v1: connection reset")]


async def test_a_freeze_of_an_idle_server_ends_in_time(autojump_clock):
    async with fleet_of("ep1").open() as fleet:
        await trio.sleep(1)
        fleet.nodes["ep1"].apply(faults.Freeze(for_s=5))
        with trio.fail_after(100):
            assert await fleet.open_client(endpoint("ep1")).probe("/models") == Healthy()
        assert trio.current_time() == 6


async def test_a_probe_of_a_server_that_dies_frozen_is_lost(autojump_clock):
    async with fleet_of("ep1", script="t=0 freeze ep1; t=1 kill ep1").open() as fleet:
        await trio.sleep(0.1)
        client = fleet.open_client(endpoint("ep1"))
        assert await client.probe("/models") == Lost("http://ep1.sim/v1: connection reset")


async def test_a_host_of_another_fleet_is_unknown(autojump_clock):
    async with fleet_of("ep1").open() as fleet:
        client = fleet.open_client(endpoint("ep9"))
        assert (await client.ask(question())).outcome == Lost("http://ep9.sim/v1: no such host", LostCause.NETWORK)
        assert await client.probe("/models") == Lost("http://ep9.sim/v1: no such host", LostCause.NETWORK)
        client.close()


async def test_a_request_that_cannot_be_written_is_rejected(autojump_clock):
    async with fleet_of("ep1").open() as fleet:
        answer = await fleet.open_client(endpoint("ep1")).ask(question(options={"stop": {1, 2}}))
        assert answer.outcome.name == "rejected"
        assert fleet.truth["ep1"].started == 0


async def test_a_probe_of_another_path_finds_no_list(autojump_clock):
    async with fleet_of("ep1").open() as fleet:
        assert await fleet.open_client(endpoint("ep1")).probe("/health") == Healthy(listed=False)


async def test_an_error_of_the_body_comes_out_bare(autojump_clock):
    with pytest.raises(ValueError, match="mine"):
        async with fleet_of("ep1").open():
            raise ValueError("mine")


async def test_a_fleet_opens_once(autojump_clock):
    fleet = fleet_of("ep1")
    async with fleet.open():
        pass
    with pytest.raises(UsageError, match="can be opened once"):
        async with fleet.open():
            pytest.fail("it opened twice")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["ep1", "ep2", "ep1"], 'servers: the name "ep1" is there twice'),
        ([], "servers: expected at least one simulated server"),
    ],
)
def test_wrong_servers_are_refused(names, message):
    with pytest.raises(ConfigError) as caught:
        fleet_of(*names)
    assert str(caught.value) == message


def test_a_script_about_another_server_is_refused():
    with pytest.raises(ConfigError, match='unknown server "ep2"'):
        fleet_of("ep1", script="t=1 kill ep2")


@pytest.mark.parametrize("name", ["", "EP1", "a b", "ep1/v1"])
def test_a_name_that_is_no_host_name_is_refused(name):
    with pytest.raises(ValueError, match="'name' must match regex"):
        fleet_of(name)


def test_the_package_has_its_late_names_and_no_others():
    assert scavenge.testing.TrioDriver is TrioDriver
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = scavenge.testing.nothing


async def test_a_ring_before_the_wait_is_not_lost(autojump_clock):
    bell = Bell()
    bell.ring()
    bell.ring()
    await bell.wait_rung()
    with trio.move_on_after(1) as second:
        await bell.wait_rung()
    assert second.cancelled_caught


def churn(random_seed: int) -> tuple[object, ...]:
    """A day on a thousand servers that come and go, under a little load."""
    rng = random.Random(random_seed)
    names = [f"ep{number}" for number in range(1000)]
    script = ";".join(
        f"t={rng.uniform(0, 86400):.3f} {word} {rng.choice(names)}"
        for word in ("kill", "restart", "freeze", "heal", "slow", "busy", "leave", "join")
        for _ in range(250)
    )
    servers = [SimulatedServer(name, EngineSettings(noise=0.1)) for name in names]
    fleet = SimulatedFleet(servers, script, random_seed)
    outcomes: dict[str, int] = {}

    async def ask_now_and_then(name: str) -> None:
        client, my_rng = fleet.open_client(endpoint(name)), random.Random(f"{random_seed} {name}")
        for number in range(3):
            await trio.sleep(my_rng.uniform(0, 28000))
            answer = await client.ask(question(f"{name} {number}", idle_timeout_s=60))
            outcomes[answer.outcome.name] = outcomes.get(answer.outcome.name, 0) + 1

    async def main() -> float:
        async with fleet.open():
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(ask_now_and_then, name)
            await trio.sleep_until(86400)
            return trio.current_time()

    ended_at = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert ended_at >= 86400
    return outcomes, fleet.truth


def test_a_day_of_churn_on_a_thousand_servers_is_the_same_each_time():
    first, second = churn(7), churn(7)
    assert first == second
    assert set(first[0]) == {"ok", "lost", "busy"}
    assert sum(first[0].values()) == 3000
