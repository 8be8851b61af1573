"""Is it them or us: when a host falls silent, whether that host is to blame or the network of this machine. Pure.

It hears which hosts were heard and which were listened to in vain, and knows neither endpoints nor sockets. Hosts on
this machine say nothing of the network: :func:`remote_host` leaves them out, and nobody tells of them.

What is evidence. A byte of another host proves that the network works at that instant. It speaks against a silent host
only where it is as young as the doubt: at or after ``since``, and no more than ``FRESH_S`` before the question, for a
silence may be long (a server thinks for minutes) and the network be lost only at its end. A host that was never heard,
or was blamed, proves nothing by its silence: it is not *alive*. Two alive hosts are the least that can tell by silence.

- ``THEIRS``: another host is heard, or nobody else could tell. The host is no longer alive, until it is heard again.
- ``UNDECIDED``: others are alive, and not all of them are silent. Ask those that :meth:`NetworkWatch.could_tell` at
  once: an answer makes :meth:`NetworkWatch.on_heard` name the host as blamed, and their silence makes the next verdict.
- ``OURS``: every alive host, two at least, is silent; or this machine itself says that it cannot send (``certain``) and
  no other alive host is left to contradict. The network is down until any host is heard. Until then each silence is
  ``OURS``, and what was undecided is dropped: once the network is back, everybody is asked again and judged anew.

That all hosts died at one instant looks the same and is ``OURS`` too, until one of them or a new one answers. A host
that was never heard is never a sign of an outage that begins, ``certain`` or not: its name may be misspelt.

Tell first what was heard, then what was not. What was heard before a host's last silence changes nothing, so the last
instant may be told again and again.

Invariants: nobody else was heard since the doubt about an undecided host began; while the network is down nobody is
undecided; an outage never begins before the last instant at which any host was heard.
"""

from __future__ import annotations

import enum
import ipaddress
import math
from urllib.parse import urlsplit

import attrs

FRESH_S = 1.0
"""How old the sign of life of another host may be when a host is asked about; streams have several in a second."""


class Verdict(enum.Enum):
    """Whose fault a silence is."""

    THEIRS = "theirs"
    UNDECIDED = "undecided"
    OURS = "ours"


@attrs.frozen
class Heard:
    """What follows from a host that was heard.

    ``theirs`` are the hosts whose pending silence is thereby their own fault; ``lost_s`` is how long the outage took
    that is thereby over, ``None`` where there was none.
    """

    theirs: tuple[str, ...] = ()
    lost_s: float | None = None


NOTHING = Heard()


@attrs.frozen
class _Silence:
    """A host is not heard since ``since``; ``doubt_at`` is the instant from which evidence counts."""

    since: float
    doubt_at: float


