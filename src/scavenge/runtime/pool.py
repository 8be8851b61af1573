"""One pool: the interchangeable endpoints of one ``endpoint_id``, who may use them, and how they are doing.

Data flow: roster changes, outcomes and probes come in; health and gates turn them into a limit per endpoint in the slot
ledger; the dispatcher lends what the limits allow. Knows no wire format and no rollout.

Invariants: an endpoint's limit in the ledger is 0 unless it is listed, not draining and its health gives it room; a
member's client is open until the member is forgotten or gets other settings (an exchange under way keeps its client to
the end); only outcomes of a member's present settings count for its health.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from random import Random

import attrs
import trio

from scavenge.core.health import EndpointHealth
from scavenge.core.health_settings import HealthSettings
from scavenge.core.health_state import State
from scavenge.core.ledger import Ask, SlotLedger
from scavenge.core.network import remote_host
from scavenge.core.roster import not_listed
from scavenge.core.sessions.book import LiveSession
from scavenge.core.sessions.table import MakeSessions
from scavenge.core.stall import StallClock
from scavenge.events import (
    EndpointChanged,
    EndpointDraining,
    EndpointJoined,
    EndpointLeft,
    HealthChanged,
    LeasesRevoked,
    Observer,
)
from scavenge.runtime.accounts import Accounts
from scavenge.runtime.asking import Asking
from scavenge.runtime.dispatcher import Dispatcher, HeldLease
from scavenge.runtime.gating import Gating
from scavenge.runtime.hearing import Hearing
from scavenge.runtime.member import DRAINING, Member, mind
from scavenge.runtime.network import NetworkJudge
from scavenge.runtime.ports import AdmissionPolicy, ModelTransport
from scavenge.runtime.session_gate import SessionGate
from scavenge.status import PoolStatus
from scavenge.types import (
    ApiType,
    Endpoint,
    EndpointId,
    Outcome,
    Url,
)

HEALTH_KEYS = frozenset({"model", "key", "secret", "type", "headers", "proxy"})
"""Settings whose change calls for another client, and makes a trouble that was known worthless."""

REASONS = 3
"""How many endpoints' reasons are told when there is nothing to give work to."""


