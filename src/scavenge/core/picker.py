"""Where a request is expected to be done first. Knows accounts, slots and speeds; not who asks, nor the queue.

The accounts are the leaves of a tournament tree: an inner node knows the best account below it, the most room, the
largest reach, and the largest reach of an idle one. Changing an account and finding the best one for a single slot cost
O(log n), since the full ones come last; an account that is barred costs a search one more O(log n).
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Set

import attrs

from scavenge.core.pace import Line
from scavenge.errors import UsageError
from scavenge.types import Url


@attrs.frozen(eq=False)
class Lease:
    """Slots that are lent on one endpoint."""

    url: Url
    slots: int
    number: int


@attrs.define(eq=False)
class Account:
    """What one endpoint may lend and has lent. Read it; only the ledger changes it.

    ``limit`` slots may be in flight now (0: shut), ``hard_cap`` at the very most. A ``gone`` account lends nothing and
    is forgotten with its last lease.
    """

    url: Url
    limit: int = 0
    hard_cap: int | None = None
    lent: int = 0
    gone: bool = False
    turn: int = 0
    """When it was last chosen, or joined: the lower goes first among those of equal cost."""
    line: Line | None = None
    """How fast it is at which load, if that is known."""
    hidden: bool = False
    """Whether it is kept out of the choice."""
    leaf: int = -1
    leases: dict[int, Lease] = attrs.field(factory=dict)

    @property
    def load(self) -> float:
        """The part of the limit that is lent."""
        return self.lent / self.limit if self.limit else math.inf

    @property
    def cost(self) -> float:
        """What choosing it costs, the lower the better.

        First the idle ones whose speed is not known: one request tells it. Then those with room whose speed is known:
        minus the tokens per second of one more request, roughly. Then the other ones with room, and last the full ones,
        by load: no endpoint is filled up before its first reply tells what it is worth, unless the others are full.
        """
        if self.lent >= self.limit:
            return self.load
        if self.line is None:
            return self.load if self.lent else -math.inf
        return -1 / self.line.roughly_at(self.lent + 1)

    @property
    def room(self) -> int:
        """How many slots can be lent within the limit; negative after it shrank."""
        return self.limit - self.lent

    @property
    def cap(self) -> float:
        """The largest group that the endpoint could ever hold."""
        return math.inf if self.hard_cap is None else self.hard_cap

    @property
    def reach(self) -> float:
        """The largest group that it can hold as it stands, once it is idle; 0 when it is shut."""
        return self.cap if self.limit else 0

    def fits(self, slots: int) -> bool:
        """Whether so many slots can be lent now: within the limit, or to a larger group on an idle endpoint."""
        return slots <= self.room or (self.lent == 0 and slots <= self.reach)

    def rank(self, slots: int) -> tuple[bool, float, int, int]:
        """Among the accounts that fit so many slots, the lowest is the one to choose."""
        return (slots > self.room, self.cost, self.turn, self.leaf)


_NOTHING = (math.inf, 0, 0)
EMPTY = Account(Url(""))
"""Stands where there is none; nothing changes it."""


@attrs.define(eq=False)
class Picker:
    """The accounts of a ledger by url, and the tree over them.

    Invariants: the leaves are the second half of the tree's arrays, and every node agrees with what is below it;
    ``_reaches`` is sorted and has one entry an account; a leaf without an account looks like a shut one.
    """

    accounts: dict[Url, Account] = attrs.field(factory=dict)
    _leaves: list[Account] = attrs.field(factory=lambda: [EMPTY])
    _free_leaves: list[int] = attrs.field(factory=lambda: [0])
    _best: list[tuple[float, int, int]] = attrs.field(factory=lambda: [_NOTHING, _NOTHING])
    _room: list[float] = attrs.field(factory=lambda: [0, 0])
    _reach: list[float] = attrs.field(factory=lambda: [0, 0])
    _idle: list[float] = attrs.field(factory=lambda: [0, 0])
    _reaches: list[float] = attrs.field(factory=list)

    def add(self, account: Account) -> None:
        """Take a new account in."""
        if not self._free_leaves:
            self._grow()
        account.leaf = heapq.heappop(self._free_leaves)
        self._leaves[account.leaf] = account
        self.accounts[account.url] = account
        insort(self._reaches, account.reach)
        self.refresh(account)

    def drop(self, account: Account) -> None:
        """Forget an account, which must be shut."""
        del self._reaches[bisect_left(self._reaches, account.reach)]
        del self.accounts[account.url]
        self._leaves[account.leaf] = EMPTY
        heapq.heappush(self._free_leaves, account.leaf)

    def resize(self, account: Account, limit: int, hard_cap: int | None) -> bool:
        """Set an account's limits; tell whether that changed its reach."""
        before = account.reach
        account.limit = limit if hard_cap is None else min(limit, hard_cap)
        account.hard_cap = hard_cap
        self.refresh(account)
        self._refresh_reach(account)
        if account.reach == before:
            return False
        del self._reaches[bisect_left(self._reaches, before)]
        insort(self._reaches, account.reach)
        return True

    def hide(self, account: Account, hidden: bool) -> None:
        """Keep an account out of what :meth:`choose` finds, or no longer."""
        account.hidden = hidden
        self.refresh(account)

    def refresh(self, account: Account) -> None:
        """Bring the tree up to date with what an account has lent and how fast it is."""
        best, room = self._best, self._room
        node = len(self._leaves) + account.leaf
        best[node] = _NOTHING if account.hidden else (account.cost, account.turn, account.leaf)
        room[node] = 0 if account.hidden else account.room
        idle = 0 if account.hidden or account.lent else account.reach
        if self._idle[node] != idle:
            _put(self._idle, node, idle)
        while node := node >> 1:
            left, right = 2 * node, 2 * node + 1
            better = best[left] if best[left] < best[right] else best[right]
            most = room[left] if room[left] > room[right] else room[right]
            if best[node] is better and room[node] == most:
                break
            best[node], room[node] = better, most

    def _refresh_reach(self, account: Account) -> None:
        _put(self._reach, len(self._leaves) + account.leaf, account.reach)

    def able(self, slots: int) -> int:
        """How many open endpoints can hold so many slots, now or once they are idle."""
        return len(self._reaches) - bisect_left(self._reaches, slots)

    def binds(self, avoid: Set[Url], slots: int) -> bool:
        """Whether an avoid set has an effect: an open endpoint outside it can hold so many slots."""
        if not avoid:
            return False
        able = self.able(slots)
        return able > len(avoid) or able > sum(
            url in self.accounts and self.accounts[url].reach >= slots for url in avoid
        )

    def choose(self, slots: int, barred: Set[Url]) -> Account | None:
        """The best endpoint on which so many slots can be lent now; one above its limit only if it must be.

        Hidden ones are not looked at.
        """
        if self._room[1] >= slots:
            top = self._leaves[self._best[1][2]]
            if top.room >= slots and top.url not in barred:
                return top
            if (found := next(self._by_cost(self._room, slots, barred), None)) is not None:
                return found
        return next(self._by_cost(self._idle, slots, barred), None) if slots > 1 else None

    def able_by_cost(self, slots: int, barred: Set[Url]) -> Iterator[Account]:
        """The open endpoints that can hold so many slots, now or once they are idle, the best first."""
        return self._by_cost(self._reach, slots, barred)

    def _by_cost(self, most: list[float], slots: int, barred: Set[Url]) -> Iterator[Account]:
        """The accounts with at least ``slots`` of what ``most`` measures, the best first."""
        open_nodes = [(self._best[1], 1)] if most[1] >= slots else []
        while open_nodes:
            _, node = heapq.heappop(open_nodes)
            if node < len(self._leaves):
                for child in (2 * node, 2 * node + 1):
                    if most[child] >= slots:
                        heapq.heappush(open_nodes, (self._best[child], child))
                continue
            account = self._leaves[node - len(self._leaves)]
            if account.url not in barred:
                yield account

    def _grow(self) -> None:
        size = len(self._leaves)
        self._leaves += [EMPTY] * size
        self._free_leaves = list(range(size, 2 * size))
        self._best = [_NOTHING] * (4 * size)
        self._room = [0] * (4 * size)
        self._reach = [0] * (4 * size)
        self._idle = [0] * (4 * size)
        for account in self.accounts.values():
            self.refresh(account)
            self._refresh_reach(account)


def _put(most: list[float], node: int, value: float) -> None:
    """Set a leaf of a tree of maxima, and what is above it."""
    most[node] = value
    while node := node >> 1:
        above = max(most[2 * node], most[2 * node + 1])
        if most[node] == above:
            break
        most[node] = above


def check_limits(url: Url, limit: int, hard_cap: int | None) -> None:
    """Refuse numbers that make no sense. Raises :class:`UsageError`."""
    if limit < 0:
        raise UsageError(f"{url}: limit: expected an integer ≥ 0, got {limit!r}")
    if hard_cap is not None and hard_cap < 1:
        raise UsageError(f"{url}: hard_cap: expected an integer ≥ 1 or None, got {hard_cap!r}")
