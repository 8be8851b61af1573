"""Waits for slots, hands them to tasks and takes them back. The ledger decides who gets what; nothing here does.

Invariants: every waiting ticket of the ledger belongs to exactly one parked task, which is woken once, with its lease,
or withdraws the ticket when it is cancelled; every lease of the ledger belongs to exactly one :class:`HeldLease`, from
the moment it is granted until it is released. Releasing and revoking never wait.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import attrs
import trio

from scavenge.core.ledger import Ask, Lease, SlotLedger, Ticket
from scavenge.errors import LeaseRevoked, UsageError
from scavenge.types import Url


@attrs.define(eq=False)
class HeldLease:
    """A lease in somebody's hands, from the task that acquired it to whoever releases it.

    *Ownership*: who has it releases it, once: by :meth:`using`, or by :meth:`Dispatcher.release` when it is not used.
    """

    lease: Lease
    queued_s: float
    """How long it was waited for."""
    granted_at: float
    _dispatcher: Dispatcher = attrs.field(repr=False)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, repr=False)
    """Around the use of the lease; cancelled when the lease is revoked."""
    revoked: bool = False

    @property
    def url(self) -> Url:
        """The endpoint."""
        return self.lease.url

    @property
    def slots(self) -> int:
        """How many slots it holds there."""
        return self.lease.slots

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def using(self) -> Iterator[HeldLease]:
        """Run the block inside the lease's scope and release the lease after it, whatever happens.

        The first thing that a task does which was given the lease; entering cannot be cancelled. A lease that was
        revoked before ends the block at its first checkpoint.

        Raises :class:`LeaseRevoked` when revocation cut the block short; a block that had finished raises nothing.

        *Cancellation* from outside stays :class:`trio.Cancelled`.
        """
        try:
            with self.scope:
                yield self
        finally:
            self._dispatcher.release(self)
        if self.revoked and self.scope.cancelled_caught:
            raise LeaseRevoked(
                f"{self.url} was lost while {_slots(self.slots)} of it was in use: acquire another lease"
            )


@attrs.frozen
class Waiting:
    """Somebody who waits: for what, and since when."""

    ask: Ask
    age_s: float


@attrs.define(eq=False)
class _Waiter:
    asked_at: float
    parked: trio.lowlevel.Task | None = None
    """``None`` until the task has found that it must wait."""


@attrs.define(eq=False)
class Dispatcher:
    """Lends the slots of a ledger to tasks, which queue for them.

    ``elastic`` lets an ask wait that no endpoint can hold; ``on_change`` is told after every change, and neither waits,
    raises nor calls back.
    """

    ledger: SlotLedger
    elastic: bool = True
    on_change: Callable[[], None] | None = None
    _waiters: dict[Ticket, _Waiter] = attrs.field(factory=dict, init=False)
    _granted: dict[Ticket, HeldLease] = attrs.field(factory=dict, init=False)
    """On the way to the tasks that asked."""
    _held: dict[Lease, HeldLease] = attrs.field(factory=dict, init=False)

    @trio.lowlevel.enable_ki_protection
    def settle(self) -> None:
        """Grant what can be granted and wake exactly those tasks. Call it after every change of the ledger."""
        for ticket, lease in self.ledger.grant():
            waiter = self._waiters.pop(ticket)
            now = trio.current_time()
            held = HeldLease(lease, now - waiter.asked_at, now, self)
            self._held[lease] = self._granted[ticket] = held
            if waiter.parked is not None:
                trio.lowlevel.reschedule(waiter.parked)
        if self.on_change is not None:
            self.on_change()

    @trio.lowlevel.enable_ki_protection
    async def acquire(self, ask: Ask) -> HeldLease:
        """Wait for slots. The caller has to release the lease, or to give it to a task that does.

        Raises :class:`UsageError` when the pool is not elastic and no endpoint could ever hold that many slots.

        *Cancellation* takes the ask out of the queue; once the slots are granted, the lease is returned.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.elastic and not self.ledger.fits_ever(ask.slots):
            raise UsageError(f"no endpoint can hold {_slots(ask.slots)} at once: ask for fewer, or set elastic = true")
        ticket = self.ledger.enqueue(ask)
        waiter = self._waiters[ticket] = _Waiter(trio.current_time())
        self.settle()
        if ticket in self._granted:
            await trio.lowlevel.cancel_shielded_checkpoint()  # a granted lease must reach its owner
        else:
            waiter.parked = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(lambda _: self._withdraw(ticket))
        return self._granted.pop(ticket)

    def _withdraw(self, ticket: Ticket) -> trio.lowlevel.Abort:
        """What a cancelled wait leaves behind: nothing; others may start where an endpoint was kept free for it."""
        del self._waiters[ticket]
        self.ledger.withdraw(ticket)
        self.settle()
        return trio.lowlevel.Abort.SUCCEEDED

    @trio.lowlevel.enable_ki_protection
    def release(self, held: HeldLease) -> None:
        """Give a lease back, from any task, and wake who is next.

        Raises :class:`UsageError` when it was released before.
        """
        self.ledger.give_back(held.lease)
        del self._held[held.lease]
        self.settle()

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def lease(self, ask: Ask) -> AsyncIterator[HeldLease]:
        """Borrow slots for a block. Entering waits and can be cancelled; leaving does neither.

        Raises what :meth:`acquire` and :meth:`HeldLease.using` raise.
        """
        held = await self.acquire(ask)
        with held.using():
            yield held

    def revoke(self, url: Url) -> int:
        """End the use of every lease on a lost endpoint, and tell how many it ended.

        Their slots come back as their blocks end, so shut the endpoint first, or it is given new work.
        """
        lost = [held for lease in self.ledger.leases_on(url) if not (held := self._held[lease]).revoked]
        for held in lost:
            held.revoked = True
            held.scope.cancel()
        return len(lost)

    def waiting(self) -> list[Waiting]:
        """Who waits, in the order of the queue."""
        now = trio.current_time()
        queue = sorted(self._waiters.items(), key=lambda entry: entry[0].key)
        return [Waiting(ticket.ask, now - waiter.asked_at) for ticket, waiter in queue]

    def granted_at(self, url: Url, since: float) -> float:
        """When the first of the leases on an endpoint was granted that were not before *since*; infinity: none."""
        held = (self._held[lease] for lease in self.ledger.leases_on(url))
        return next((one.granted_at for one in held if one.granted_at >= since), math.inf)

    def oldest_work_at(self) -> float:
        """When the oldest of the leases was granted that are in use and not revoked; infinity: there is none."""
        return next((held.granted_at for held in self._held.values() if not held.revoked), math.inf)

    def held(self) -> list[HeldLease]:
        """The leases that are lent, the oldest first."""
        return list(self._held.values())


def _slots(count: int) -> str:
    return f"{count} slot{'s' * (count != 1)}"
