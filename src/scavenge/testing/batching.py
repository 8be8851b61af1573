"""A model of an inference server with continuous batching: steps, slots, a pool of cache. Pure: *now* is an argument.

One engine step gives every decoding stream one token, and takes

    t = max(W, g * (decoding + p)) + R * (context tokens read) + Q * (p * context) + O + o * streams

seconds, where p prompt tokens, first come first served and within a budget, are prefilled in the same step: W reads the
weights, g is the arithmetic of a token, R reads the cache, Q is the attention of prefill, O and o are overheads. So the
time of a step without prefill is affine in the number of streams, as measured on real servers. A request's context
lives in a pool; where it overflows, the youngest request is put back in front of the queue and its cache is made again
later (recomputation, as in vLLM). What running requests leave free holds the contexts of idle sessions.

The model is exact, step by step, and does not tick: between two changes a run of steps is an arithmetic progression, so
that a run costs the same however long it is. What arrives in the middle of a step takes part from the next one on. It
must not know what the tokens are, nor why a server misbehaves.

Invariants:

* every request that was taken is in exactly one place: waiting, prefilling, decoding, or ended;
* never do more than ``slots`` requests run, except after ``slots`` shrank, and then none starts until it is so again;
* the tokens in use are at most the pool, except for a request that runs alone;
* ``_run`` is the run of steps under way; ``_decoders`` counts its steps when it ends, or when it is cut.
"""

from __future__ import annotations

import math
import random
from collections import deque

import attrs

from scavenge.signals import ServerLoad
from scavenge.testing.batching_cache import PrefixCache
from scavenge.testing.batching_decoders import BatchedRequest, Decoders, Place
from scavenge.testing.batching_settings import BatchingSettings as BatchingSettings
from scavenge.testing.batching_steps import StepRun, decoding_run, prefill_step
from scavenge.testing.engine import Progress


