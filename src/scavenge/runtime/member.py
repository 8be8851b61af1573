"""One endpoint of a pool and the task that minds it: probes it, and lets time pass for its health and its gate.

Data flow: the pool pokes the task when something changed; the task wakes at the earliest instant that matters, asks the
endpoint how it is when that is due, and tells the pool. Lends nothing and decides nothing about requests.
"""

from __future__ import annotations

from typing import Protocol

import attrs
import trio

from scavenge.core.flow import SHORTEST_WAKE_S
from scavenge.core.health import EndpointHealth
from scavenge.core.health_state import State
from scavenge.core.network import remote_host
from scavenge.core.pace import Pace
from scavenge.runtime.gate import Gate
from scavenge.runtime.ports import ModelClient
from scavenge.signals import ServerLoad
from scavenge.status import EndpointStatus
from scavenge.types import Endpoint, Healthy, Lost, LostCause, Ok, Outcome, Url

PROBE_WITHIN_S = 10.0
"""How long a probe may take before it counts as unanswered."""
LOOK_EVERY_S = 5.0
"""How often it is looked whether a reply is coming from an endpoint on probation."""
LOAD_WITHIN_S = 5.0
"""How long reading a server's own figures may take."""
OWN_LAG_S = 1.0
"""A deadline that is noticed later than this was kept from us by our own loop: nobody else is to blame."""

DRAINING = "listed as draining, or no longer listed"
"""Why an endpoint that is there takes no new work."""


@attrs.define(eq=False)
class Member:
    """One endpoint with everything that belongs to it. ``gone``: removed, while leases on it still run."""

    endpoint: Endpoint
    client: ModelClient
    gate: Gate
    health: EndpointHealth
    told: State = attrs.field(default=attrs.Factory(lambda self: self.health.state, takes_self=True))
    """The state of its health that observers have heard of."""
    limit: int = 0
    """How many slots the ledger may lend on it now, within ``cap``."""
    cap: int | None = attrs.field(default=attrs.Factory(lambda self: self.endpoint.max_concurrent, takes_self=True))
    host: str | None = attrs.field(init=False)
    """The host that connections go to; ``None`` for one that is reached without a network."""
    doubtful: bool = False
    """Nothing is heard of it, and it is not known yet whether that is its fault."""
    drained_at: float | None = None
    """Since when it has been draining; ``None`` while it is not."""
    revoke_at: float | None = None
    """When the leases that still run on a draining endpoint end."""
    gone: bool = False
    pace: Pace = attrs.field(factory=Pace)
    requests: int = 0
    """Attempts that ended here."""
    failures: int = 0
    """Those of them that were not ``ok``."""
    probe_s: float | None = None
    """How long the last answered probe took."""
    probing: bool = False
    """A probe is under way."""
    reading: bool = False
    """The server's own figures are being read."""
    load: ServerLoad | None = None
    """What they were last."""
    read_at: float = float("-inf")
    """When they were asked for last."""
    probed_at: float = float("-inf")
    """When the last probe ended."""
    minding: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _poked: trio.Event = attrs.field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.host = remote_host(self.endpoint.proxy or self.endpoint.url)

    @property
    def url(self) -> Url:
        return self.endpoint.url

    @property
    def draining(self) -> bool:
        return self.gone or self.endpoint.draining or self.endpoint.drain_deadline is not None

    @property
    def askable(self) -> bool:
        """Whether it can be probed at any time."""
        return self.health.settings.probe

    def drain(self, now: float) -> bool:
        """Note whether it is draining now; tell whether that has just begun."""
        if not self.draining:
            self.drained_at = None
            return False
        begins = self.drained_at is None
        self.drained_at = now if self.drained_at is None else self.drained_at
        return begins

    def bound(self, now: float) -> int:
        """How many requests it may have in flight, for its health, its gate and its cap."""
        room = self.health.room(now)
        if self.draining or room == 0:
            return 0
        bounds = (room, self.gate.limit(now), self.endpoint.max_concurrent)
        return min(bound for bound in bounds if bound is not None)

    def count(self, outcome: Outcome) -> None:
        """Count an attempt that ended."""
        self.requests += 1
        self.failures += not isinstance(outcome, Ok)

    def poke(self) -> None:
        """Let the minding task look again."""
        self._poked.set()

    def on_asked(self) -> None:
        """A request goes out to it: on probation, its reply is watched."""
        if self.health.state is State.PROBATION:
            self.poke()

    async def wait_due(self, now: float, load_at: float | None, *, watched: bool) -> None:
        """Wait until something is due or the member is poked; *watched*: a reply may be coming on probation."""
        policy_at = self.gate.next_wake_at(now)
        if policy_at is not None:
            policy_at = max(policy_at, now + SHORTEST_WAKE_S)  # it was asked just before, and may say otherwise now
        probe_at = None if self.probing else self.health.next_probe_at
        look_at = now + LOOK_EVERY_S if watched else None
        instants = (self.health.next_wake_at(), probe_at, policy_at, load_at, self.revoke_at, look_at)
        due_at = min((at for at in instants if at is not None), default=float("inf"))
        with trio.move_on_at(due_at):
            await self._poked.wait()
        self._poked = trio.Event()

    @property
    def state(self) -> str:
        """Its state in one word, for people."""
        return "draining" if self.draining else self.health.state.value

    @property
    def why(self) -> str:
        """Why it is in that state."""
        if self.draining:
            return "removed" if self.gone else DRAINING
        if self.doubtful:
            return "nothing is heard of it; others are asked whether that is this machine's network"
        return self.health.why

    @property
    def reason(self) -> str:
        """Its state and why, in one line with its url."""
        return f"{self.url} is {self.state} ({self.why})"

    def status(self, now: float, in_flight: int) -> EndpointStatus:
        """How it is doing; *in_flight* is what is lent on it."""
        heard_at, line = self.client.heard_at, self.pace.line()
        return EndpointStatus(
            url=self.url,
            state=self.state,
            why=self.why,
            in_flight=in_flight,
            limit=self.limit,
            max_concurrent=self.endpoint.max_concurrent,
            source=self.endpoint.source,
            state_s=now - (self.health.entered_at if self.drained_at is None else self.drained_at),
            heard_s=now - heard_at if heard_at > float("-inf") else None,
            tokens_per_s=None if line is None else 1 / line.at(max(1, in_flight)),
            requests=self.requests,
            failures=self.failures,
            probe_s=self.probe_s,
            gate=self.gate.view(now),
        )


