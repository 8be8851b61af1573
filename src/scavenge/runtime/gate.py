"""One endpoint's gate: its admission policy, and the meter that the policy hears of. It outlives the endpoint's row.

Data flow: requests begin and end here; the policy hears of each end, of the flow when it asked to be woken, and of the
server's own figures. Its limit is read by the pool. Waits for nothing and lends nothing.

Invariant: every stream that was begun ends once, and the policy hears of time in one direction only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import TypeAlias

import attrs

from scavenge.core.flow import SHORTEST_WAKE_S, FlowMeter, Stream
from scavenge.core.gates.ending import TOO_MANY, ending_of
from scavenge.core.naming import one_line
from scavenge.core.tokens import tokens_of
from scavenge.runtime.ports import AdmissionPolicy
from scavenge.signals import Ended, Ending, Flow, GateView, ServerLoad, WarmStart
from scavenge.types import Answer, Busy, CapChanged, Ok, Url, Usage

KEEP_S = 300.0
"""How long the gate of an endpoint that went is kept for its return."""
LOOK_EVERY_S = 1.0
LOOK_AT_GROWTH = 1.1
"""What the gates of a pool have settled at is looked up for a new one after that time, or when there are so many times
more of them: thousands of endpoints may come at once."""
QUIET_SHARE = 0.12
"""A limit that moved by a smaller part of itself, for the same reason as before, is not told of."""
QUIET_S = 1.0
"""A limit that moves again so soon after it was told is told later: a policy that dithers may not flood observers."""
REASON_CHARACTERS = 40
"""How much of a policy's reason is shown."""
MOST = 1e15
"""A figure of a view that is greater is none."""
LATE_S = 1.0
"""A flow that is due for longer says nothing: nothing was in flight meanwhile, or this process stood still."""


_Kind: TypeAlias = "tuple[str, int | None]"


@attrs.frozen
class LimitMove:
    """A limit that was ``old`` when it was told last, ``None``: never before, and what its gate says now."""

    old: int | None
    view: GateView


@attrs.define(eq=False)
class Gate:
    """A policy with its meter. ``model`` is what the endpoint served when it was made."""

    policy: AdmissionPolicy
    meter: FlowMeter
    model: str
    max_concurrent: int | None
    on_error: Callable[[Exception], None] = attrs.field(repr=False)
    """Hears what a policy raises: a plugin's bug may not become the error of the rollout that happens to ask."""
    told_limit: int | None = None
    """The limit that observers have heard of."""
    told_reason: str = ""
    told_at: float = -math.inf
    _served_at: float = attrs.field(default=-math.inf, init=False)

    @property
    def kind(self) -> _Kind:
        """What other endpoints have to have in common with this one to take its level for theirs."""
        return self.model, self.max_concurrent

    @property
    def wants_load(self) -> bool:
        """Whether the policy wants the server's own figures."""
        try:
            return bool(getattr(self.policy, "wants_load", False))
        except Exception as exc:  # a plugin's bug, of any kind
            self.on_error(exc)
            return False

    def begin(self, now: float, *, streamed: bool, prompt_tokens: float = 0.0) -> Stream:
        """A request goes out."""
        return self.meter.begin(now, streamed=streamed, prompt_tokens=prompt_tokens)

    def end(self, stream: Stream, answer: Answer | None, now: float, *, quota: bool = False) -> Ended:
        """A request is over, ``None``: it was given up from our side; tell how it ended.

        With *quota* a 429 is about an account of which this endpoint is only a part, and the policy is not told.
        """
        usage = _usage(answer)
        outcome = None if answer is None else answer.outcome
        self.meter.end(stream, now, usage.completion_tokens)
        first_token_s = None if stream.first_at is None else stream.first_at - stream.began_at
        ended = Ended(
            self._ending(answer, now),
            admitted_at=stream.began_at,
            in_flight=stream.in_flight,
            duration_s=now - stream.began_at,
            first_token_s=first_token_s,
            streamed=stream.streamed,
            prompt_tokens=usage.prompt_tokens,
            output_tokens=None if outcome is None else tokens_of(outcome),
            cached_tokens=usage.cached_tokens,
            retry_after_s=outcome.retry_after_s if isinstance(outcome, Busy) else None,
        )
        return self._tell_end(ended, answer, now, quota=quota)

    @contextmanager
    def occupied(self, slots: int, clock: Callable[[], float]) -> Iterator[None]:
        """Count so many requests of somebody's own as in flight while the block runs; :meth:`note` tells of each."""
        streams = [self.meter.begin(clock(), streamed=False) for _ in range(slots)]
        try:
            yield
        finally:
            for stream in streams:
                self.meter.end(stream, clock())

    def note(self, answer: Answer, since: float, now: float, *, quota: bool = False) -> Ended:
        """Hear how a request of somebody's own ended that was sent after *since*; *quota* as for :meth:`end`."""
        ended = Ended(self._ending(answer, now), since, self.meter.in_flight, now - since, streamed=False)
        return self._tell_end(ended, answer, now, quota=quota)

    def _ending(self, answer: Answer | None, now: float) -> Ending:
        ending = ending_of(answer, now - self._served_at)
        if ending is Ending.OK:
            self._served_at = now
        return ending

    def _tell_end(self, ended: Ended, answer: Answer | None, now: float, *, quota: bool) -> Ended:
        if not (quota and answer is not None and answer.outcome.http_status == TOO_MANY):
            self.tell(ended, now)
        return ended

    def tell(self, event: CapChanged | WarmStart | Flow | Ended | ServerLoad, now: float) -> None:
        """Let the policy hear of something."""
        try:
            self.policy.observe(event, now)
        except Exception as exc:
            self.on_error(exc)

    def limit(self, now: float) -> int:
        """How many requests the policy allows; 0 from one that raises."""
        try:
            return self.policy.limit(now)
        except Exception as exc:
            self.on_error(exc)
            return 0

    def next_wake_at(self, now: float) -> float | None:
        """When the policy is to be told of the flow; not while nothing flows."""
        if not self.meter.in_flight:
            return None
        try:
            at = self.policy.next_wake_at(now)
            if at is not None and math.isnan(at):
                raise ValueError("next_wake_at() must give an instant or None, got nan")
        except Exception as exc:
            self.on_error(exc)
            return None
        return None if at is None else max(at, self.meter.taken_at + SHORTEST_WAKE_S)

    def wake(self, now: float) -> None:
        """Tell the policy of the flow if that is due, and pass over one that is due for long."""
        at = self.next_wake_at(now)
        if at is not None and at <= now:
            flow = self.meter.take(now)
            if now - at <= LATE_S:
                self.tell(flow, now)

    def moved(self, now: float) -> LimitMove | None:
        """The first limit, and then each move since it was told last that is worth telling: more than trying out."""
        old, new = self.told_limit, self.limit(now)
        if old == new or now - self.told_at < QUIET_S:
            return None
        view = attrs.evolve(self.view(now), limit=new)
        if old is not None and abs(new - old) <= max(1.0, QUIET_SHARE * old) and view.reason == self.told_reason:
            return None
        self.told_limit, self.told_reason, self.told_at = new, view.reason, now
        return LimitMove(old, view)

    def view(self, now: float) -> GateView:
        """What the policy says of itself."""
        try:
            view: Callable[[float], GateView] | None = getattr(self.policy, "view", None)
            return GateView(self.policy.limit(now)) if view is None else _told(view(now))
        except Exception as exc:
            self.on_error(exc)
            return GateView(0)


