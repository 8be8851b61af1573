"""One admission policy against one simulated server, in a closed loop: what a limit is worth. Pure, and without Trio.

There is always more to ask for, so that the policy alone decides how much is in flight. What the runtime does around a
policy is done here in the same way: a lost server loses what is in flight, is probed every few seconds, and opens up
step by step when it is back; a refusal is a pause; what was lost, refused or failed is asked for again before anything
new. A request that timed out is given up: asked for again, it would time out again. It must not know how a policy
decides.

Invariants: time never goes back, and never stands still but for a finite number of events.

versionadded: 0.1
"""

from __future__ import annotations

import math
from collections import deque
from random import Random

import attrs

from scavenge.core.ramp import Ramp
from scavenge.runtime.ports import AdmissionPolicy
from scavenge.signals import Ending
from scavenge.testing.batching import BatchingEngine
from scavenge.testing.closed_loop_case import Change, LoopCase, Workload
from scavenge.testing.closed_loop_client import LoopClient, LoopRequest
from scavenge.testing.closed_loop_report import LoopReport, LoopRow
from scavenge.types import CapChanged

PROBE_EVERY_S = 5.0
LOAD_EVERY_S = 5.0
"""How often the server's own figures are read, where the policy wants them."""
BUSY_PAUSE_S = 0.75
"""How long nothing is sent after a refusal without ``Retry-After``: the mean of the runtime's first back-off."""


@attrs.define
class _Sums:
    """What is counted for the row that is being made."""

    since: float = 0.0
    tokens: int = 0
    generated: int = 0
    """What the server had generated when it began."""
    limit_s: float = 0.0
    in_flight_s: float = 0.0


