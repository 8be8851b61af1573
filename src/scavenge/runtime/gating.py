"""The gates of one pool: what each endpoint may have in flight, and what its gate hears of.

Data flow: requests that end and servers' own figures go to the endpoint's gate and to its account; their limits come
back as one bound. Moves are told. Lends nothing.

Invariant: what a policy raises ends the run from where all that serves lives, and is no rollout's error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from scavenge.core.flow import Stream
from scavenge.events import LimitMoved
from scavenge.runtime.gate import Gate, Gates
from scavenge.runtime.member import Member
from scavenge.signals import ServerLoad
from scavenge.types import Answer, Endpoint, Url

if TYPE_CHECKING:
    from scavenge.runtime.pool import Pool

LOAD_EVERY_S = 5.0
"""How often a server's own figures are read while it works."""
TELLS_NOTHING = ServerLoad()
LOADS_A_SECOND = 20.0
"""How many servers of a pool are read a second at the most: their figures are long texts."""


@attrs.define(eq=False)
class Gating:
    """Keeps the gates of one pool."""

    pool: Pool = attrs.field(repr=False)
    gates: Gates = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.gates = Gates(self.pool.make_policy, self._fail)

    def gate_of(self, endpoint: Endpoint) -> Gate:
        """The gate of an endpoint with its present settings."""
        return self.gates.open(endpoint.url, endpoint.model, endpoint.max_concurrent, trio.current_time())

    def leave(self, url: Url) -> None:
        """An endpoint went."""
        self.gates.leave(url, trio.current_time())

    def bound(self, member: Member, now: float) -> int:
        """How many requests a member may have in flight, for its health, its gate, its cap and its account."""
        bound, quota = member.bound(now), self.pool.accounts.bound(member)
        return bound if quota is None else min(bound, quota)

    def begin(self, member: Member, *, streamed: bool, prompt_tokens: float) -> Stream:
        """A request goes out."""
        stream = member.gate.begin(trio.current_time(), streamed=streamed, prompt_tokens=prompt_tokens)
        stream.account_in_flight = self.pool.accounts.in_flight(member)
        self.on_begun(member)
        return stream

    def on_begun(self, member: Member, requests: int = 1) -> None:
        """So many went out: the first in flight have the member's task look when flow and figures are due."""
        now, begins = trio.current_time(), member.gate.meter.in_flight == requests
        if begins and (member.gate.next_wake_at(now) is not None or self._wants_load(member)):
            member.poke()

    def end(self, member: Member, gate: Gate, stream: Stream, answer: Answer | None) -> None:
        """Let the gates hear that a request is over, while its slot is still held; ``None``: it was given up.

        *gate* is the one where it began: the member may have another one by now.
        """
        now = trio.current_time()
        ended = gate.end(stream, answer, now, quota=self.pool.accounts.is_shared(member))
        self.pool.accounts.hear(member, ended, stream.account_in_flight, now)

    def note(self, member: Member, answer: Answer, since: float) -> None:
        """Let the gates hear how a request of somebody's own ended, which was sent after *since*."""
        now = trio.current_time()
        ended = member.gate.note(answer, since, now, quota=self.pool.accounts.is_shared(member))
        self.pool.accounts.hear(member, ended, self.pool.accounts.in_flight(member), now)

    def tell_move(self, member: Member, now: float) -> None:
        """Tell observers where a member's gate has moved."""
        if (move := member.gate.moved(now)) is None:
            return
        view, in_flight = move.view, member.gate.meter.in_flight
        self.pool.emit(
            LimitMoved(
                self.pool.endpoint_id,
                member.url,
                move.old,
                view.limit,
                view.reason,
                in_flight,
                view.goodput,
                view.queue,
                view.elasticity,
            )
        )

    def load_due_at(self, member: Member) -> float | None:
        """When a member's own figures are to be read: every few seconds while it has work and somebody wants them."""
        if member.reading or not member.gate.meter.in_flight or not self._wants_load(member):
            return None
        return member.read_at + max(LOAD_EVERY_S, len(self.pool.members) / LOADS_A_SECOND)

    def _wants_load(self, member: Member) -> bool:
        return member.gate.wants_load or (self.pool.sessions.wants_load and self.pool.sessions.taken > 0)

    def on_load(self, member: Member, load: ServerLoad) -> None:
        """Hear a member's own figures."""
        member.gate.tell(load, trio.current_time())
        self.tell_capacity()
        self.pool.refresh(member)

    def tell_capacity(self) -> None:
        """Let the session gate hear which endpoints there are, and what each tells of itself."""
        loads = {member.url: member.load or TELLS_NOTHING for member in self.pool.members.values()}
        self.pool.sessions.set_capacity(loads)

    def _fail(self, error: Exception) -> None:
        self.pool.minders_nursery.start_soon(_raise, error, name=f"policy of {self.pool.endpoint_id}")


async def _raise(error: Exception) -> None:
    await trio.lowlevel.checkpoint()
    raise error