@attrs.define(eq=False)
class Gates:
    """The gates of a pool, those included whose endpoints went a short while ago."""

    make_policy: Callable[[], AdmissionPolicy]
    on_error: Callable[[Exception], None] = attrs.field(repr=False)
    _gates: dict[Url, Gate] = attrs.field(factory=dict, init=False)
    _left: dict[Url, float] = attrs.field(factory=dict, init=False)
    """When the endpoints went that are not there, in that order."""
    _levels: dict[_Kind, int] = attrs.field(factory=dict, init=False)
    """The lowest level that gates of a kind had settled at when they were given up."""
    _present: dict[_Kind, int] = attrs.field(factory=dict, init=False)
    """The lowest level that gates of a kind had settled at when they were looked at last."""
    _looked_at: float = attrs.field(default=-math.inf, init=False)
    _looked: int = attrs.field(default=0, init=False)
    """When that was, and at how many."""

    def open(self, url: Url, model: str, max_concurrent: int | None, now: float) -> Gate:
        """The gate of an endpoint that is listed: its old one where it comes back, else a new one, begun warm."""
        self._forget(now)
        gate, left_at = self._gates.get(url), self._left.pop(url, None)
        if gate is not None and gate.model == model:
            if left_at is not None:
                gate.told_limit = None
            gate.max_concurrent = max_concurrent
            gate.tell(CapChanged(max_concurrent), now)
            return gate
        gate = Gate(self.make_policy(), FlowMeter(now), model, max_concurrent, self.on_error)
        gate.tell(CapChanged(max_concurrent), now)
        level = self._level(gate.kind, now)
        if level is not None:
            gate.tell(WarmStart(level), now)
        self._gates[url] = gate
        return gate

    def leave(self, url: Url, now: float) -> None:
        """An endpoint went: keep its gate for a while."""
        self._left[url] = now
        self._forget(now)

    def _level(self, kind: _Kind, now: float) -> int | None:
        """What gates of the same kind have settled at, the lowest of them: too low costs less than too high."""
        if now - self._looked_at >= LOOK_EVERY_S or len(self._gates) >= LOOK_AT_GROWTH * self._looked:
            self._looked_at, self._looked, self._present = now, len(self._gates), {}
            _note_settled(self._present, self._gates.values(), now)
        return self._present.get(kind, self._levels.get(kind))

    def _forget(self, now: float) -> None:
        over = takewhile(lambda url: now - self._left[url] > KEEP_S, self._left)
        for url in [url for url in over if not self._gates[url].meter.in_flight]:
            del self._left[url]
            _note_settled(self._levels, [self._gates.pop(url)], now)


def _told(view: GateView) -> GateView:
    """A view as it can be shown: its reason in one line, and no figure that is none or beyond all measure."""
    return attrs.evolve(
        view,
        reason=one_line(view.reason, REASON_CHARACTERS),
        queue=_figure(view.queue),
        goodput=_figure(view.goodput),
        elasticity=_figure(view.elasticity),
        half_load=_figure(view.half_load),
    )


def _figure(value: float | None) -> float | None:
    return value if value is not None and -MOST <= value <= MOST else None


def _note_settled(levels: dict[_Kind, int], gates: Iterable[Gate], now: float) -> None:
    """Note the lowest level for each kind that gates have settled at."""
    for gate in gates:
        if (view := gate.view(now)).settled:
            levels[gate.kind] = min(view.limit, levels.get(gate.kind, view.limit))


def _usage(answer: Answer | None) -> Usage:
    if answer is None or not isinstance(answer.outcome, Ok):
        return Usage()
    return answer.outcome.reply.usage
