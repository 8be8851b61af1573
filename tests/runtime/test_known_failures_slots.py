"""Ways in which slots were lost, hoarded or lent too slowly in other systems; each test names the public report."""

from __future__ import annotations

import cProfile
import itertools
from collections.abc import Callable
from random import Random

import pytest
import trio
from fleet_kit import open_kit

from scavenge.core.ledger import Ask, SlotLedger
from scavenge.core.retry import RetrySettings
from scavenge.runtime.dispatcher import Dispatcher
from scavenge.runtime.pool import Pool
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import Session
from scavenge.testing.engine import EngineSettings
from scavenge.testing.fleet import SimulatedFleet
from scavenge.testing.served import SimulatedServer
from scavenge.testing.sweep import cancel_at_every_step
from scavenge.types import Url

A, B = Url("http://a/v1"), Url("http://b/v1")


def calls_of(use: Callable[[], object]) -> int:
    """How many calls of functions *use* makes, built-in ones included: no other load of the machine changes that."""
    profile = cProfile.Profile()
    profile.runcall(use)
    return sum(entry.callcount for entry in profile.getstats())  # type: ignore[attr-defined]


def drain(queued: int, endpoints: int = 8, slots: int = 8) -> None:
    """Queue so many tickets, then grant and give back until all had their turn."""
    ledger = SlotLedger()
    for number in range(endpoints):
        ledger.join(Url(f"http://e{number}/v1"), slots)
    for age in range(queued):
        ledger.enqueue(Ask((age,)))
    held = [lease for _, lease in ledger.grant()]
    served = len(held)
    while held:
        ledger.give_back(held.pop(0))
        more = [lease for _, lease in ledger.grant()]
        assert len(more) <= 1
        served += len(more)
        held += more
    assert served == queued
    assert ledger.waiting == 0


def test_twenty_thousand_queued_over_64_slots_cost_no_more_each_than_a_thousand() -> None:
    """PrimeIntellect-ai/verifiers#957: every release woke every waiter, and 8 000 units took 60 times too long."""
    few, many = calls_of(lambda: drain(1_000)) / 1_000, calls_of(lambda: drain(20_000)) / 20_000
    assert many < 1.3 * few


def test_a_dispatcher_wakes_one_task_a_release_however_many_wait() -> None:
    """PrimeIntellect-ai/verifiers#957: the same, with the tasks that wait."""

    class Steps(trio.abc.Instrument):
        count = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.count += 1

    def steps_of(tasks: int) -> int:
        async def work() -> None:
            ledger = SlotLedger()
            ledger.join(A, 64)
            dispatcher = Dispatcher(ledger)

            async def use(age: int) -> None:
                async with dispatcher.lease(Ask((age,))):
                    await trio.sleep(0.001)

            async with trio.open_nursery() as nursery:
                for age in range(tasks):
                    nursery.start_soon(use, age)

        steps = Steps()
        trio.run(work, instruments=[steps], clock=trio.testing.MockClock(autojump_threshold=0))
        return steps.count

    few, many = steps_of(200) / 200, steps_of(2_000) / 2_000
    assert many == pytest.approx(few, rel=0.1)
    assert many < 6


async def test_a_group_among_singles_that_keep_every_slot_busy_starts_after_the_longest_of_them(autojump_clock) -> None:
    """PrimeIntellect-ai/verifiers#957: with 48 singles on 32 slots a group of 8 never ran."""
    ledger = SlotLedger()
    ledger.join(A, 32)
    dispatcher, chance, comes = Dispatcher(ledger), Random(3), itertools.count()
    waited: list[float] = []

    async def singles() -> None:
        while len(waited) < 3:
            async with dispatcher.lease(Ask((next(comes),))):
                await trio.sleep(chance.uniform(0.05, 0.5))

    async def group() -> None:
        for _ in range(3):
            await trio.sleep(5)
            asked_at = trio.current_time()
            async with dispatcher.lease(Ask((next(comes),), slots=8)):
                waited.append(trio.current_time() - asked_at)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group)
            for _ in range(48):
                nursery.start_soon(singles)
    assert max(waited) < 2 * 0.5  # those before it in the queue, and then what runs on the slots that it gets


async def test_who_gives_up_waiting_is_lent_nothing_and_nobody_above_the_cap(autojump_clock) -> None:
    """seangalliher/ProbOS#1025: waits that time out let five in where one was allowed."""
    ledger = SlotLedger()
    ledger.join(A, 1)
    dispatcher = Dispatcher(ledger)
    inside = peak = served = 0

    async def use(age: int) -> None:
        nonlocal inside, peak, served
        with trio.move_on_after(0.1 * (age % 7)):
            held = await dispatcher.acquire(Ask((age,)))
            inside += 1
            peak = max(peak, inside)
            try:
                await trio.sleep(0.05)
                served += 1
            finally:
                inside -= 1
                dispatcher.release(held)

    async with trio.open_nursery() as nursery:
        for age in range(50):
            nursery.start_soon(use, age)
    assert (peak, ledger.lent(A), ledger.waiting) == (1, 0, 0)
    assert served > 0


def test_a_request_cancelled_at_any_step_of_its_failover_leaves_nothing_behind() -> None:
    """seangalliher/ProbOS#1025: a permit that is taken or given back for the wrong endpoint on the way to another."""
    pools: list[Pool] = []
    fleets: list[SimulatedFleet] = []

    async def use() -> None:
        engine = EngineSettings(0.01, 0.001, 1)
        script = "t=0 error ep1; t=0 busy ep2 retry_after=3 for=2.5; t=20 kill ep3; t=21 restart ep3"
        fleet = SimulatedFleet([SimulatedServer(f"ep{n}", engine, max_concurrent=1) for n in (1, 2, 3)], script)
        async with open_kit(fleet) as kit:
            pools[:], fleets[:] = [kit.pool], [fleet]
            session = Session(kit.pool, 0, RequestSettings(retry=RetrySettings(max_retries=9)), kit.ports)
            for _ in range(3):
                await session.chat([{"role": "user", "content": "hi"}])

    def nothing_is_left() -> None:
        if not pools:
            return  # cancelled before there was anything
        ledger = pools[0].dispatcher.ledger
        assert [ledger.lent(url) for url in pools[0].members] == [0] * len(pools[0].members)
        assert ledger.waiting == 0
        assert not pools[0].dispatcher.held()
        assert not any(node.host.in_flight for node in fleets[0].nodes.values())

    assert cancel_at_every_step(use, nothing_is_left) > 20
