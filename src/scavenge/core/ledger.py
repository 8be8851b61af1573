"""Who holds which slots, who waits for some, and who is served next. Pure: knows no clock, no tasks and no HTTP.

One ledger is one pool of interchangeable endpoints, each with an account; its keys are urls, but nothing here looks
into them.

Promises, at every moment between two calls:

- *Conserved*: what an account has lent is the sum of its leases that are held.
- *Never above the limit*, except after the limit shrank, and then nothing is lent until it drained; or by a single
  group larger than the limit (but within the hard cap) that was started on an idle endpoint.
- *Shut means shut*: an account with limit 0 lends nothing; a gone one is forgotten with its last lease, and if its
  url joins again before that, it has its old count back.

After :meth:`SlotLedger.grant`:

- *No slot idles*: no waiting ticket fits on an endpoint that it may use and that is not kept free.
- *In order*: a grant never uses slots that an earlier ticket could have had at that moment.
- *Groups start*: the earliest waiting group that an open endpoint can hold has one endpoint kept free: nobody later
  gets slots there, so it starts once enough of them came free. The endpoint changes only when it no longer qualifies.

The search is short because after a grant nobody who waits can start, and only *stirred* accounts (something came free
there) and *fresh* tickets (new, or no longer bound by their avoid set) can change that.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import attrs

from scavenge.core.pace import Line as PaceLine
from scavenge.core.picker import EMPTY, Account, Lease, Picker, check_limits
from scavenge.core.waiting import Ask, Key, Line, Queue, Ticket
from scavenge.errors import UsageError
from scavenge.types import Url

__all__ = ["Account", "Ask", "Kept", "Lease", "SlotLedger", "Ticket"]


@attrs.frozen(eq=False)
class Kept:
    """An endpoint that is kept free for a waiting group."""

    ticket: Ticket
    account: Account


@attrs.define(eq=False)
class SlotLedger:
    """Lends the slots of a pool's endpoints. Iterating gives the accounts."""

    _picker: Picker = attrs.field(factory=Picker, init=False)
    _queue: Queue = attrs.field(factory=Queue, init=False)
    kept: Kept | None = attrs.field(default=None, init=False)
    """The endpoint that is kept free at present, and for which ticket."""
    _stirred: dict[Url, Account] = attrs.field(factory=dict, init=False)
    _stirs: int = attrs.field(default=0, init=False)
    """How often something came free: while it stays the same, a line that is stuck stays stuck."""
    _turns: int = attrs.field(default=0, init=False)

    def join(self, url: Url, limit: int, hard_cap: int | None = None) -> None:
        """Let an endpoint lend ``limit`` slots; a limit above ``hard_cap`` counts as the cap.

        Raises :class:`UsageError` when it is there already, or a number makes no sense.
        """
        check_limits(url, limit, hard_cap)
        account = self._picker.accounts.get(url)
        if account is None:
            account = Account(url)
            self._picker.add(account)
        elif not account.gone:
            raise UsageError(f"{url} has joined already: set its limit instead")
        account.gone, account.line = False, None
        account.turn = self._turns
        self._resize(account, limit, hard_cap)

    def leave(self, url: Url) -> None:
        """Lend nothing more on an endpoint; leases that are held there stay until they are given back.

        Raises :class:`UsageError` when it is not there.
        """
        account = self._account(url)
        account.gone = True
        self._resize(account, 0, account.hard_cap)
        self._drop_if_done(account)

    def set_limit(self, url: Url, limit: int, hard_cap: int | None = None) -> None:
        """Change what an endpoint may lend; held leases stay. 0 shuts it.

        Raises :class:`UsageError` when the endpoint is not there, or a number makes no sense.
        """
        check_limits(url, limit, hard_cap)
        self._resize(self._account(url), limit, hard_cap)

    def set_line(self, url: Url, line: PaceLine | None) -> None:
        """Note how fast an endpoint is until it joins anew. Raises :class:`UsageError` when it is not there."""
        account = self._account(url)
        account.line = line
        self._picker.refresh(account)

    def enqueue(self, ask: Ask) -> Ticket:
        """Queue an ask; :meth:`grant` serves it."""
        return self._queue.add(ask, self._picker.binds(ask.avoid, ask.slots))

    def withdraw(self, ticket: Ticket) -> None:
        """Take a waiting ticket out of the queue. Raises :class:`UsageError` when it does not wait."""
        if ticket not in self._queue:
            raise UsageError("a ticket is withdrawn that does not wait: it was granted or withdrawn before")
        self._unqueue(ticket)

    def grant(self) -> list[tuple[Ticket, Lease]]:
        """Lend what can be lent, in the order of the queue."""
        granted: list[tuple[Ticket, Lease]] = []
        while True:
            start = self._next_start()
            group = self._first_group()
            if group is not None and (start is None or group.key < start[0].key) and self._keep_for(group):
                continue
            if start is None:
                self._stirred.clear()
                return granted
            granted.append((start[0], self._lend(*start)))

    def give_back(self, lease: Lease) -> None:
        """Take a lease's slots back. Raises :class:`UsageError` when it is not held."""
        account = self._picker.accounts.get(lease.url)
        if account is None or account.leases.get(lease.number) is not lease:
            raise UsageError(f"a lease on {lease.url} is given back that is not held: give each back once")
        del account.leases[lease.number]
        account.lent -= lease.slots
        self._picker.refresh(account)
        self._stir(account)
        self._drop_if_done(account)

    def __iter__(self) -> Iterator[Account]:
        return iter(self._picker.accounts.values())

    def __contains__(self, url: Url) -> bool:
        """Whether an endpoint has joined and not left."""
        return url in self._picker.accounts and not self._picker.accounts[url].gone

    def lent(self, url: Url) -> int:
        """How many slots are lent on an endpoint; 0 when it is unknown."""
        return self._picker.accounts.get(url, EMPTY).lent

    def free(self, url: Url) -> int:
        """How many slots can still be lent within an endpoint's limit; 0 when it is unknown."""
        return max(0, self._picker.accounts.get(url, EMPTY).room)

    def leases_on(self, url: Url) -> tuple[Lease, ...]:
        """The leases that are held on an endpoint, the oldest first."""
        return tuple(self._picker.accounts.get(url, EMPTY).leases.values())

    def fits_ever(self, slots: int) -> bool:
        """Whether an endpoint that has joined, shut or not, could hold so many slots at once."""
        return any(account.cap >= slots and not account.gone for account in self)

    @property
    def waiting(self) -> int:
        """How many tickets wait."""
        return len(self._queue)

    def tickets(self) -> list[Ticket]:
        """The waiting tickets in the order of the queue."""
        return self._queue.in_order()

    def _account(self, url: Url) -> Account:
        account = self._picker.accounts.get(url)
        if account is None or account.gone:
            raise UsageError(f"{url} is not an endpoint of this pool: it has to join first")
        return account

    def _resize(self, account: Account, limit: int, hard_cap: int | None) -> None:
        if self._picker.resize(account, limit, hard_cap):
            for line in self._queue.lines.values():
                # one endpoint more or less: avoid sets smaller than what is left bind before and after
                if line.longest_avoid >= self._picker.able(line.slots) - 1:
                    self._rebind(line)
            self._check_kept()
        self._stir(account)

    def _rebind(self, line: Line) -> None:
        for ticket in self._queue.in_order(line):
            if ticket.bound != (bound := self._picker.binds(ticket.ask.avoid, line.slots)):
                line.rebind(ticket, bound)

    def _stir(self, account: Account) -> None:
        self._stirred[account.url] = account
        self._stirs += 1

    def _drop_if_done(self, account: Account) -> None:
        if account.gone and not account.lent:
            self._picker.drop(account)
            del self._stirred[account.url]

    def _lend(self, ticket: Ticket, account: Account) -> Lease:
        self._unqueue(ticket)
        self._turns += 1
        lease = Lease(account.url, ticket.ask.slots, self._turns)
        account.leases[lease.number] = lease
        account.lent += lease.slots
        account.turn = self._turns
        self._picker.refresh(account)
        return lease

    def _unqueue(self, ticket: Ticket) -> None:
        self._queue.remove(ticket)
        if self.kept is not None and self.kept.ticket is ticket:
            self._free_kept(self.kept)

    def _next_start(self) -> tuple[Ticket, Account] | None:
        """The first ticket that can start now, and where."""
        best = None
        for line in self._queue.lines.values():
            start = self._first_start(line)
            if start is not None and (best is None or start[0].key < best[0].key):
                best = start
        return best

    def _first_start(self, line: Line) -> tuple[Ticket, Account] | None:
        """The first ticket of a line that can start now: its head, or one that is fresh or has a stirred account."""
        if line.stuck_at == self._stirs:
            return None
        head = self._queue.head(line)
        account = self._choose(head)
        if account is not None:
            return head, account
        best = self._first_fresh(line)
        for stirred in self._stirred_for(line.slots):
            key = line.first_on(stirred.url)
            if key is not None and (best is None or key < best[0].key):
                best = self._start_at(key) or best
        if best is None:
            line.stuck_at = self._stirs
        return best

    def _first_fresh(self, line: Line) -> tuple[Ticket, Account] | None:
        while line.fresh:
            if (start := self._start_at(line.fresh[0])) is not None:
                return start
            heapq.heappop(line.fresh)
        return None

    def _start_at(self, key: Key) -> tuple[Ticket, Account] | None:
        ticket = self._queue.at(key)
        account = None if ticket is None else self._choose(ticket)
        return None if ticket is None or account is None else (ticket, account)

    def _stirred_for(self, slots: int) -> list[Account]:
        for full in [account for account in self._stirred.values() if account.room < 1]:
            del self._stirred[full.url]
        return [account for account in self._stirred.values() if account.fits(slots)]

    def _choose(self, ticket: Ticket) -> Account | None:
        """Where a ticket would start now."""
        ask, kept = ticket.ask, self.kept
        preferred = None if ask.prefer is None else self._picker.accounts.get(ask.prefer)
        if preferred is not None and self._may_use(preferred, ticket):
            return preferred
        found = self._picker.choose(ask.slots, ticket.barred)
        if kept is None or not self._may_use(kept.account, ticket):
            return found
        return kept.account if found is None else min(found, kept.account, key=lambda each: each.rank(ask.slots))

    def _may_use(self, account: Account, ticket: Ticket) -> bool:
        """Whether a ticket fits on an endpoint and may start there; the kept one is for its group and those before."""
        kept = self.kept
        if kept is not None and kept.account is account and kept.ticket.key < ticket.key:
            return False
        return account.fits(ticket.ask.slots) and account.url not in ticket.barred

    def _first_group(self) -> Ticket | None:
        """The first ticket for several slots that an open endpoint can hold."""
        lines = self._queue.lines.values()
        heads = [self._queue.head(line) for line in lines if line.slots > 1 and self._picker.able(line.slots)]
        return min(heads, key=lambda ticket: ticket.key, default=None)

    def _keep_for(self, group: Ticket) -> bool:
        """Keep an endpoint free for a group; tell whether that is news."""
        if self.kept is not None:
            if self.kept.ticket is group:
                return False
            self._free_kept(self.kept)
        account = next(self._picker.able_by_cost(group.ask.slots, group.barred))
        self.kept = Kept(group, account)
        self._picker.hide(account, True)
        return True

    def _check_kept(self) -> None:
        """No longer keep an endpoint free that cannot hold its group, or that the group has come to avoid."""
        if (kept := self.kept) is not None and (
            kept.account.reach < kept.ticket.ask.slots or kept.account.url in kept.ticket.barred
        ):
            self._free_kept(kept)

    def _free_kept(self, kept: Kept) -> None:
        self.kept = None
        self._picker.hide(kept.account, False)
        self._stir(kept.account)
