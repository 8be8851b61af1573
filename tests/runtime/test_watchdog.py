"""A run that gets nowhere is reported, whatever the cause; a run that gets on, however slowly, is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from fleet_kit import Kit, Questions, open_kit

from scavenge.core.ledger import Ask
from scavenge.events import EvalGaveUp, Event, Stalled, Warned
from scavenge.rollouts import Example, Rollout
from scavenge.runtime.ports import ModelSession
from scavenge.runtime.run import RunLimits
from scavenge.runtime.watchdog import Watchdog
from scavenge.testing.engine import EngineSettings
from scavenge.testing.fleet import SimulatedFleet
from scavenge.testing.host import SimulatedServer
from scavenge.types import EndpointId

FOR_EVER = RunLimits(stall_timeout=0)


def fleet(script: str = "", token_s: float = 0.01) -> SimulatedFleet:
    engine = EngineSettings(token_s, 0.0, 8, tokens_per_event=1)
    return SimulatedFleet([SimulatedServer("ep1", engine)], script)


@asynccontextmanager
async def watched(kit: Kit) -> AsyncIterator[list[Event]]:
    """Watch a run; what the watchdog tells is in the list that it gets."""
    told: list[Event] = []
    watchdog = Watchdog(kit.fleet, told.append)

    async def hear() -> None:
        heard = 0
        while True:
            for event in kit.events[heard:]:
                watchdog(event)
            heard = len(kit.events)
            await trio.sleep(1)

    async with trio.open_nursery() as watching:
        watching.start_soon(hear)
        watching.start_soon(watchdog.run_watchdog, name="watchdog")
        yield told
        watching.cancel_scope.cancel()


async def told_of(kit: Kit, environment: Questions, seconds: float, **settings: object) -> list[Stalled]:
    """What is told of a run within some time."""
    async with watched(kit) as told:
        with trio.move_on_after(seconds):
            await kit.play(kit.job(environment, **settings))
    assert all(isinstance(event, Stalled) for event in told)
    return [event for event in told if isinstance(event, Stalled)]


class Stuck(Questions):
    """Never comes back from its own code."""

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        await self.wait_for_nobody()
        raise AssertionError

    async def wait_for_nobody(self) -> None:
        await trio.Event().wait()


async def test_a_run_that_is_stuck_in_an_environment_is_told_at_each_doubling_with_the_line(autojump_clock):
    async with open_kit(fleet()) as kit:
        told = await told_of(kit, Stuck(3), 1300)
    assert [round(event.quiet_s, -1) for event in told] == [300, 600, 1200]
    stacks = [task.stack for task in told[0].picture.tasks if task.name.startswith("rollout")]
    assert len(stacks) == 3
    assert all(any("Stuck.wait_for_nobody" in place for place in stack) for stack in stacks)


async def test_slots_that_never_come_back_are_told_although_the_endpoint_answers_its_probes(autojump_clock):
    async with open_kit(fleet(), limit=2) as kit:
        await trio.sleep(5)
        for age in range(2):
            await kit.pool.acquire(Ask((age,)))  # held by nobody who will release it
        told = await told_of(kit, Questions(3), 400)
        assert len(told) == 1
        (pool,) = told[0].picture.pools
        assert [endpoint.state for endpoint in pool.status.endpoints] == ["live"]
        assert pool.leases_in_all == 2
        assert min(lease.age_s for lease in pool.leases) > 295
        assert pool.status.waiting == 1


async def test_waiting_for_an_endpoint_is_told_once_it_is_long_and_as_what_it_is(autojump_clock):
    async with open_kit(fleet("t=100000 join ep1"), limits=FOR_EVER) as kit:
        told = await told_of(kit, Questions(3), 400)
        assert [pool.why for event in told for pool in event.picture.pools] == ["no endpoint is listed"]


async def test_a_server_that_is_busy_for_ever_is_told(autojump_clock):
    async with open_kit(fleet("t=0 busy ep1"), limits=FOR_EVER) as kit:
        told = await told_of(kit, Questions(3), 500)
        assert len(told) == 1
        assert len(kit.events) > 20


async def test_a_long_reply_that_keeps_coming_is_no_stall(autojump_clock):
    async with open_kit(fleet(token_s=20.0)) as kit:
        assert await told_of(kit, Questions(1), 10_000) == []
        assert kit.lines.attempts()[0]["duration_s"] > 320


async def test_a_long_reply_that_comes_whole_is_told_and_ends_well(autojump_clock):
    async with open_kit(fleet(token_s=20.0)) as kit:
        told = await told_of(kit, Questions(1), 10_000, stream=False)
        assert told
        assert [line["status"] for line in kit.lines.written] == ["ok"]


async def test_a_run_that_gets_on_is_never_told(autojump_clock):
    async with open_kit(fleet(token_s=1.0)) as kit:
        assert await told_of(kit, Questions(300), 100_000) == []
        assert len(kit.lines.written) == 300
        assert trio.current_time() > 600


async def test_a_failure_to_look_is_told_once_until_it_works_again(autojump_clock):
    broken = EndpointId("broken")
    async with open_kit(fleet()) as kit, watched(kit) as told:
        kit.fleet.pools[broken] = None  # type: ignore[assignment]  # any bug of ours
        await trio.sleep(400)
        assert isinstance(told[0], Warned)
        assert "AttributeError" in told[0].message
        assert [event.message for event in told[1:] if isinstance(event, Warned)] == [
            "nothing has come back for 300 s, and no picture can be taken of the run"
        ]
        assert len(told) == 2
        del kit.fleet.pools[broken]
        await trio.sleep(300)
        assert isinstance(told[2], Stalled)
        kit.fleet.pools[broken] = None  # type: ignore[assignment]
        await trio.sleep(10)
        assert isinstance(told[3], Warned)
        del kit.fleet.pools[broken]


async def test_replies_that_all_break_off_are_told_however_many_bytes_came(autojump_clock):
    dies = "; ".join(f"t={at} kill ep1; t={at + 5} restart ep1" for at in range(50, 600, 50))
    async with open_kit(fleet(dies, token_s=4.0), limits=FOR_EVER) as kit:
        told = await told_of(kit, Questions(1), 500)
        assert len(told) == 1
        assert max(endpoint.heard_s or 0 for pool in told[0].picture.pools for endpoint in pool.status.endpoints) < 60


async def test_a_run_that_gives_up_shows_what_there_was_to_see(autojump_clock):
    async with open_kit(fleet("t=1000 join ep1"), limits=RunLimits(stall_timeout=20)) as kit:
        watchdog = Watchdog(kit.fleet, kit.events.append)

        def hear(event: Event) -> None:
            kit.events.append(event)
            watchdog(event)

        kit.run.emit = hear
        await kit.play(kit.job(Questions(3), name="one"), kit.job(Questions(3), name="two"))
    assert [event.eval for event in kit.events if isinstance(event, EvalGaveUp)] == ["one", "two"]
    (told,) = [event for event in kit.events if isinstance(event, Stalled)]
    assert 19.0 <= told.picture.pools[0].stalled_s <= 21.0
    assert told.picture.pools[0].status.waiting == 2