class Hears(Protocol):
    """Who is told of probes, and watches replies."""

    def is_watched(self, member: Member) -> bool:
        """Whether a reply may be coming that ends a probation."""
        ...

    def on_probe(self, member: Member, result: Healthy | Outcome, since: float) -> None:
        """Hear how a probe ended that was sent at *since*."""
        ...


class ReadsLoad(Protocol):
    """Who wants the servers' own figures."""

    def load_due_at(self, member: Member) -> float | None:
        """When they are to be read; ``None``: nobody wants them now."""
        ...

    def on_load(self, member: Member, load: ServerLoad) -> None:
        """Hear them."""
        ...


class Minded(Protocol):
    """The pool whose member is minded."""

    @property
    def gating(self) -> ReadsLoad:
        """Who wants the servers' own figures."""
        ...

    @property
    def hearing(self) -> Hears:
        """Who is told of probes."""
        ...

    def refresh(self, member: Member) -> None:
        """Bring the member's limit in line with what is known of it now."""
        ...


async def mind(pool: Minded, member: Member) -> None:
    """Mind one member until its ``minding`` scope is cancelled; a probe that is cancelled leaves no connection.

    A probe runs beside the minding: an endpoint that hangs may not keep its own deadlines from being seen.
    """
    with member.minding:
        async with trio.open_nursery() as probes:
            while True:
                now = trio.current_time()
                member.gate.wake(now)
                pool.refresh(member)
                load_at = pool.gating.load_due_at(member)
                if load_at is not None and load_at <= now:
                    member.read_at, member.reading = now, True
                    probes.start_soon(_read_load, pool, member)
                    load_at = None
                if not member.probing and member.health.probe_due(now):
                    member.health.on_probe_sent()
                    member.probing = True
                    probes.start_soon(_probe, pool, member)
                await member.wait_due(now, load_at, watched=pool.hearing.is_watched(member))


async def _probe(pool: Minded, member: Member) -> None:
    since, client = trio.current_time(), member.client
    result = await _ask(member)
    member.probing = False
    if member.client is client:
        pool.hearing.on_probe(member, result, since)
    else:
        member.health.undecided(trio.current_time())  # it was asked with settings that are no longer so
    member.poke()


async def _read_load(pool: Minded, member: Member) -> None:
    client, load = member.client, None
    with trio.move_on_after(LOAD_WITHIN_S):
        load = await client.read_load()
    member.reading = False
    if load is not None and member.client is client:
        member.load = load
        pool.gating.on_load(member, load)
    member.poke()


async def _ask(member: Member) -> Healthy | Outcome:
    with trio.move_on_after(PROBE_WITHIN_S) as patience:
        return await member.client.probe(member.health.settings.path)
    if trio.current_time() - patience.deadline > OWN_LAG_S:
        return Lost("a probe ran late because this process was busy", LostCause.LATE)
    return Lost(f"no answer to a probe within {PROBE_WITHIN_S:g} s", LostCause.SILENT)
