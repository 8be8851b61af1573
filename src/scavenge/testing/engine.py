"""A model of a batching inference server: how fast it generates for how many streams. Pure: *now* is an argument.

One engine step gives every running stream one token and takes ``tau(N) = A + B*N`` seconds for N running streams, the
linear law of continuous batching: A is what a step costs whatever it carries (reading the weights), B is what one more
stream adds. So the aggregate speed is ``N / (A + B*N)`` tokens a second, with the ceiling ``1 / B``. What does not fit
the slots waits, first come first served.

The model is exact and does not tick. All running streams move at one speed, so a stream's milestones are fixed points
on one axis of *steps*, and only the speed of that axis changes: when the number of running streams does, or when the
server is slowed down or frozen. It must not know what the tokens are, nor why a server misbehaves.

Invariants:

* every request that was taken is in exactly one place: waiting, running, or ended (finished or cancelled);
* nobody waits while a slot is free, and never do more than ``slots`` streams run, except after ``slots`` shrank, and
  then none starts until it is so again;
* ``_steps`` is where the axis stood at ``_now``; the heap has one live entry for each running stream.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque

import attrs
from attrs import validators

from scavenge.signals import ServerLoad

_MAX_S = 1e6  # slower than anybody waits for; it keeps every product of times finite


@attrs.frozen
class EngineSettings:
    """How fast a simulated server is and how much it takes on."""

    token_s: float = attrs.field(default=0.01, validator=[validators.gt(0), validators.le(_MAX_S)])
    """A: seconds that one engine step takes before any stream is counted."""
    load_s: float = attrs.field(default=0.001, validator=[validators.ge(0), validators.le(_MAX_S)])
    """B: seconds that each running stream adds to a step."""
    slots: int = attrs.field(default=8, validator=validators.ge(1))
    """How many streams run at once."""
    max_waiting: int | None = attrs.field(default=None, validator=validators.optional(validators.ge(0)))
    """How many requests may wait for a slot before the next is turned away; ``None``: any number."""
    prefill_s: float = attrs.field(default=0.0, validator=[validators.ge(0), validators.le(_MAX_S)])
    """Seconds that a prompt token costs before the first token, on a server with nothing else to do."""
    noise: float = attrs.field(default=0.0, validator=[validators.ge(0), validators.lt(1)])
    """Each change of load draws a factor from ``[1 - noise, 1 + noise]`` on the step time."""
    tokens_per_event: int = attrs.field(default=0, validator=validators.ge(0))
    """After how many tokens of a stream there is an event; 0: only for the first token and the last."""


@attrs.frozen
class Progress:
    """A stream has come this far: ``tokens`` in all at the instant ``at``; ``finished`` with its last one."""

    request_id: int
    tokens: int
    finished: bool
    at: float
    cached_tokens: int = 0
    """How many of the prompt's tokens the engine had in its prefix cache."""


@attrs.define(eq=False)
class _Stream:
    request_id: int
    prompt_tokens: int
    output_tokens: int
    starts_at_step: float = 0.0
    """Where on the axis of steps its prefill is over."""
    milestone: int = 1
    """The token that its entry in the heap stands for."""
    running: bool = False


