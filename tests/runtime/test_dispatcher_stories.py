"""Named stories of tasks that share slots, on a virtual clock."""

from __future__ import annotations

import signal
import sys

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from scavenge.core.ledger import Ask, SlotLedger
from scavenge.errors import LeaseRevoked, UsageError
from scavenge.runtime.dispatcher import Dispatcher
from scavenge.types import Url

A, B = Url("http://a/v1"), Url("http://b/v1")


def make(elastic=True, on_change=None, **limits):
    ledger = SlotLedger()
    for url, limit in limits.items():
        ledger.join(Url(f"http://{url}/v1"), limit, limit)
    return Dispatcher(ledger, elastic, on_change)


async def test_a_cancelled_waiter_leaves_the_queue(autojump_clock):
    dispatcher = make(a=1)
    async with dispatcher.lease(Ask((1,))):
        with trio.move_on_after(5) as impatient:
            async with dispatcher.lease(Ask((2,))):
                pytest.fail("one slot was lent twice")
    assert impatient.cancelled_caught
    assert dispatcher.ledger.waiting == 0


async def test_waiters_are_served_by_the_age_of_their_session_then_in_the_order_they_came(autojump_clock):
    dispatcher = make(a=1)
    served = []

    async def ask(name, order):
        async with dispatcher.lease(Ask(order)):
            served.append(name)

    async with trio.open_nursery() as nursery, dispatcher.lease(Ask((0,))):
        for name, order in [("young", (9, 1)), ("old, 2nd call", (1, 2)), ("old, 1st call", (1, 1)), ("twin", (9, 1))]:
            nursery.start_soon(ask, name, order)
            await wait_all_tasks_blocked()
    assert served == ["old, 1st call", "old, 2nd call", "young", "twin"]


async def test_a_lease_tells_how_long_it_was_waited_for(autojump_clock):
    dispatcher = make(a=1)

    async def hold():
        async with dispatcher.lease(Ask((0,))) as held:
            assert held.queued_s == 0
            await trio.sleep(7)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
        await wait_all_tasks_blocked()
        async with dispatcher.lease(Ask((1,))) as held:
            assert held.queued_s == 7


async def test_status_shows_who_waits_and_since_when(autojump_clock):
    dispatcher = make()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(dispatcher.acquire, Ask((2,)))
        await trio.sleep(3)
        nursery.start_soon(dispatcher.acquire, Ask((1,), slots=4))
        await trio.sleep(2)
        assert [(waiter.ask.slots, waiter.age_s) for waiter in dispatcher.waiting()] == [(4, 2), (1, 5)]
        nursery.cancel_scope.cancel()


async def test_revocation_ends_the_block_and_says_so(autojump_clock):
    dispatcher = make(a=1)
    async with trio.open_nursery() as nursery:

        async def revoke():
            await trio.sleep(1)
            assert dispatcher.revoke(A) == 1
            assert dispatcher.revoke(A) == 0

        nursery.start_soon(revoke)
        with pytest.raises(LeaseRevoked, match="http://a/v1 was lost while 1 slot of it was in use"):
            async with dispatcher.lease(Ask((1,))):
                await trio.sleep_forever()
    assert trio.current_time() == 1
    assert dispatcher.ledger.lent(A) == 0


async def test_a_block_that_had_finished_when_its_lease_was_revoked_raises_nothing():
    dispatcher = make(a=1)
    async with dispatcher.lease(Ask((1,))) as held:
        assert dispatcher.revoke(A) == 1
    assert held.revoked
    assert dispatcher.ledger.lent(A) == 0


async def test_an_error_in_a_revoked_block_is_not_replaced():
    dispatcher = make(a=1)

    async def use():
        async with dispatcher.lease(Ask((1,))):
            dispatcher.revoke(A)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await use()
    assert dispatcher.ledger.lent(A) == 0


