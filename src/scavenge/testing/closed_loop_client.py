"""The requests in flight of a closed loop, and what its policy hears of them. Pure.

The policy is driven as a real endpoint's is: it is asked when it wants to know of the flow, told at that instant, and
told of every request that leaves. It must not know what is asked for next, nor what happens to the server.

Invariant: a request is in flight from :meth:`LoopClient.begin` to one :meth:`LoopClient.end`.
"""

from __future__ import annotations

from collections import deque

import attrs

from scavenge.core.flow import SHORTEST_WAKE_S, FlowMeter, Stream
from scavenge.runtime.ports import AdmissionPolicy
from scavenge.signals import Ended, Ending
from scavenge.testing.batching import BatchingEngine
from scavenge.testing.closed_loop_report import LimitMove, LoopReport
from scavenge.testing.engine import Progress


@attrs.define(eq=False)
class LoopRequest:
    """A request in flight."""

    request_id: int
    prompt_tokens: int
    output_tokens: int
    stream: Stream
    over: bool = False


@attrs.define(eq=False)
class LoopClient:
    """Keeps what is in flight on *engine*, and tells *policy*."""

    engine: BatchingEngine
    policy: AdmissionPolicy
    report: LoopReport
    streamed: bool = True
    _meter: FlowMeter = attrs.field(factory=lambda: FlowMeter(0.0), init=False)
    _requests: dict[int, LoopRequest] = attrs.field(factory=dict, init=False)
    _by_age: deque[LoopRequest] = attrs.field(factory=deque, init=False)
    _next_id: int = attrs.field(default=0, init=False)
    _limit: int = attrs.field(default=0, init=False)

    @property
    def in_flight(self) -> int:
        """How many requests there are."""
        return len(self._requests)

    def limit(self, now: float) -> int:
        """What the policy allows; a move is noted."""
        if (limit := self.policy.limit(now)) != self._limit:
            view = getattr(self.policy, "view", None)
            self.report.moves.append(LimitMove(now, limit, view(now).reason if view else ""))
            self._limit = limit
        return limit

    def begin(self, prompt_tokens: int, output_tokens: int, now: float) -> LoopRequest:
        """A request goes out; the caller hands it to the server, or ends it."""
        self._next_id += 1
        stream = self._meter.begin(now, streamed=self.streamed, prompt_tokens=prompt_tokens)
        request = LoopRequest(self._next_id, prompt_tokens, output_tokens, stream)
        self._requests[request.request_id] = request
        self._by_age.append(request)
        self.report.requests += 1
        if self.streamed:
            stream.refresh = lambda at: self._refresh(request, at)
        return request

    def on_progress(self, event: Progress) -> int:
        """A reply began or is whole; tells its tokens when it is."""
        request = self._requests[event.request_id]
        if self.streamed and request.stream.first_at is None:
            request.stream.came(event.at)
        if not event.finished:
            return 0
        if self.streamed and event.tokens > request.stream.chunks:
            request.stream.came(event.at, event.tokens - request.stream.chunks)
        self.end(request, Ending.OK, event.at, event.tokens)
        return event.tokens

    def end(self, request: LoopRequest, ending: Ending, now: float, tokens: int | None = None) -> None:
        """A request is over; *tokens* are those of a whole reply."""
        stream = request.stream
        self._meter.end(stream, now, tokens)
        stream.refresh, request.over = None, True
        del self._requests[request.request_id]
        ended = Ended(
            ending,
            admitted_at=stream.began_at,
            in_flight=stream.in_flight,
            duration_s=now - stream.began_at,
            first_token_s=None if stream.first_at is None else stream.first_at - stream.began_at,
            streamed=self.streamed,
            prompt_tokens=None if tokens is None else request.prompt_tokens,
            output_tokens=tokens,
        )
        self.policy.observe(ended, now)

    def oldest(self) -> LoopRequest | None:
        """The request that has been in flight for longest."""
        while self._by_age and self._by_age[0].over:
            self._by_age.popleft()
        return self._by_age[0] if self._by_age else None

    def next_wake_at(self, now: float) -> float | None:
        """When :meth:`wake` is due."""
        at = self.policy.next_wake_at(now) if self._requests else None
        return None if at is None else max(at, self._meter.taken_at + SHORTEST_WAKE_S)

    def wake(self, now: float) -> None:
        """Tell the policy of the flow."""
        self.report.flows += 1
        self.policy.observe(self._meter.take(now), now)

    def _refresh(self, request: LoopRequest, now: float) -> None:
        new = int(self.engine.tokens(request.request_id, now)) - request.stream.chunks
        if new > 0:
            request.stream.came(now, new)