@attrs.define
class Engine:
    """One simulated engine. *now* never goes back from one call to the next."""

    settings: EngineSettings
    random: random.Random | None = None
    """Where the noise is drawn from; without it there is none."""
    slots: int = attrs.field(default=attrs.Factory(lambda self: self.settings.slots, takes_self=True), init=False)
    """How many streams run at once now; the settings say how many at the start."""
    _now: float = attrs.field(default=-math.inf, init=False)
    _steps: float = attrs.field(default=0.0, init=False)
    _speed: float = attrs.field(default=1.0, init=False)
    _jitter: float = attrs.field(default=1.0, init=False)
    _streams: dict[int, _Stream] = attrs.field(factory=dict, init=False)
    _waiting: deque[_Stream] = attrs.field(factory=deque, init=False)
    _running: int = attrs.field(default=0, init=False)
    _heap: list[tuple[float, int, _Stream]] = attrs.field(factory=list, init=False)
    _entries: int = attrs.field(default=0, init=False)
    _outbox: list[Progress] = attrs.field(factory=list, init=False)

    @property
    def running(self) -> int:
        """The number of streams that hold a slot."""
        return self._running

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a slot."""
        return len(self._streams) - self._running

    @property
    def step_s(self) -> float:
        """Seconds of one engine step at the present load; infinite while frozen."""
        if not self._speed:
            return math.inf
        return (self.settings.token_s + self.settings.load_s * self._running) * self._jitter / self._speed

    def submit(
        self, request_id: int, prompt_tokens: int, output_tokens: int, now: float, session: str | None = None
    ) -> bool:
        """Take a request; false when the queue is full, and then nothing has changed.

        There is no prefix cache: which *session* it belongs to makes no difference. Raises :class:`ValueError` for an
        id that is in use, or fewer than one output token.
        """
        if request_id in self._streams or output_tokens < 1 or prompt_tokens < 0:
            raise ValueError(f"request {request_id}: the id is in use, or {prompt_tokens} + {output_tokens} tokens")
        self._run_to(now)
        limit = self.settings.max_waiting
        if self._running >= self.slots and limit is not None and self.waiting >= limit:
            return False
        stream = _Stream(request_id, prompt_tokens, output_tokens)
        self._streams[request_id] = stream
        self._waiting.append(stream)
        self._admit()
        return True

    def cancel(self, request_id: int, now: float) -> bool:
        """Forget a request and free its slot; false when it had ended or was never there."""
        self._run_to(now)
        stream = self._streams.pop(request_id, None)
        if stream is None:
            return False
        if stream.running:
            self._stop(stream)
        else:
            self._waiting.remove(stream)
        self._admit()
        return True

    def tokens(self, request_id: int, now: float) -> float:
        """How many tokens of a request's reply there are; 0 for one that has ended or was never there."""
        self._run_to(now)
        stream = self._streams.get(request_id)
        if stream is None or not stream.running:
            return 0.0
        return max(0.0, self._steps - stream.starts_at_step)

    def kill(self, now: float) -> None:
        """Forget all requests, as a process does that ends."""
        self._run_to(now)
        self._streams.clear()
        self._waiting.clear()
        self._heap.clear()
        self._outbox.clear()
        self._running = 0

    def load(self) -> ServerLoad:
        """Its own figures."""
        return ServerLoad(running=self.running, waiting=self.waiting, slots=self.slots)

    def set_speed(self, factor: float, now: float) -> None:
        """Run at ``factor`` times the normal speed from now on; 0 freezes the engine."""
        if factor < 0 or not math.isfinite(factor):
            raise ValueError(f"speed: expected a finite number of at least 0, got {factor}")
        self._run_to(now)
        self._speed = factor

    def set_slots(self, slots: int, now: float) -> None:
        """Run so many streams at once from now on; those that run already go on."""
        if slots < 1:
            raise ValueError(f"slots: expected at least 1, got {slots}")
        self._run_to(now)
        self.slots = slots
        self._admit()

    def next_event_at(self) -> float | None:
        """When :meth:`advance` has something to tell; ``None``: never, unless something else happens first."""
        if self._outbox:
            return self._now
        self._drop_stale_heads()
        if not self._heap or not self._speed:
            return None
        return self._reaches_at(self._heap[0][0])

    def advance(self, now: float) -> list[Progress]:
        """Let time pass, and tell what the streams have produced since the last call, in order."""
        self._run_to(now)
        events, self._outbox = self._outbox, []
        return events

    def _reaches_at(self, step: float) -> float:
        return self._now + max(0.0, step - self._steps) * self.step_s

    def _run_to(self, now: float) -> None:
        """Move the axis to *now*, stopping at each milestone, where the number of running streams may change."""
        if now < self._now:
            raise ValueError(f"time went back from {self._now} to {now}")
        self._drop_stale_heads()
        while self._heap and self._speed and (reached_at := self._reaches_at(self._heap[0][0])) <= now:
            step, _, stream = heapq.heappop(self._heap)
            self._now, self._steps = reached_at, max(self._steps, step)
            self._pass_milestone(stream)
            self._drop_stale_heads()
        if self._running and self._speed:
            self._steps += (now - self._now) / self.step_s
        self._now = now

    def _pass_milestone(self, stream: _Stream) -> None:
        finished = stream.milestone == stream.output_tokens
        self._outbox.append(Progress(stream.request_id, stream.milestone, finished, self._now))
        if finished:
            del self._streams[stream.request_id]
            self._stop(stream)
            self._admit()
        else:
            stride = self.settings.tokens_per_event or stream.output_tokens
            stream.milestone = min(stream.milestone + stride, stream.output_tokens)
            self._push(stream)

    def _stop(self, stream: _Stream) -> None:
        stream.running = False
        self._running -= 1
        self._draw_jitter()

    def _admit(self) -> None:
        while self._waiting and self._running < self.slots:
            stream = self._waiting.popleft()
            stream.running = True
            prefill = stream.prompt_tokens * self.settings.prefill_s / (self.settings.token_s + self.settings.load_s)
            stream.starts_at_step = self._steps + prefill
            self._running += 1
            self._push(stream)
            self._draw_jitter()

    def _push(self, stream: _Stream) -> None:
        if len(self._heap) > 2 * self._running + 64:  # mostly entries of streams that were cancelled
            self._heap = [entry for entry in self._heap if entry[2].running]
            heapq.heapify(self._heap)
        self._entries += 1
        heapq.heappush(self._heap, (stream.starts_at_step + stream.milestone, self._entries, stream))

    def _draw_jitter(self) -> None:
        if self.random is not None and self.settings.noise:
            self._jitter = self.random.uniform(1 - self.settings.noise, 1 + self.settings.noise)

    def _drop_stale_heads(self) -> None:
        while self._heap and not self._heap[0][2].running:
            heapq.heappop(self._heap)