@attrs.define
class NetworkWatch:
    """What is known of the hosts of a fleet, and through them of the network of this machine."""

    down_since: float | None = attrs.field(default=None, init=False)
    """Since when nobody is heard; ``None`` while the network works or nothing tells otherwise."""
    _down_doubt_at: float = attrs.field(default=-math.inf, init=False)  # what is heard from then on ends the outage
    _heard_at: dict[str, float] = attrs.field(factory=dict, init=False)
    _alive: set[str] = attrs.field(factory=set, init=False)
    _trusted: set[str] = attrs.field(factory=set, init=False)  # alive and not silent
    _silences: dict[str, _Silence] = attrs.field(factory=dict, init=False)  # the last of each host, until it is heard
    _undecided: dict[str, None] = attrs.field(factory=dict, init=False)  # in the order of asking
    _last_host: str = attrs.field(default="", init=False)  # who was heard last of all
    _last_at: float = attrs.field(default=-math.inf, init=False)
    _other_at: float = attrs.field(default=-math.inf, init=False)  # when anybody else was heard last

    @property
    def alive(self) -> int:
        """How many hosts have been heard and not been blamed since."""
        return len(self._alive)

    def is_undecided(self, host: str) -> bool:
        """Whether *host* is silent and it is open whose fault that is."""
        return host in self._undecided

    def could_tell(self, host: str) -> bool:
        """Whether asking *host* helps to decide: it was heard, was not blamed since, and is not silent itself."""
        return host in self._trusted

    def on_heard(self, host: str, at: float, now: float) -> Heard:
        """Hear that something came from *host* at the instant *at* (minus infinity: never yet)."""
        if at <= self._heard_at.get(host, -math.inf):
            return NOTHING
        self._note(host, at)
        silence = self._silences.get(host)
        if silence is not None and at <= silence.doubt_at:
            return NOTHING
        self._silences.pop(host, None)
        self._undecided.pop(host, None)
        self._alive.add(host)
        self._trusted.add(host)
        if self.down_since is None:
            return self._contradict(at)
        return NOTHING if at < self._down_doubt_at else self._come_back(now - self.down_since)

    def on_silence(self, host: str, since: float, now: float, certain: bool = False) -> Verdict:
        """Judge that nothing came from *host* since *since*, when it was first listened to in vain.

        *certain*: this machine itself says that nothing can be sent there (no route, no name).
        """
        doubt_at = max(since, now - FRESH_S)
        if self.down_since is None and self._heard_at.get(host, -math.inf) > doubt_at:
            return Verdict.THEIRS  # it is heard, only not here: neither the network nor the whole host
        self._silences[host] = _Silence(since, doubt_at)
        self._trusted.discard(host)
        if self.down_since is not None:
            return Verdict.OURS
        if self._heard_from_others_at(host) >= doubt_at:
            return self._blame(host)
        self._undecided[host] = None
        if self._trusted:
            return Verdict.UNDECIDED
        if len(self._alive) > 1 or (certain and host in self._heard_at):
            return self._go_down(doubt_at)
        return Verdict.UNDECIDED if self._alive - {host} else self._blame(host)

    def forget(self, host: str) -> None:
        """No endpoint is left on *host*. An outage goes on: it ends when any host is heard.

        Who was undecided because of it is judged when it is asked about next.
        """
        self._heard_at.pop(host, None)
        self._silences.pop(host, None)
        self._undecided.pop(host, None)
        self._alive.discard(host)
        self._trusted.discard(host)

    def _note(self, host: str, at: float) -> None:
        """Keep when *host* was heard, and when anybody was and anybody else."""
        self._heard_at[host] = at
        if host == self._last_host:
            self._last_at = max(self._last_at, at)
        elif at >= self._last_at:
            self._last_host, self._last_at, self._other_at = host, at, self._last_at
        else:
            self._other_at = max(self._other_at, at)

    def _heard_from_others_at(self, host: str) -> float:
        return self._other_at if host == self._last_host else self._last_at

    def _contradict(self, at: float) -> Heard:
        """Blame the hosts whose doubt began no later than *at*, when another one was heard."""
        theirs = tuple(host for host in self._undecided if self._silences[host].doubt_at <= at)
        for host in theirs:
            self._blame(host)
        return Heard(theirs) if theirs else NOTHING

    def _blame(self, host: str) -> Verdict:
        self._undecided.pop(host, None)
        self._alive.discard(host)
        return Verdict.THEIRS

    def _go_down(self, doubt_at: float) -> Verdict:
        earliest = min(self._silences[host].since for host in self._undecided)
        self.down_since = max(earliest, self._last_at)  # the network still worked when the last one was heard
        self._down_doubt_at = doubt_at
        self._undecided.clear()
        return Verdict.OURS

    def _come_back(self, lost_s: float) -> Heard:
        self.down_since = None
        self._trusted = set(self._alive)  # who fell silent with the others is asked again
        return Heard(lost_s=lost_s)


def remote_host(url: str) -> str | None:
    """The host in *url* that is reached over a network; ``None`` for this machine itself, or without a host."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return None
    if not host:
        return None
    return None if _is_here(host.rstrip(".")) else host


def _is_here(host: str) -> bool:
    """Whether a name or an address always means this machine (RFC 6761 section 6.3, RFC 5735, RFC 4291)."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or address.is_unspecified
