"""Whose silence it is: tells the network watch what is heard of whom, and has others asked when it cannot tell.

Data flow: outcomes and probes of all pools come by here before they count for anybody's health. A silence is either the
endpoint's, and counts; or this machine's, which blames nobody, is told once, and keeps work from every remote endpoint
until one is heard; or undecided: then the endpoint takes no work, others are probed at once, and what comes of that
decides. The limits of all whom a decision concerns follow it at once. Any answer tells that the network works, so that
an endpoint which takes no work, such as one that refuses our key, is asked as well. Without probes nobody can be asked,
and requests alone tell when the network is back: those endpoints are paused as for any other shortage of this machine.

Invariant: exactly the members with a doubt are ``doubtful``; there is none while the network is down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import attrs
import trio

from scavenge.core.network import NetworkWatch, Verdict
from scavenge.events import NetworkBack, NetworkLost, Observer
from scavenge.runtime.member import Member
from scavenge.types import Healthy, Lost, LostCause, Outcome

SILENCES = frozenset({LostCause.SILENT, LostCause.NETWORK, LostCause.NAMES})
"""What may come of a network that is lost."""
ASKED_AT_ONCE = 8
"""How many other endpoints are probed because of one that is silent."""
DOUBT_WITHIN_S = 40.0
"""After this an endpoint's silence is its own. Three rounds of probes reach some six hundred endpoints."""
PULL_EVERY_S = 0.5
"""How old what is known of all streams may be when a silence is judged."""


@attrs.frozen(eq=False)
class _Doubt:
    at: float
    settle: Callable[[], None]
    """What is to happen once the silence turns out to be the endpoint's."""


@attrs.define(eq=False)
class NetworkJudge:
    """Tells an endpoint's silence from this machine's. ``members`` gives those of all pools."""

    members: Callable[[], Sequence[Member]]
    refresh: Callable[[Member], None] = attrs.field(repr=False)
    """Brings a member's limit in line with what is known now."""
    emit: Observer = attrs.field(repr=False)
    random: Random = attrs.field(repr=False)
    watch: NetworkWatch = attrs.field(factory=NetworkWatch)
    _doubts: dict[Member, _Doubt] = attrs.field(factory=dict)
    _on_host: Counter[str] = attrs.field(factory=Counter)
    """How many members each host has."""
    _pulled_at: float = float("-inf")

    @property
    def down_since(self) -> float | None:
        """Since when this machine has had no network; ``None``: it has one, or nothing tells otherwise."""
        return self.watch.down_since

    def why(self, now: float) -> str:
        """What is wrong while the network is down."""
        since = now if self.down_since is None else self.down_since
        return f"no other host is heard for {now - since:.0f} s: this machine's network, or the way out of it, is down"

    def bars(self, member: Member) -> bool:
        """Whether a member is kept from work because of a silence that is not known to be its own."""
        down = self.down_since is not None and member.host is not None
        return member.doubtful or (down and member.askable)

    def judge(self, member: Member, result: Healthy | Outcome, since: float, settle: Callable[[], None]) -> Verdict:
        """Whose doing it is how an exchange with a member ended that began at *since*: ``THEIRS`` counts as it is.

        An undecided silence is given to *settle* when it turns out to be the member's.
        """
        if member.host is None:
            return Verdict.THEIRS
        now = trio.current_time()
        self._hear(member, now)
        if not isinstance(result, Lost) or result.cause not in SILENCES:
            return Verdict.THEIRS
        self._pull(now)
        was_down = self.down_since is not None
        since = max(since, member.client.reached_at)
        verdict = self.watch.on_silence(member.host, since, now, result.cause is not LostCause.SILENT)
        if verdict is Verdict.UNDECIDED and self._in_doubt(member, settle, now):
            self._ask_others(member.host, now)
            return verdict
        if verdict is not Verdict.OURS:
            self._drop_doubt(member)
            return Verdict.THEIRS
        if not was_down:
            self._go_down(now)
        return verdict

    def _in_doubt(self, member: Member, settle: Callable[[], None], now: float) -> bool:
        """Keep a member in doubt, unless nobody can be asked or nobody has told for too long."""
        doubt = self._doubts.setdefault(member, _Doubt(now, settle))
        member.doubtful = True
        return member.askable and now - doubt.at < DOUBT_WITHIN_S

    def meet(self, member: Member) -> None:
        """A member is there, on the host that it has."""
        if member.host is not None:
            self._on_host[member.host] += 1

    def forget(self, member: Member) -> None:
        """A member is gone for good, or from the host that it has."""
        self._drop_doubt(member)
        if member.host is None:
            return
        self._on_host[member.host] -= 1
        if self._on_host[member.host] <= 0:
            del self._on_host[member.host]
            self.watch.forget(member.host)

    def _pull(self, now: float) -> None:
        """Find out who has been heard in streams that are still under way."""
        if now - self._pulled_at >= PULL_EVERY_S:
            self._pulled_at = now
            for member in self.members():
                self._hear(member, now)

    def _hear(self, member: Member, now: float) -> None:
        """Pass on when a member was last heard, and what follows from that."""
        if member.host is None:
            return
        heard_at = member.client.reached_at
        heard = self.watch.on_heard(member.host, heard_at, now)
        theirs = [one for one in self._doubts if one.host in heard.theirs]
        for doubtful in [one for one, doubt in self._doubts.items() if one.host == member.host and heard_at > doubt.at]:
            if doubtful is member:
                self._drop_doubt(doubtful)
            else:
                theirs.append(doubtful)  # its host is heard, and it is not
        for doubtful in theirs:
            self._settle(doubtful)
        if heard.lost_s is not None:
            self._come_back(heard.lost_s, now)

    def _settle(self, member: Member) -> None:
        doubt = self._doubts.get(member)
        self._drop_doubt(member)
        if doubt is not None:
            doubt.settle()

    def _drop_doubt(self, member: Member) -> None:
        if self._doubts.pop(member, None) is not None:
            member.doubtful = False
            self.refresh(member)

    def _ask_others(self, host: str, now: float) -> None:
        """Have some endpoints on other hosts probed at once."""
        tells = self.watch.could_tell
        others = [one for one in self.members() if one.host not in (None, host) and one.askable and tells(one.host)]
        for one in self.random.sample(others, min(ASKED_AT_ONCE, len(others))):
            if not one.probing:
                one.health.ask_soon(now)
                one.poke()

    def _go_down(self, now: float) -> None:
        for member in list(self._doubts):
            self._drop_doubt(member)
        self.emit(NetworkLost(self.watch.alive, self.why(now)))
        for member in self.members():
            self.refresh(member)

    def _come_back(self, lost_s: float, now: float) -> None:
        self.emit(NetworkBack(lost_s))
        for member in self.members():
            if member.host is not None:
                member.health.absolve(now)
                self.refresh(member)
                member.poke()