@attrs.define
class BatchingEngine:
    """One simulated engine. *now* never goes back from one call to the next."""

    settings: BatchingSettings
    random: random.Random | None = None
    """Where the noise is drawn from; without it there is none."""
    slots: int = attrs.field(default=attrs.Factory(lambda self: self.settings.slots, takes_self=True), init=False)
    """How many requests run at once now."""
    preemptions: int = attrs.field(default=0, init=False)
    """How often a running request was put back since the engine was started."""
    _now: float = attrs.field(default=-math.inf, init=False)
    _clock: float = attrs.field(default=0.0, init=False)  # seconds of an engine that runs at its normal speed
    _speed: float = attrs.field(default=1.0, init=False)
    _pool: int = attrs.field(default=attrs.Factory(lambda self: self.settings.kv_tokens, takes_self=True), init=False)
    _requests: dict[int, BatchedRequest] = attrs.field(factory=dict, init=False)
    _waiting: deque[BatchedRequest] = attrs.field(factory=deque, init=False)
    _running: dict[int, BatchedRequest] = attrs.field(factory=dict, init=False)  # the youngest last
    _prefilling: deque[BatchedRequest] = attrs.field(factory=deque, init=False)
    _reserved: int = attrs.field(default=0, init=False)  # tokens that they hold
    _decoders: Decoders = attrs.field(factory=Decoders, init=False)
    _run: StepRun | None = attrs.field(default=None, init=False)  # None: nothing, or still to be planned
    _cache: PrefixCache = attrs.field(factory=PrefixCache, init=False)
    _outbox: list[Progress] = attrs.field(factory=list, init=False)

    @property
    def running(self) -> int:
        """The number of requests that hold a slot."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a slot, for room in the pool, or for the step under way to end."""
        return len(self._waiting)

    @property
    def generated(self) -> int:
        """How many tokens it has generated so far, those of requests that were cancelled included."""
        return self._decoders.generated + self._done * self._decoders.count

    def load(self) -> ServerLoad:
        """What the server would tell of itself; its counters begin anew with :meth:`kill`."""
        return ServerLoad(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_usage=min(1.0, (self._used + self._done * self._decoders.count) / self._pool),
            kv_tokens=self._pool,
            slots=self.slots,
            preemptions=self.preemptions,
            prefix_queries=float(self._cache.queries),
            prefix_hits=float(self._cache.hits),
        )

    def tokens(self, request_id: int, now: float) -> float:
        """How many tokens of a request have been generated; 0 for one that has ended or was never there."""
        self._run_to(now)
        if (request := self._requests.get(request_id)) is None:
            return 0.0
        if request.place is Place.DECODING:
            return float(self._decoders.tokens(request) + self._done)
        return float(request.generated)

    def submit(
        self, request_id: int, prompt_tokens: int, output_tokens: int, now: float, session: str | None = None
    ) -> bool:
        """Take a request; false when the server turns it away, and then nothing has changed.

        The context of its *session* is looked up in the prefix cache, and kept there when the request has ended.
        Raises :class:`ValueError` for an id that is in use, or fewer than one output token.
        """
        if request_id in self._requests or output_tokens < 1 or prompt_tokens < 0:
            raise ValueError(f"request {request_id}: the id is in use, or {prompt_tokens} + {output_tokens} tokens")
        self._run_to(now)
        if self.settings.turns_away(len(self._requests), max(self.slots, len(self._running))):
            return False
        request = BatchedRequest(request_id, prompt_tokens, output_tokens, session)
        self._requests[request_id] = request
        self._waiting.append(request)
        if len(self._waiting) == 1 and len(self._running) < self.slots:
            self._cut()
        self._settle()
        return True

    def cancel(self, request_id: int, now: float) -> bool:
        """Forget a request and free what it holds; false when it had ended or was never there."""
        self._run_to(now)
        if (request := self._requests.pop(request_id, None)) is None:
            return False
        self._cut()
        if request.place is Place.WAITING:
            self._waiting.remove(request)
        else:
            self._release(request)
        request.place = Place.OVER
        self._settle()
        return True

    def set_speed(self, factor: float, now: float) -> None:
        """Run at ``factor`` times the normal speed from now on; 0 freezes the engine."""
        if not 0 <= factor < math.inf:
            raise ValueError(f"speed: expected a finite number of at least 0, got {factor}")
        self._run_to(now)
        self._speed = factor

    def set_slots(self, slots: int, now: float) -> None:
        """Run so many requests at once from now on; those that run already go on."""
        if slots < 1:
            raise ValueError(f"slots: expected at least 1, got {slots}")
        self._run_to(now)
        self._cut()
        self.slots = slots
        self._settle()

    def set_kv(self, fraction: float, now: float) -> None:
        """Let the pool be such a part of what the settings say from now on; what does not fit is put back at once."""
        if not 0 < fraction < math.inf:
            raise ValueError(f"kv: expected a finite number above 0, got {fraction}")
        self._run_to(now)
        self._cut()
        self._pool = max(1, int(self.settings.kv_tokens * fraction))
        self._make_room()
        self._settle()

    def kill(self, now: float) -> None:
        """Forget all requests, the cache and the counters, as a process does that is ended and started again."""
        self._run_to(now)
        for kept in (self._requests, self._waiting, self._running, self._prefilling, self._decoders, self._outbox):
            kept.clear()
        self._cache, self._run = PrefixCache(), None
        self._reserved = self.preemptions = 0

    def next_event_at(self) -> float | None:
        """When to call :meth:`advance` next; ``None``: never, unless something else happens first."""
        if self._outbox:
            return self._now
        run = self._planned()
        return None if run is None or not self._speed else self._reaches_at(run.ends_at)

    def advance(self, now: float) -> list[Progress]:
        """Let time pass, and tell of the first and the last token of each request since the last call, in order."""
        self._run_to(now)
        events, self._outbox = self._outbox, []
        return events

    @property
    def _done(self) -> int:
        """Steps that are over and do not count yet."""
        return self._run.done(self._clock) if self._run else 0

    @property
    def _used(self) -> int:
        """Tokens of the pool that are held after the steps that count as over."""
        return self._decoders.context + self._reserved

    def _reaches_at(self, clock: float) -> float:
        return max(self._now, self._now + (clock - self._clock) / self._speed)

    def _run_to(self, now: float) -> None:
        """Let whole runs of steps end, each of which may change who runs, and go up to *now*."""
        if now < self._now:
            raise ValueError(f"time went back from {self._now} to {now}")
        if self._speed and -math.inf < self._now < now:  # at the same instant, the next step may wait for more of it
            while (run := self._planned()) is not None and (ends_at := self._reaches_at(run.ends_at)) <= now:
                self._now, self._clock = ends_at, run.ends_at
                self._end_run(run)
            self._clock += (now - self._now) * self._speed
        self._now = now

    def _cut(self) -> None:
        """End the run with the step that is under way, since something changes now."""
        if (run := self._run) is not None:
            done = run.done(self._clock)
            self._decoders.step(done)
            rest = run.cut(done)
            self._run = rest if rest.began_at < self._clock else None  # what has not begun is planned anew

    def _planned(self) -> StepRun | None:
        """The run of steps that is under way, begun now where there is work and none is."""
        if self._run is None and self._running:
            self._run = self._next_run()
        return self._run

    def _settle(self) -> None:
        """Between two steps, decide who runs; in the middle of one, leave it to its end."""
        if self._run is None:
            self._make_room()
            self._admit()

    def _next_run(self) -> StepRun:
        noise, decoders, running = self.settings.noise, self._decoders, len(self._running)
        jitter = self.random.uniform(1 - noise, 1 + noise) if self.random is not None and noise else 1.0
        if self._prefilling:
            return prefill_step(self.settings, self._prefilling, decoders, running, self._clock, jitter)
        steps = decoders.steps_to_end()
        if running > 1:
            steps = min(steps, (self._pool - self._used) // decoders.count)
        return decoding_run(self.settings, steps, decoders, self._clock, jitter)

    def _end_run(self, run: StepRun) -> None:
        self._run = None
        self._decoders.step(run.steps)
        for request, tokens in run.chunks:
            if request.place is Place.PREFILLING:
                request.unread -= tokens
                if not request.unread:
                    self._begin_decoding(request)
        for request in self._decoders.ended():
            self._finish(request)
        self._settle()

    def _begin_decoding(self, request: BatchedRequest) -> None:
        if not request.generated and request.output_tokens > 1:
            self._tell(request, 1, finished=False)
        self._prefilling.remove(request)
        self._reserved -= request.held
        self._decoders.join(request)

    def _finish(self, request: BatchedRequest) -> None:
        self._tell(request, request.output_tokens, finished=True)
        self._release(request)
        request.place = Place.OVER
        del self._requests[request.request_id]

    def _tell(self, request: BatchedRequest, tokens: int, *, finished: bool) -> None:
        self._outbox.append(Progress(request.request_id, tokens, finished, self._now, request.cached_tokens))

    def _release(self, request: BatchedRequest) -> None:
        del self._running[request.request_id]
        if request.place is Place.PREFILLING:
            self._prefilling.remove(request)
            self._reserved -= request.held
            return
        self._decoders.leave(request)
        self._cache.put(request.session, request.known)

    def _make_room(self) -> None:
        """Put the youngest back until the next step fits the pool, or one is alone; idle sessions give way first."""
        while len(self._running) > 1 and self._used + self._decoders.count > self._pool:
            request = next(reversed(self._running.values()))
            self._release(request)
            self._cache.drop(request.session)
            request.place = Place.WAITING
            self._waiting.appendleft(request)
            self.preemptions += 1
        self._cache.shrink(self._pool - self._used)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self.slots:
            request = self._waiting[0]
            if self._running and self._used + self._decoders.count + request.held > self._pool:
                return
            self._waiting.popleft()
            cached = self._cache.look_up(request.session, request.known)
            if not request.generated:
                request.cached_tokens = cached
            request.place, request.unread = Place.PREFILLING, request.known - cached
            self._running[request.request_id] = request
            self._prefilling.append(request)
            self._reserved += request.held
            self._cache.shrink(self._pool - self._used)
