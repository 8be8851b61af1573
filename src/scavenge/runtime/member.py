"""One endpoint of a pool and the task that minds it: probes it, and lets time pass for its health and its gate.

Data flow: the pool pokes the task when something changed; the task wakes at the earliest instant that matters, asks the
endpoint how it is when that is due, and tells the pool. Lends nothing and decides nothing about requests.
"""

from __future__ import annotations

from typing import Protocol

import attrs
import trio

from scavenge.core.health import EndpointHealth, State
from scavenge.runtime.ports import AdmissionPolicy, ModelClient
from scavenge.types import Endpoint, Healthy, Lost, LostCause, Outcome, TimedOut, Url

PROBE_WITHIN_S = 10.0
"""How long a probe may take before it counts as unanswered."""
OWN_LAG_S = 1.0
"""A deadline that is noticed later than this was kept from us by our own loop: nobody else is to blame."""


@attrs.define(eq=False)
class Member:
    """One endpoint with everything that belongs to it. ``gone``: removed, while leases on it still run."""

    endpoint: Endpoint
    client: ModelClient
    policy: AdmissionPolicy
    health: EndpointHealth
    told: State = attrs.field(default=attrs.Factory(lambda self: self.health.state, takes_self=True))
    """The state of its health that observers have heard of."""
    limit: int = 0
    """How many slots the ledger may lend on it now, within ``cap``."""
    cap: int | None = attrs.field(default=attrs.Factory(lambda self: self.endpoint.max_concurrent, takes_self=True))
    revoke_at: float | None = None
    """When the leases that still run on a draining endpoint end."""
    gone: bool = False
    minding: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _poked: trio.Event = attrs.field(factory=trio.Event)

    @property
    def url(self) -> Url:
        return self.endpoint.url

    @property
    def draining(self) -> bool:
        return self.gone or self.endpoint.draining or self.endpoint.drain_deadline is not None

    def poke(self) -> None:
        """Let the minding task look again."""
        self._poked.set()

    async def wait_due(self, now: float) -> None:
        """Wait until something is due or the member is poked."""
        policy_at = self.policy.next_wake_at(now)
        instants = (self.health.next_wake_at(), self.health.next_probe_at, policy_at, self.revoke_at)
        due_at = min((at for at in instants if at is not None), default=float("inf"))
        with trio.move_on_at(due_at):
            await self._poked.wait()
        self._poked = trio.Event()


class Minded(Protocol):
    """What the minding task tells its pool."""

    def refresh(self, member: Member) -> None:
        """Bring the member's limit in line with what is known of it now."""
        ...

    def on_probe(self, member: Member, result: Healthy | Outcome) -> None:
        """Hear how a probe ended."""
        ...


async def mind(pool: Minded, member: Member) -> None:
    """Mind one member until its ``minding`` scope is cancelled; a probe that is cancelled leaves no connection."""
    with member.minding:
        while True:
            now = trio.current_time()
            pool.refresh(member)
            if member.health.probe_due(now):
                member.health.on_probe_sent()
                pool.on_probe(member, await _probe(member))
            else:
                await member.wait_due(now)


async def _probe(member: Member) -> Healthy | Outcome:
    with trio.move_on_after(PROBE_WITHIN_S) as patience:
        return await member.client.probe(member.health.settings.path)
    if trio.current_time() - patience.deadline > OWN_LAG_S:
        return Lost("a probe ran late because this process was busy", LostCause.LOCAL)
    return TimedOut(f"no answer to a probe within {PROBE_WITHIN_S:g} s")