@attrs.define(eq=False)
class Pool:
    """Members, slots and waiters of one ``endpoint_id``."""

    endpoint_id: EndpointId
    elastic: bool
    transport: ModelTransport
    make_policy: Callable[[], AdmissionPolicy]
    make_sessions: MakeSessions
    health_settings: HealthSettings
    random: Random = attrs.field(repr=False)
    emit: Observer = attrs.field(repr=False)
    wall_clock: Callable[[], float] = attrs.field(repr=False)
    minders_nursery: trio.Nursery = attrs.field(repr=False)
    """Where the members' minding tasks run; the fleet's."""
    share: Callable[[Pool, Url, Outcome, float], None] = attrs.field(repr=False)
    """Lets the other pools hear of a server that they have too."""
    accounts: Accounts = attrs.field(repr=False)
    """What endpoints of one account may have together; the fleet's."""
    network: NetworkJudge = attrs.field(repr=False)
    """Tells an endpoint's silence from this machine's; the fleet's."""
    listed: Callable[[], Iterable[Endpoint]] = attrs.field(repr=False)
    """All endpoints that the sources list, of whatever pool."""
    members: dict[Url, Member] = attrs.field(factory=dict)
    departing: dict[Url, Member] = attrs.field(factory=dict)
    """Removed endpoints on which leases still run."""
    gating: Gating = attrs.field(init=False)
    dispatcher: Dispatcher = attrs.field(init=False)
    sessions: SessionGate = attrs.field(init=False)
    asking: Asking = attrs.field(init=False)
    hearing: Hearing = attrs.field(init=False)
    stall: StallClock = attrs.field(init=False)
    slots: int = 0
    """The sum of the members' limits."""
    model: str = ""
    """The model's name as the latest endpoint has it; empty before the first."""
    api: ApiType = ApiType.CHAT_COMPLETIONS
    """The protocol that the latest endpoint is listed for."""
    streams_refused: int = 0
    """How often a server refused to stream what it then gave whole."""

    def __attrs_post_init__(self) -> None:
        self.gating = Gating(self)
        self.dispatcher = Dispatcher(SlotLedger(), self.elastic, self._on_slots_changed)
        self.sessions = SessionGate(self.endpoint_id, self.make_sessions.name, self.make_sessions.create(), self.emit)
        self.asking = Asking(self.elastic, self.hopeless, self.why_waiting)
        self.hearing = Hearing(self)
        self.stall = StallClock(trio.current_time())

    # --- membership

    def add(self, endpoint: Endpoint) -> None:
        """Take in an endpoint that is listed; it gets work once its health says so.

        After the last of those that come and go together, ``gating.tell_capacity`` is to be called.
        """
        if (old := self.departing.pop(endpoint.url, None)) is not None:
            self._forget(old)
        now = trio.current_time()
        health = EndpointHealth.listed(self.health_settings, self.random, now)
        member = Member(endpoint, self.transport.open_client(endpoint), self.gating.gate_of(endpoint), health)
        self.members[endpoint.url] = member
        self.model, self.api = endpoint.model, endpoint.type
        self.network.meet(member)
        self.accounts.meet(member)
        self.dispatcher.ledger.join(endpoint.url, member.limit, member.cap)
        self.emit(EndpointJoined(self.endpoint_id, endpoint.url, endpoint.source))
        self._apply(member)
        self.minders_nursery.start_soon(mind, self, member, name=f"mind {endpoint.url}")

    def change(self, endpoint: Endpoint, keys: tuple[str, ...]) -> None:
        """Use other settings for new work; exchanges under way keep the old ones."""
        member = self.members[endpoint.url]
        was_draining = member.draining
        member.endpoint = endpoint
        self.model, self.api = endpoint.model, endpoint.type
        if {"model", "max_concurrent"}.intersection(keys):
            member.gate = self.gating.gate_of(endpoint)
        if (host := remote_host(endpoint.proxy or endpoint.url)) != member.host:
            self.network.forget(member)
            member.host = host
            self.network.meet(member)
        if HEALTH_KEYS.intersection(keys):
            self.accounts.meet(member)
            member.client.close()
            member.client = self.transport.open_client(endpoint)
            if member.health.state is not State.LIVE:
                member.health = EndpointHealth.listed(self.health_settings, self.random, trio.current_time())
        if keys != ("draining",) or (was_draining and not member.draining):
            self.emit(EndpointChanged(self.endpoint_id, endpoint.url, ", ".join(keys)))
        self._apply(member)
        member.poke()

    def _apply(self, member: Member) -> None:
        deadline = member.endpoint.drain_deadline
        left_s = None if deadline is None else deadline.timestamp() - self.wall_clock()
        now = trio.current_time()
        member.revoke_at = None if left_s is None else now + left_s
        if member.drain(now):
            self.emit(EndpointDraining(self.endpoint_id, member.url, DRAINING))
        self.refresh(member)

    def remove(self, url: Url) -> None:
        """Let an endpoint go: no new work; the leases on it run to their end, or until it is found to be lost.

        Then as after :meth:`add`.
        """
        member = self.members[url]
        self._set_limit(member, 0)
        del self.members[url]
        member.gone = True
        member.drain(trio.current_time())
        self.gating.leave(url)
        self.dispatcher.ledger.leave(url)
        self.emit(EndpointLeft(self.endpoint_id, url))
        if self.dispatcher.ledger.lent(url):
            self.departing[url] = member
            member.health.on_removed(trio.current_time())
            member.poke()
        else:
            self._forget(member)

    def _forget(self, member: Member) -> None:
        member.minding.cancel()
        member.client.close()
        self.network.forget(member)
        self.accounts.forget(member)

    def close(self) -> None:
        """Forget every member."""
        for member in (*self.members.values(), *self.departing.values()):
            self._forget(member)

    def is_leaving(self, url: Url) -> bool:
        """Whether an endpoint was removed or drains, so that losing it was to be expected."""
        member = self.members.get(url)
        return member is None or member.draining

    # --- limits

    def refresh(self, member: Member) -> None:
        """Bring a member's limit in line with its health, its gate and its settings, and lend what that allows."""
        now = trio.current_time()
        if member.revoke_at is not None and member.revoke_at <= now:
            member.revoke_at = None
            self.revoke(member.url, "its drain deadline has passed")
        member.health.wake(now)
        if self.hearing.is_replying(member):
            member.health.on_reply_coming(now)
        if member.gone:
            return
        if member.pace.forget_if_stale(now, self.dispatcher.ledger.lent(member.url)):
            self.dispatcher.ledger.set_line(member.url, None)
        self._set_limit(member, 0 if self.network.bars(member) else self.gating.bound(member, now))
        self.gating.tell_move(member, now)
        if member.told is not member.health.state:
            old, member.told = member.told, member.health.state
            self.emit(HealthChanged(self.endpoint_id, member.url, old.value, member.told.value, member.health.why))
            member.poke()
            self.asking.look()

    def _set_limit(self, member: Member, limit: int) -> None:
        cap = member.endpoint.max_concurrent
        if (limit, cap) == (member.limit, member.cap):
            return
        self.dispatcher.ledger.set_limit(member.url, limit, cap)
        self.slots += limit - member.limit
        member.limit, member.cap = limit, cap
        self.stall.on_usable(self.slots > 0, trio.current_time())
        self.sessions.set_slots(self.slots)
        self.dispatcher.settle()

    def revoke(self, url: Url, why: str) -> None:
        """End the leases on a lost endpoint; their requests go elsewhere."""
        if leases := self.dispatcher.revoke(url):
            self.emit(LeasesRevoked(self.endpoint_id, url, leases, why))

    # --- slots

    def hopeless(self) -> bool:
        """Whether no endpoint will ever take work: nothing is asked again, and all that was listed is misconfigured."""
        return not self.elastic and all(m.health.state is State.MISCONFIGURED for m in self.members.values())

    async def acquire(self, ask: Ask) -> HeldLease:
        """Wait for slots on one endpoint.

        Raises :class:`RequestFailed` when the pool will never have a usable endpoint. Cancelled, it leaves the queue.
        """
        return await self.asking.wait(partial(self.dispatcher.acquire, ask))

    async def acquire_place(self, age: int) -> LiveSession:
        """Wait for a session's place, as :meth:`acquire` waits for slots; ``sessions`` takes it back."""
        return await self.asking.wait(partial(self.sessions.enter, age))

    def release(self, held: HeldLease) -> None:
        """Give slots back. Never waits."""
        self.dispatcher.release(held)

    def _on_slots_changed(self) -> None:
        """Let others of an account take what is free; forget removed endpoints whose last lease has come back."""
        self.accounts.poke()
        for url in [url for url in self.departing if not self.dispatcher.ledger.lent(url)]:
            self._forget(self.departing.pop(url))

    def status(self) -> PoolStatus:
        """How the pool is doing now."""
        ledger, now = self.dispatcher.ledger, trio.current_time()
        members = (*self.members.values(), *self.departing.values())
        endpoints = tuple(member.status(now, ledger.lent(member.url)) for member in members)
        return PoolStatus(self.endpoint_id, endpoints, ledger.waiting, self.sessions.status())

    def stalled_s(self) -> float:
        """How long the pool has been getting nowhere; 0 while it gets on."""
        return self.stall.stalled_s(trio.current_time(), self.dispatcher.oldest_work_at())

    def why_waiting(self) -> str:
        """One line that says why there is nothing to give work to, or why all that work comes to nothing."""
        if not self.members:
            return not_listed(self.endpoint_id, self.listed())
        if self.slots and self.stall.unhelped_why is not None:
            return f"endpoints take work, but nothing helps that comes back; the last was {self.stall.unhelped_why}"
        if self.network.down_since is not None and any(member.host for member in self.members.values()):
            return self.network.why(trio.current_time())
        reasons = [member.reason for member in islice(self.members.values(), REASONS)]
        more = len(self.members) - len(reasons)
        return "; ".join(reasons) + (f"; and {more} more" if more else "")
