"""Short lives of a lease that are cancelled at every step, by name."""

from __future__ import annotations

import trio

from scavenge.core.ledger import Ask
from scavenge.errors import LeaseRevoked
from scavenge.testing.sweep import cancel_at_every_step
from scavenge.types import Url

ONLY = Url("a")


def sweep(story, ledger_class, dispatcher_class):
    """Sweep one story; after each run nothing is lent and nobody waits. Returns how many runs it took."""
    made = []

    async def use():
        ledger = ledger_class()
        ledger.join(ONLY, 2)
        made.append(dispatcher_class(ledger))
        with trio.fail_after(60):  # of the virtual clock: a lost wake-up ends in an error
            await story(made[-1])

    def check():
        ledger = made[-1].ledger
        assert ledger.lent(ONLY) == 0, "slots were lost"
        assert ledger.waiting == 0, "a dead task is in the queue"
        assert ledger.kept is None, "an endpoint is kept free for a dead task"

    return cancel_at_every_step(use, check)


async def acquire_at_once_and_hold(dispatcher):
    async with dispatcher.lease(Ask((1,))):
        await trio.sleep(1)


async def wait_in_the_queue_and_hold(dispatcher):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_hold_for, dispatcher, 2, 1)
        await trio.sleep(0.5)
        async with dispatcher.lease(Ask((1,))):
            await trio.sleep(1)


async def wait_as_a_group_before_others(dispatcher):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_hold_for, dispatcher, 1, 1)
        await trio.sleep(0.2)
        nursery.start_soon(_come_later, dispatcher)
        async with dispatcher.lease(Ask((1,), slots=2)):
            await trio.sleep(1)


async def acquire_here_and_use_in_another_task(dispatcher):
    async with trio.open_nursery() as nursery:
        for number in range(4):
            held = await dispatcher.acquire(Ask((number,)))
            nursery.start_soon(_use, held)


async def be_revoked_and_start_again(dispatcher):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_revoke_after, dispatcher, 0.5)
        try:
            async with dispatcher.lease(Ask((1,))):
                await trio.sleep(1)
        except LeaseRevoked:
            async with dispatcher.lease(Ask((1,))):
                await trio.sleep(1)


async def _hold_for(dispatcher, slots, seconds):
    async with dispatcher.lease(Ask((0,), slots)):
        await trio.sleep(seconds)


async def _come_later(dispatcher):
    await trio.sleep(0.2)
    async with dispatcher.lease(Ask((2,))):
        await trio.sleep(0.1)


async def _use(held):
    with held.using():
        await trio.sleep(1)


async def _revoke_after(dispatcher, seconds):
    await trio.sleep(seconds)
    dispatcher.revoke(ONLY)


SWEEPS = [
    acquire_at_once_and_hold,
    wait_in_the_queue_and_hold,
    wait_as_a_group_before_others,
    acquire_here_and_use_in_another_task,
    be_revoked_and_start_again,
]