@attrs.define(eq=False)
class ClosedLoop:
    """One run. The same *case*, policy and *random* make the same run."""

    case: LoopCase
    policy: AdmissionPolicy
    random: Random
    report: LoopReport = attrs.field(factory=LoopReport, init=False)
    _engine: BatchingEngine = attrs.field(init=False)
    _sizes: Random = attrs.field(init=False)
    """Draws the requests, which are the same ones in the same order whatever the policy does."""
    _client: LoopClient = attrs.field(init=False)
    _workload: Workload = attrs.field(init=False)
    _changes: deque[Change] = attrs.field(init=False)
    _arriving: deque[tuple[float, LoopRequest]] = attrs.field(factory=deque, init=False)
    _again: deque[tuple[int, int]] = attrs.field(factory=deque, init=False)
    _ramp: Ramp | None = attrs.field(default=None, init=False)
    _up_at: float = attrs.field(default=-math.inf, init=False)
    _probe_at: float = attrs.field(default=math.inf, init=False)
    _paused_until: float = attrs.field(default=-math.inf, init=False)
    _load_at: float = attrs.field(default=math.inf, init=False)
    _preemptions: int = attrs.field(default=0, init=False)  # of processes that ended
    _sums: _Sums = attrs.field(factory=_Sums, init=False)

    def __attrs_post_init__(self) -> None:
        self._engine = BatchingEngine(self.case.server, Random(self.random.random()))  # noqa: S311 - a simulation
        self._sizes = Random(self.random.random())  # noqa: S311 - a simulation
        self._client = LoopClient(self._engine, self.policy, self.report, self.case.streamed)
        self._workload = self.case.workload
        self._changes = deque(sorted(self.case.changes, key=lambda change: change.at))

    def run(self) -> LoopReport:
        """Run the case to its end, and tell what came of it."""
        now = 0.0
        if getattr(self.policy, "wants_load", False):
            self._load_at = LOAD_EVERY_S
        if self.case.opens_slowly:
            self._ramp = Ramp.begun(now)
        self._engine.advance(now)
        self.policy.observe(CapChanged(self.case.max_concurrent), now)
        while True:
            self._send(now)
            at = max(now, min(self._next_at(now), self.case.seconds))
            self._pass(now, at)
            now = at
            if now >= self.case.seconds:
                break
            self._happen(now)
        self.report.preemptions = self._preemptions + self._engine.preemptions
        return self.report

    @property
    def _row_ends_at(self) -> float:
        return self._sums.since + self.case.sample_s

    def _next_at(self, now: float) -> float:
        """When something happens next."""
        change_at = self._changes[0].at if self._changes else math.inf
        paused_until = self._paused_until if self._paused_until > now else math.inf
        arrives_at = self._arriving[0][0] if self._arriving else math.inf
        at = min(
            self._row_ends_at, arrives_at, change_at, paused_until, self._load_at, self._probe_at, self._deadline()
        )
        for other_at in (self._engine.next_event_at(), self._client.next_wake_at(now)):
            if other_at is not None and other_at < at:
                at = other_at
        if self._ramp is not None:
            at = min(at, self._ramp.next_wake_at() or math.inf)
        return at

    def _deadline(self) -> float:
        timeout_s, oldest = self.case.request_timeout_s, self._client.oldest()
        return math.inf if oldest is None or timeout_s is None else oldest.stream.began_at + timeout_s

    def _happen(self, now: float) -> None:
        """Let everything happen that is due."""
        self._hear(now)
        while self._changes and self._changes[0].at <= now:
            self._change(self._changes.popleft(), now)
        while self._arriving and self._arriving[0][0] <= now:
            _, request = self._arriving.popleft()
            if not request.over:
                self._arrive(request, now)
        while self._deadline() <= now:
            self._time_out(now)
        if now >= self._probe_at:
            self._probe(now)
        if now >= self._load_at:
            self._load_at = now + LOAD_EVERY_S
            load = self.case.tells.of(self._engine.load()) if now >= self._up_at else None
            if load is not None:
                self.policy.observe(load, now)
        if self._ramp is not None:
            self._ramp.wake(now)
            self._ramp = None if self._ramp.ended else self._ramp
        if (wake_at := self._client.next_wake_at(now)) is not None and wake_at <= now:
            self._client.wake(now)

    def _hear(self, now: float) -> None:
        for event in self._engine.advance(now):
            tokens = self._client.on_progress(event)
            if event.finished:
                self.report.finished += 1
                self._sums.tokens += tokens
                if self._ramp is not None:
                    self._ramp.on_served()

    def _room(self, now: float) -> int:
        limit = self._client.limit(now)
        if self._probe_at < math.inf or now < self._paused_until:
            return 0
        room = None if self._ramp is None else self._ramp.room(now)
        cap = self.case.max_concurrent
        return min(limit, limit if room is None else room, limit if cap is None else cap)

    def _send(self, now: float) -> None:
        """Send requests up to the limit."""
        room = self._room(now)
        while self._client.in_flight < room:
            size = self._again.popleft() if self._again else self._workload.draw(self._sizes)
            self._arriving.append((now + self.case.delay_s, self._client.begin(*size, now)))

    def _arrive(self, request: LoopRequest, now: float) -> None:
        size = (request.prompt_tokens, request.output_tokens)
        if self.case.error_rate and self.random.random() < self.case.error_rate:
            self.report.errors += 1
            self._client.end(request, Ending.SERVER_ERROR, now)
        elif self._engine.submit(request.request_id, *size, now):
            return
        else:
            self.report.refused += 1
            self._paused_until = now + BUSY_PAUSE_S
            self._client.end(request, Ending.RATE_LIMITED, now)
        self._again.append(size)

    def _time_out(self, now: float) -> None:
        request = self._client.oldest()
        if request is not None:
            self.report.timeouts += 1
            self._engine.cancel(request.request_id, now)
            self._client.end(request, Ending.TIMEOUT, now)

    def _probe(self, now: float) -> None:
        if now < self._up_at:
            self._probe_at = now + PROBE_EVERY_S
            return
        self._probe_at = math.inf
        self._ramp = Ramp.begun(now)

    def _change(self, change: Change, now: float) -> None:
        if change.speed is not None:
            self._engine.set_speed(change.speed, now)
        if change.kv is not None:
            self._engine.set_kv(change.kv, now)
        if change.slots is not None:
            self._engine.set_slots(change.slots, now)
        if change.workload is not None:
            self._workload = change.workload
        if change.down_s is not None:
            self._go_down(change.down_s, now)

    def _go_down(self, down_s: float, now: float) -> None:
        self._up_at = now + down_s
        self._preemptions += self._engine.preemptions
        self._engine.kill(now)
        lost = []
        while (request := self._client.oldest()) is not None:
            lost.append(request)
            self._client.end(request, Ending.DOWN, now)
        self._again.extendleft((request.prompt_tokens, request.output_tokens) for request in reversed(lost))
        self.report.lost += len(lost)
        self._probe_at = now + PROBE_EVERY_S

    def _pass(self, now: float, at: float) -> None:
        """Count the time from *now* to *at*, in which nothing changes; end the row where it is full."""
        sums = self._sums
        sums.limit_s += self._client.limit(now) * (at - now)
        sums.in_flight_s += self._client.in_flight * (at - now)
        if at < min(self._row_ends_at, self.case.seconds):
            return
        over_s = at - sums.since
        self._engine.tokens(0, at)  # brings the engine there
        generated = self._engine.generated
        row = LoopRow(
            at,
            sums.tokens / over_s,
            (generated - sums.generated) / over_s,
            sums.limit_s / over_s,
            sums.in_flight_s / over_s,
            self._engine.waiting,
        )
        self.report.rows.append(row)
        self._sums = _Sums(since=at, generated=generated)