async def test_cancellation_from_outside_stays_a_cancellation_even_when_the_lease_is_revoked_too():
    dispatcher = make(a=1)
    with trio.CancelScope() as run:
        async with dispatcher.lease(Ask((1,))):
            run.cancel()
            dispatcher.revoke(A)
            await trio.sleep_forever()
    assert run.cancelled_caught
    assert dispatcher.ledger.lent(A) == 0


async def test_revocation_inside_a_nursery_of_the_block_is_told_too(autojump_clock):
    dispatcher = make(a=1)

    async def use():
        async with dispatcher.lease(Ask((1,))), trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            dispatcher.revoke(A)

    with pytest.raises(LeaseRevoked):
        await use()


async def test_the_user_may_cancel_the_scope_of_a_lease_without_that_being_a_revocation():
    dispatcher = make(a=1)
    async with dispatcher.lease(Ask((1,))) as held:
        held.scope.cancel()
        await trio.sleep_forever()
    assert held.scope.cancelled_caught
    assert dispatcher.ledger.lent(A) == 0


async def test_one_task_acquires_and_another_uses_and_releases(autojump_clock):
    dispatcher = make(a=2)
    used = []

    async def work(held, number):
        with held.using():
            await trio.sleep(1)
            used.append((number, trio.current_time()))

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(work, await dispatcher.acquire(Ask((number,))), number)
    assert sorted(used) == [(0, 1), (1, 1), (2, 2), (3, 2)]
    assert dispatcher.ledger.lent(A) == 0


async def test_a_lease_revoked_before_its_use_ends_the_use_at_its_first_checkpoint():
    dispatcher = make(a=1)
    held = await dispatcher.acquire(Ask((1,)))
    assert (held.url, held.slots) == (A, 1)
    dispatcher.revoke(A)
    passed = []
    with pytest.raises(LeaseRevoked), held.using():
        passed.append(await trio.lowlevel.checkpoint())
    assert passed == []
    assert dispatcher.ledger.lent(A) == 0


async def test_only_the_leases_of_the_lost_endpoint_are_revoked():
    dispatcher = make(a=1, b=1)
    first, second = await dispatcher.acquire(Ask((1,))), await dispatcher.acquire(Ask((2,)))
    assert dispatcher.revoke(B) == 1
    assert {held.url: held.revoked for held in (first, second)} == {A: False, B: True}


async def test_a_task_started_in_a_cancelled_nursery_still_gives_its_lease_back():
    dispatcher = make(a=1)

    async def work(held):
        with held.using():
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, await dispatcher.acquire(Ask((1,))))
        nursery.cancel_scope.cancel()
    assert dispatcher.ledger.lent(A) == 0


async def test_releasing_twice_is_refused_and_changes_nothing():
    dispatcher = make(a=2)
    held = await dispatcher.acquire(Ask((1,)))
    other = await dispatcher.acquire(Ask((2,)))
    dispatcher.release(held)
    with pytest.raises(UsageError, match="not held"):
        dispatcher.release(held)
    assert dispatcher.ledger.lent(A) == 1
    dispatcher.release(other)


async def test_an_ask_beyond_every_cap_is_an_error_in_a_fixed_pool_and_waits_in_an_elastic_one(autojump_clock):
    with pytest.raises(UsageError, match="no endpoint can hold 3 slots at once: ask for fewer, or set elastic = true"):
        await make(a=2, elastic=False).acquire(Ask((1,), slots=3))
    dispatcher = make(a=2)
    with trio.move_on_after(60) as patience:
        await dispatcher.acquire(Ask((1,), slots=3))
    assert patience.cancelled_caught


async def test_a_fixed_pool_lends_what_fits_though_it_is_shut_for_a_while(autojump_clock):
    dispatcher = make(a=2, elastic=False)
    dispatcher.ledger.set_limit(A, 0, 2)

    async def reopen():
        await trio.sleep(5)
        dispatcher.ledger.set_limit(A, 2, 2)
        dispatcher.settle()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reopen)
        async with dispatcher.lease(Ask((1,), slots=2)):
            assert trio.current_time() == 5


