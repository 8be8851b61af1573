"""Tasks that use a dispatcher, driven step by step from synchronous code, and what must be true of them."""

from __future__ import annotations

from contextlib import suppress

import attrs
import trio

from scavenge.core.ledger import Ask
from scavenge.errors import LeaseRevoked
from scavenge.testing.driver import TrioDriver
from slot_model import LINES, URLS


@attrs.define(eq=False)
class Customer:
    """A task that acquires, holds until it is told to finish, and releases."""

    ask: Ask
    state: str = "waiting"
    held: object = None
    finish: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope | None = None


class DispatcherWorld:
    def __init__(self, dispatcher):
        self.dispatcher = dispatcher
        self.ledger = dispatcher.ledger
        self.customers = []
        self.driver = TrioDriver()

    def come(self, ask):
        customer = Customer(ask)
        self.customers.append(customer)
        customer.scope = self.driver.start(self._live, customer)
        return customer

    async def _live(self, customer):
        try:
            customer.held = await self.dispatcher.acquire(customer.ask)
            with customer.held.using():
                customer.state = "holding"
                await customer.finish.wait()
            customer.state = "finished"
        except LeaseRevoked:
            customer.state = "revoked"
        finally:
            if customer.state in {"waiting", "holding"}:
                customer.state = "cancelled"
        await trio.lowlevel.checkpoint()

    def some(self, state):
        return [customer for customer in self.customers if customer.state == state]

    def cancel(self, customer):
        customer.scope.cancel()

    def revoke(self, url):
        return self.dispatcher.revoke(url)

    def set_limit(self, url, limit):
        if url not in self.ledger:
            self.ledger.join(url, limit)
        else:
            self.ledger.set_limit(url, limit)
        self.dispatcher.settle()

    def set_line(self, url, line):
        if url in self.ledger:
            self.ledger.set_line(url, line)

    def leave(self, url):
        if url in self.ledger:
            self.ledger.leave(url)
            self.dispatcher.settle()

    def let_run(self):
        """Let the tasks run until all wait; then nothing may be lost, and nobody may wait for nothing."""
        self.driver.settle()
        holding = self.some("holding")
        for url in URLS:
            held = [customer.held for customer in holding if customer.held.url == url]
            assert self.ledger.lent(url) == sum(lease.slots for lease in held), "slots were lost or lent twice"
            assert {lease.lease for lease in held} == set(self.ledger.leases_on(url))
        assert set(self.dispatcher.held()) == {customer.held for customer in holding}
        waiting = self.some("waiting")
        assert [waiter.ask for waiter in self.dispatcher.waiting()] == [
            customer.ask for customer in sorted(waiting, key=lambda customer: customer.ask.order)
        ]
        assert self.ledger.grant() == [], "somebody waited for slots that were free"
        assert not any(customer.held.revoked for customer in holding), "a revoked lease is still in use"
        assert not any(customer.scope.cancel_called for customer in holding + waiting), "a cancelled task lives on"
        assert not any(customer.finish.is_set() for customer in holding), "a finished task still holds"

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        """Leave no run behind; what goes wrong while an error is on its way is not of interest."""
        with suppress(*[BaseException] * (error is not None)):
            self.driver.close()

    def end(self):
        """End all tasks; everything must have come back."""
        self.driver.close()
        assert sum(account.lent for account in self.ledger) == 0, "slots were lost at the end"
        assert self.ledger.waiting == 0, "a dead task is in the queue"


def random_life(dispatcher, rnd, steps):
    """Random pokes, with letting the tasks run as only one of them."""
    with DispatcherWorld(dispatcher) as world:
        for number in range(steps):
            random_poke(world, rnd, number)
        world.let_run()
        world.end()


def random_poke(world, rnd, number):
    match rnd.choice("jpccccxffffrlssss"):
        case "j":
            world.set_limit(rnd.choice(URLS), rnd.choice([0, 1, 1, 2, 4]))
        case "p":
            world.set_line(rnd.choice(URLS), rnd.choice(LINES))
        case "l":
            world.leave(rnd.choice(URLS))
        case "c":
            slots = rnd.choice([1, 1, 1, 2, 3])
            world.come(Ask((rnd.randrange(3), number), slots, frozenset(rnd.sample(URLS, rnd.choice([0, 0, 1])))))
        case "x" if world.some("waiting") + world.some("holding"):
            world.cancel(rnd.choice(world.some("waiting") + world.some("holding")))
        case "f" if world.some("holding"):
            rnd.choice(world.some("holding")).finish.set()
        case "r":
            world.revoke(rnd.choice(URLS))
        case "s":
            world.let_run()
