"""Histories of an endpoint, told to an admission policy, and a look at all that it says. Knows no server and no story.

A *history* is a list of :class:`Told`: things that happen one after the other. All instants of a random one are whole
multiples of 1/64 s, so that moving it in time changes no difference of two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

import attrs

from scavenge.runtime.ports import AdmissionPolicy
from scavenge.signals import Ended, Ending, Flow, GateView, ServerLoad, WarmStart
from scavenge.types import CapChanged

MakePolicy: TypeAlias = Callable[[], AdmissionPolicy]

WAITS_S = (0.0, 0.0, 0.0, 1 / 64, 0.25, 1.0, 5.0, 15.0, 30.0, 121.0, 3600.0, 864000.0)
"""Between one thing and the next: no time at all, the clocks of policies, ten days."""
COUNTS = (0, 1, 2, 3, 8, 16, 40, 100, 256, 1500, 10**9)
AMOUNTS = (0.0, 1e-9, 0.5, 1.0, 7.25, 60.0, 4e3, 1e12)
_LATER_S = float(2**20)
"""By so much a history is moved in time: a power of two, which no difference of instants notices."""


@attrs.frozen
class Told:
    """Something that happens ``after_s`` after the thing before it.

    ``admitted_at`` of an :class:`scavenge.signals.Ended` counts from the moment when it is told, and is thus negative.
    """

    after_s: float
    event: object

    def placed(self, now: float) -> object:
        """The event as a policy hears it."""
        event = self.event
        return attrs.evolve(event, admitted_at=now + event.admitted_at) if isinstance(event, Ended) else event


History: TypeAlias = Sequence[Told]


@attrs.define
class Driven:
    """A policy in the hands of somebody who looks at all it says after each thing that it hears."""

    policy: AdmissionPolicy
    most: int
    now: float = 0.0
    cap: int | None = attrs.field(default=None, init=False)

    def tell(self, event: object) -> int:
        """Let it hear of an event; its limit then. Raises :class:`AssertionError` when what it says is not right."""
        self.policy.observe(event, self.now)
        if isinstance(event, CapChanged):
            self.cap = event.max_concurrent
        limit: object = self.policy.limit(self.now)
        top = self.most if self.cap is None else min(self.most, self.cap)
        if type(limit) is not int or not 1 <= limit <= top:
            raise AssertionError(f"limit() must give an int from 1 to {top}, gave {limit!r} {self._after(event)}")
        wake_at: object = self.policy.next_wake_at(self.now)
        if wake_at is not None and not isinstance(wake_at, int | float):
            raise AssertionError(f"next_wake_at() must give a number or None, gave {wake_at!r}")
        if wake_at is not None and isinstance(event, Flow) and not wake_at > self.now:
            raise AssertionError(f"next_wake_at() must lie in the future, was {wake_at!r} {self._after(event)}")
        if (view := getattr(self.policy, "view", None)) is not None:
            self._check_view(view(self.now), limit)
        return limit

    def _check_view(self, view: object, limit: int) -> None:
        if not isinstance(view, GateView):
            raise AssertionError(f"view() must give a GateView, gave {view!r}")
        if view.limit != limit:
            raise AssertionError(f"view() shows the limit {view.limit}, and limit() gives {limit}")

    def _after(self, event: object) -> str:
        return f"after it heard {event} at {self.now:g}"


def play(policy: AdmissionPolicy, history: History, *, most: int, begin: float = 0.0) -> list[int]:
    """Tell a policy a whole history and look at all it says; its limit after each thing.

    versionadded: 0.1
    """
    driven = Driven(policy, most, begin)
    limits = []
    for told in history:
        driven.now += told.after_s
        limits.append(driven.tell(told.placed(driven.now)))
    return limits


def check_history(make: MakePolicy, history: History, *, most: int = 1024) -> None:
    """Check all that holds for every history: bounds, and what may make no difference to them.

    The origin of time, being asked more often, events of unknown kinds, and how long servers ask single requests to
    stay away make none. Raises :class:`AssertionError`.

    versionadded: 0.1
    """
    limits = play(make(), history, most=most)
    assert play(make(), history, most=most, begin=_LATER_S) == limits, "its limits depend on where time begins"
    assert play(_Curious(make()), history, most=most) == limits, "to be asked changes what it says next"
    strange = [one for told in history for one in (Told(0.0, object()), told)]
    assert play(make(), strange, most=most)[1::2] == limits, "it reacts to an event of a kind that it cannot know"
    patient = [attrs.evolve(told, event=_asked_to_wait(told.event)) for told in history]
    assert play(make(), patient, most=most) == limits, "a Retry-After moves its limit, or keeps it from moving"


def random_history(random: Random, events: int) -> list[Told]:
    """Anything, in any order: what a server, a source and a user may do, and more.

    versionadded: 0.1
    """
    kinds = random.choices((_ended, _flow, _load, _cap, _warm), (8, 4, 1, 0.3, 0.2), k=events)
    return [Told(random.choice(WAITS_S), kind(random)) for kind in kinds]


def _ended(random: Random) -> Ended:
    return Ended(
        random.choice(list(Ending)),
        admitted_at=-random.choice(WAITS_S),
        in_flight=random.choice(COUNTS[1:]),
        duration_s=random.choice(AMOUNTS),
        first_token_s=random.choice((None, *AMOUNTS)),
        streamed=random.random() < 0.8,
        prompt_tokens=random.choice((None, *AMOUNTS)),
        output_tokens=random.choice((None, *AMOUNTS)),
        cached_tokens=random.choice((None, *AMOUNTS)),
    )


def _flow(random: Random) -> Flow:
    return Flow(
        span_s=random.choice((0.0, 1 / 64, 1.0, 5.0, 3600.0)),
        in_flight=float(random.choice(COUNTS)),
        awaiting=float(random.choice(COUNTS)),
        stalled=float(random.choice(COUNTS)),
        output_tokens=random.choice(AMOUNTS),
        prompt_tokens=random.choice(AMOUNTS),
        streamed=random.choice((0.0, 0.4, 1.0)),
        in_flight_now=random.choice(COUNTS),
    )


def _load(random: Random) -> ServerLoad:
    return ServerLoad(
        running=random.choice((None, *COUNTS)),
        waiting=random.choice((None, *COUNTS)),
        kv_usage=random.choice((None, 0.0, 0.5, 0.97, 1.0, 3.0)),
        kv_tokens=random.choice((None, *COUNTS)),
        slots=random.choice((None, *COUNTS)),
        preemptions=random.choice((None, *COUNTS)),
        prefix_queries=random.choice((None, *AMOUNTS)),
        prefix_hits=random.choice((None, *AMOUNTS)),
    )


def _cap(random: Random) -> CapChanged:
    return CapChanged(random.choice((None, 1, 2, 7, 100, 5000)))


def _warm(random: Random) -> WarmStart:
    return WarmStart(random.choice(COUNTS[1:]))


def _asked_to_wait(event: object) -> object:
    return attrs.evolve(event, retry_after_s=7200.0) if isinstance(event, Ended) else event


@attrs.frozen
class _Curious:
    """Asks a policy everything again and again, before and after it hears of something."""

    policy: AdmissionPolicy

    def observe(self, event: object, now: float) -> None:
        self._ask(now)
        self.policy.observe(event, now)
        self._ask(now)

    def limit(self, now: float) -> int:
        return self.policy.limit(now)

    def next_wake_at(self, now: float) -> float | None:
        return self.policy.next_wake_at(now)

    def _ask(self, now: float) -> None:
        view: Callable[[float], object] = getattr(self.policy, "view", self.policy.limit)
        for ask in (self.policy.limit, self.policy.next_wake_at, view) * 2:
            ask(now)