async def test_a_run_that_starts_with_no_endpoint_goes_on_when_one_joins(autojump_clock):
    dispatcher = make()

    async def join():
        await trio.sleep(3600)
        dispatcher.ledger.join(A, 1)
        dispatcher.settle()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(join)
        async with dispatcher.lease(Ask((1,))) as held:
            assert (held.url, held.queued_s) == (A, 3600)


async def test_a_group_that_gives_up_lets_those_behind_it_start(autojump_clock):
    dispatcher = make(a=2)
    async with trio.open_nursery() as nursery, dispatcher.lease(Ask((0,))):
        with trio.move_on_after(5):
            nursery.start_soon(_start_at, dispatcher, Ask((2,)), 5)
            await dispatcher.acquire(Ask((1,), slots=2))
        await trio.sleep(5)


async def _start_at(dispatcher, ask, at):
    await trio.sleep(1)
    async with dispatcher.lease(ask):
        assert trio.current_time() == at


async def test_a_cancelled_task_does_not_even_queue():
    dispatcher = make(a=1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await dispatcher.acquire(Ask((1,)))
    assert scope.cancelled_caught
    assert dispatcher.ledger.lent(A) == 0


async def test_acquiring_and_releasing_tells_that_something_changed():
    changes = []
    dispatcher = make(a=1, on_change=lambda: changes.append(dispatcher.ledger.lent(A)))
    async with dispatcher.lease(Ask((1,))):
        assert changes == [1]
    assert changes == [1, 0]


async def test_acquiring_is_a_checkpoint_though_a_slot_is_free():
    dispatcher = make(a=1)
    with trio.testing.assert_checkpoints():
        held = await dispatcher.acquire(Ask((1,)))
    with trio.testing.assert_no_checkpoints():
        dispatcher.release(held)


async def test_a_release_wakes_exactly_one_task():
    class Count(trio.abc.Instrument):
        woken = 0

        def task_scheduled(self, task):
            self.woken += 1

    dispatcher = make(a=1)
    held = await dispatcher.acquire(Ask((0,)))
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(dispatcher.acquire, Ask((1, number)))
        await wait_all_tasks_blocked()
        count = Count()
        trio.lowlevel.add_instrument(count)
        dispatcher.release(held)
        assert count.woken == 1
        trio.lowlevel.remove_instrument(count)
        nursery.cancel_scope.cancel()


def test_an_interrupt_at_any_line_loses_no_slot():
    line = 0
    while interrupt_at_line(line := line + 1):
        pass
    assert line > 50


def interrupt_at_line(number):
    """Send SIGINT to ourselves at the n-th line of the dispatcher's that runs; tell whether there was one."""
    dispatcher = make(a=1)
    dispatcher.ledger.set_limit(A, 0)
    file = Dispatcher.settle.__code__.co_filename
    left = number

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename != file:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGINT)
        return trace

    async def use():
        with trio.fail_after(60):  # of the virtual clock: a lost wake-up ends in an error
            await use_it_all()

    async def use_it_all():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(borrow, 0)
            await wait_all_tasks_blocked()
            dispatcher.ledger.set_limit(A, 1)
            dispatcher.settle()
            await borrow(1)
        held = await dispatcher.acquire(Ask((2,)))
        with held.using():
            await trio.lowlevel.checkpoint()
        held = await dispatcher.acquire(Ask((3,)))
        try:
            await trio.lowlevel.checkpoint()
        finally:
            dispatcher.release(held)

    async def borrow(number):
        async with dispatcher.lease(Ask((number,))):
            await trio.lowlevel.checkpoint()

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        trio.run(use, clock=MockClock(autojump_threshold=0))
    except* KeyboardInterrupt:
        assert left <= 0
    finally:
        sys.settrace(before)
    assert (dispatcher.ledger.lent(A), dispatcher.ledger.waiting, dispatcher.held()) == (0, 0, [])
    return left <= 0


def test_it_works_on_the_real_clock():
    async def use():
        async with make(a=1).lease(Ask((1,))) as held:
            return held.queued_s

    assert 0 <= trio.run(use) < 60
