"""What endpoints of one account may have in flight together, where the account has a quota that somebody ran into.

Endpoints of one origin that are used with one key share an account. The quota of each is a pure object; here it hears
of the requests that end, and its shares bound the members. Waits only for something to have changed.

Invariants: an account with a single endpoint has no quota, for its gate hears of the 429s itself; whatever is lent or
comes back on an account that is bound has the shares of all its members worked out again, at once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import urlsplit

import attrs
import trio

from scavenge.core.gates.quota import Quota
from scavenge.runtime.member import Member
from scavenge.signals import Ended, Ending
from scavenge.types import EndpointId

Account: TypeAlias = "tuple[str, str | None]"

MANY = 2
"""An account with fewer endpoints has no quota here."""


def account_of(member: Member) -> Account:
    """Whose quota a member draws on: its origin, and the key."""
    parts = urlsplit(member.url)
    return f"{parts.scheme}://{parts.netloc}", member.endpoint.secret


@attrs.frozen
class Demand:
    """What is lent on a member, and how many wait in its pool."""

    lent: int
    waiting: int


@attrs.define(eq=False)
class _Group:
    members: list[Member] = attrs.field(factory=list)
    quota: Quota = attrs.field(factory=Quota)
    shares: dict[Member, int] = attrs.field(factory=dict)
    """What each may have in flight, as of the last look; empty before it and while nothing bounds them."""


@attrs.define(eq=False)
class Accounts:
    """The accounts of a fleet. ``refresh`` brings a member's limit in line; it is never called from within a call."""

    refresh: Callable[[Member], None]
    demand: Callable[[Member], Demand]
    _groups: dict[Account, _Group] = attrs.field(factory=dict, init=False)
    _accounts: dict[Member, Account] = attrs.field(factory=dict, init=False)
    _bound: dict[Account, None] = attrs.field(factory=dict, init=False)
    """Accounts that ran into their quota, in order."""
    _freed: dict[Member, None] = attrs.field(factory=dict, init=False)
    """Members whose account no longer bounds them, until that was looked at."""
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def meet(self, member: Member) -> None:
        """A member is there, or has other settings; it may be met already."""
        account = account_of(member)
        if self._accounts.get(member) == account:
            return
        self.forget(member)
        self._accounts[member] = account
        self._groups.setdefault(account, _Group()).members.append(member)

    def forget(self, member: Member) -> None:
        """A member is gone. One that is left alone is bound by its own gate again."""
        account = self._accounts.pop(member, None)
        if account is None:
            return
        group = self._groups[account]
        group.members.remove(member)
        if len(group.members) < MANY and account in self._bound:
            group.quota, group.shares = Quota(), {}
            del self._bound[account]
            self._freed.update(dict.fromkeys(group.members))
            self._changed.set()
        if not group.members:
            del self._groups[account]

    def _group(self, member: Member) -> _Group | None:
        """The endpoints of a member's account, if they are several."""
        account = self._accounts.get(member)
        group = None if account is None else self._groups[account]
        return group if group is not None and len(group.members) >= MANY else None

    def is_shared(self, member: Member) -> bool:
        """Whether others draw on the same quota, so that a 429 is no word about this endpoint."""
        return self._group(member) is not None

    def in_flight(self, member: Member) -> int:
        """Requests in flight on a member's account, where others share it; else 0."""
        group = self._group(member)
        return 0 if group is None else sum(one.gate.meter.in_flight for one in group.members)

    def hear(self, member: Member, ended: Ended, in_flight: int, now: float) -> None:
        """Hear how a request of a member ended; *in_flight* were on the account when it was let in."""
        group = self._group(member)
        if group is None or (group.quota.bound is None and ended.ending is not Ending.RATE_LIMITED):
            return
        group.quota.observe(ended, in_flight, now)
        if group.quota.bound is not None:
            self._bound[self._accounts[member]] = None
        self.poke()

    def bound(self, member: Member) -> int | None:
        """How many requests a member may have in flight for its account; ``None``: as many as it likes."""
        group = self._group(member) if self._bound else None
        if group is None or (bound := group.quota.bound) is None:
            return None
        if member not in group.shares:
            group.shares = self._shares(group, bound)
        return group.shares[member]

    def _shares(self, group: _Group, bound: int) -> dict[Member, int]:
        """What each member may have in flight.

        The quota is split among pools, since whoever waits in a pool can go to any of its endpoints, and then evenly
        among those. A pool in which nobody waits may take all that is free.
        """
        pools: dict[EndpointId, list[Member]] = {}
        for one in group.members:
            pools.setdefault(one.endpoint.endpoint_id, []).append(one)
        demands = {one: self.demand(one) for one in group.members}
        lent = {pool: sum(demands[one].lent for one in members) for pool, members in pools.items()}
        waiting = {pool: demands[members[0]].waiting for pool, members in pools.items()}
        free = max(0, bound - sum(lent.values()))
        shares = group.quota.share(lent, waiting) or {}
        split: dict[Member, int] = {}
        for pool, members in pools.items():
            share = shares[pool] if waiting[pool] else lent[pool] + free
            split.update(_split(share, {one: demands[one].lent for one in members}))
        return split

    def _look(self, account: Account) -> list[Member]:
        """Work out the shares of an account that is bound; the members whose share is another than it was."""
        group = self._groups[account]
        old, bound = group.shares, group.quota.bound
        group.shares = {} if bound is None else self._shares(group, bound)
        return [one for one, share in group.shares.items() if old.get(one) != share]

    def poke(self) -> None:
        """Something was lent, came back, or is waited for. Never waits."""
        if self._bound:
            self._changed.set()

    async def run_accounts(self) -> None:
        """Look again at the members of accounts that are bound whenever something changed, for ever."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            freed, self._freed = self._freed, {}
            moved = [member for account in self._bound for member in self._look(account)]
            for member in (*freed, *moved):
                self.refresh(member)
            await trio.lowlevel.checkpoint()


def _split(share: int, lent: dict[Member, int]) -> dict[Member, int]:
    """Give what is free of a pool's share to its members, who has least first; where it is too little, all shrink."""
    held = sum(lent.values())
    if share < held:
        return {one: share * count // held for one, count in lent.items()}
    each, more = divmod(share - held, len(lent))
    order = sorted(lent, key=lent.__getitem__)
    return {one: lent[one] + each + (place < more) for place, one in enumerate(order)}
