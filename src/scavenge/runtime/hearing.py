"""What is heard of a pool's endpoints, and what it counts for: the ends of attempts, probes, replies on their way.

Data flow: an outcome or a probe goes to the network judge first, which tells whose doing it is, then to the endpoint's
health; its limit follows. Lends nothing.

Invariant: only outcomes of a member's present settings count for its health.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from scavenge.core.health_state import State
from scavenge.core.network import Verdict
from scavenge.core.others import others_of
from scavenge.runtime.member import Member
from scavenge.runtime.ports import ModelClient
from scavenge.types import Busy, Healthy, Lost, LostCause, Outcome

if TYPE_CHECKING:
    from scavenge.runtime.pool import Pool

REPLYING_AFTER_S = 5.0
"""After so many seconds of a reply an endpoint on probation is taken to do its work: replies may take an hour."""


@attrs.define(eq=False)
class Hearing:
    """Hears for one pool."""

    pool: Pool = attrs.field(repr=False)

    def report(
        self, member: Member, client: ModelClient, outcome: Outcome, since: float, tokens: float | None = None
    ) -> Outcome:
        """Let an attempt that began at *since* and gave *tokens* tokens count, and tell the outcome as it counts.

        It is another than *outcome* where a silence turns out to be this machine's fault.
        """
        now = trio.current_time()
        self.pool.stall.on_outcome(outcome, now)
        member.count(outcome)
        if member.gone or member.client is not client:
            return outcome
        if tokens:
            member.pace.observe(tokens, now - since, self.pool.dispatcher.ledger.lent(member.url), now)
            self.pool.dispatcher.ledger.set_line(member.url, member.pace.line())
        settle = partial(self._settle, member, client, outcome, since)
        match self.pool.network.judge(member, outcome, since, settle):
            case Verdict.THEIRS:
                self.hear(member, outcome, since)
                self.pool.share(self.pool, member.url, outcome, since)
            case Verdict.OURS:
                self._pause_unprobed(member, outcome, now)
                return Lost(outcome.message or "", LostCause.LATE)
            case Verdict.UNDECIDED:
                member.health.undecided(now)
                self.pool.refresh(member)
        return outcome

    def _pause_unprobed(self, member: Member, outcome: Outcome, now: float) -> None:
        """Where probes are off, only requests can tell when the network is back: let one be tried a little later."""
        if not member.health.settings.probe:
            member.health.on_outcome(Lost(outcome.message or "", LostCause.LOCAL), now)
            self.pool.refresh(member)

    def _settle(self, member: Member, client: ModelClient, outcome: Outcome, since: float) -> None:
        """Let a silence count that has turned out to be the endpoint's."""
        if not member.gone and member.client is client:
            self.hear(member, outcome, since)
            self.pool.share(self.pool, member.url, outcome, since)

    def hear(self, member: Member, outcome: Outcome, since: float) -> None:
        """Let the outcome of an attempt that began at *since* count for a member's health."""
        others = others_of(member.health, (one.health for one in self.pool.members.values()), outcome)
        member.health.on_outcome(outcome, trio.current_time(), others, since)
        self.pool.refresh(member)

    def on_probe(self, member: Member, result: Healthy | Outcome, since: float) -> None:
        """Hear how a probe ended that was sent at *since*."""
        now = member.probed_at = trio.current_time()
        silent = isinstance(result, Lost) and result.cause is LostCause.SILENT
        if silent and member.client.heard_at > since:
            result = Busy("does not answer its probe in time, but its replies go on")
        if isinstance(result, Healthy):
            member.probe_s = now - since
        client = member.client
        settle = partial(self._settle_probe, member, client, result)
        match self.pool.network.judge(member, result, since, settle):
            case Verdict.THEIRS:
                self._settle_probe(member, client, result)
            case Verdict.OURS | Verdict.UNDECIDED:
                member.health.undecided(now)
                self.pool.refresh(member)

    def _settle_probe(self, member: Member, client: ModelClient, result: Healthy | Outcome) -> None:
        """Let a probe by *client* count; the leases of a lost endpoint are revoked."""
        if member.client is not client:
            return
        if member.health.on_probe(result, trio.current_time()):
            self.pool.revoke(member.url, member.health.why)
        self.pool.refresh(member)

    def is_replying(self, member: Member) -> bool:
        """Whether a member on probation has been sending a reply for a while that it was asked for since."""
        if not self.is_watched(member) or member.client.heard_at <= member.probed_at:
            return False
        return member.client.heard_at >= self._asked_at(member) + REPLYING_AFTER_S

    def is_watched(self, member: Member) -> bool:
        """Whether a request is under way to a member on probation that was sent since it began."""
        return member.health.state is State.PROBATION and self._asked_at(member) < math.inf

    def _asked_at(self, member: Member) -> float:
        return self.pool.dispatcher.granted_at(member.url, member.health.entered_at)
