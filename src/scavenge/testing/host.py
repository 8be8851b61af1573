"""One simulated server: its engine, the faults it suffers, and the truth about what it served. Pure: *now* is given.

It decides what becomes of each request, for the server in memory and the one on a socket alike, so that both behave
the same. It must not know how requests arrive, nor what waiting is: whoever asks leaves a callback that is called when
there is more to see.

Invariants: ``started == finished + cancelled + lost + in flight`` at every moment, and ``_generations`` holds exactly
what the engine holds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import assert_never

import attrs

from scavenge.testing import faults
from scavenge.testing.engine import Engine
from scavenge.testing.model import SimulatedReply
from scavenge.testing.served import GarbageReply, Generation, Refusal, SimulatedServer, Truth


@attrs.define
class Host:
    """One simulated server in operation. *now* never goes back from one call to the next."""

    server: SimulatedServer
    random: random.Random
    alive: bool = True
    listed: bool = True
    draining: bool = False
    truth: Truth = attrs.field(factory=Truth)
    deaths: int = attrs.field(default=0, init=False)
    """How often the process was ended."""
    max_concurrent: int | None = attrs.field(init=False)
    """The cap that it is listed with now."""
    _engine: Engine = attrs.field(init=False)
    _generations: dict[int, Generation] = attrs.field(factory=dict, init=False)
    _next_id: int = attrs.field(default=0, init=False)
    _busy: faults.Busy | None = attrs.field(default=None, init=False)
    _error: faults.Error | None = attrs.field(default=None, init=False)
    _slow_x: float = attrs.field(default=1.0, init=False)
    _frozen_since: float | None = attrs.field(default=None, init=False)
    _ends_at: dict[str, float] = attrs.field(factory=dict, init=False)
    """When each lasting fault is over; one that is not here is not there."""
    _taken_at: float = attrs.field(default=math.inf, init=False)
    """When a preempted server is killed."""

    def __attrs_post_init__(self) -> None:
        self._engine = Engine(self.server.engine, self.random)
        self.max_concurrent = self.server.max_concurrent

    @property
    def name(self) -> str:
        """The server's name in scripts."""
        return self.server.name

    @property
    def running(self) -> int:
        """The requests that are being generated."""
        return self._engine.running

    @property
    def waiting(self) -> int:
        """The requests that wait for a slot of the engine."""
        return self._engine.waiting

    @property
    def in_flight(self) -> tuple[Generation, ...]:
        """The requests that it has taken on and not ended, oldest first."""
        return tuple(self._generations.values())

    @property
    def frozen_since(self) -> float | None:
        """The instant when the server fell silent; ``None`` while it speaks."""
        return self._frozen_since

    @property
    def ceiling_tokens_per_s(self) -> float:
        """What it generates at most as it is now, with every slot taken; 0 where new work comes to nothing.

        ``N / (A + B * N)`` at the largest N that its slots and its cap allow, see :mod:`scavenge.testing.engine`.
        """
        failing = "garbage" in self._ends_at or (self._error is not None and self._error.rate >= 1)
        if not (self.alive and self.listed) or failing or "freeze" in self._ends_at:
            return 0.0
        settings, streams = self.server.engine, self._engine.slots
        if self.max_concurrent is not None:
            streams = min(streams, self.max_concurrent)
        return streams / (settings.token_s + settings.load_s * streams) / (1 - settings.noise) / self._slow_x

    def admit(self, model: str, secret: str | None, prompt_tokens: int, now: float) -> Refusal | GarbageReply | None:
        """What stands at the front door: ``None`` lets the request in. The server is alive and not frozen."""
        self.advance(now)
        verdict = self._verdict(model, secret, prompt_tokens)
        if isinstance(verdict, Refusal):
            self.truth.refused += 1
        return verdict

    def admit_probe(self, secret: str | None, now: float) -> Refusal | None:
        """The same for a request that asks for no generation."""
        self.advance(now)
        if self.server.secret not in (None, secret):
            return Refusal(401, "the bearer token is missing or wrong")
        return None

    def begin(self, reply: SimulatedReply, wake: Callable[[], None], now: float) -> Generation | Refusal:
        """Take a request on; a full queue turns it away, and a server that died in this instant loses it at once."""
        self.advance(now)
        self._next_id += 1
        if not self._engine.submit(self._next_id, reply.prompt_tokens, len(reply.tokens), now):
            self.truth.refused += 1
            return Refusal(503, "the queue is full")
        generation = Generation(self._next_id, reply, wake)
        self._generations[self._next_id] = generation
        self.truth.started += 1
        self.truth.peak_in_flight = max(self.truth.peak_in_flight, len(self._generations))
        if not self.alive:
            self._end_all(now, aborted=False)
        return generation

    def cancel(self, generation: Generation, now: float) -> None:
        """Stop generating for somebody who hung up; one that is over stays as it is."""
        self.advance(now)
        if not generation.over and self._generations.pop(generation.request_id, None) is not None:
            self._engine.cancel(generation.request_id, now)
            self.truth.cancelled += 1

    def next_event_at(self) -> float | None:
        """When :meth:`advance` is to be called next; ``None``: not before something else happens."""
        times = [self._ends_at[name] for name in ("freeze", "slow") if name in self._ends_at]
        if (engine_at := self._engine.next_event_at()) is not None:
            times.append(engine_at)
        times.append(self._taken_at)
        soonest = min(times, default=math.inf)
        return soonest if soonest < math.inf else None

    def next_change_at(self) -> float:
        """When the next lasting fault ends, or the server is taken away; infinite when neither will be."""
        return min(self._taken_at, *self._ends_at.values()) if self._ends_at else self._taken_at

    def advance(self, now: float) -> None:
        """Let time pass: faults end, tokens come, a preempted server is taken away."""
        while (changes_at := self.next_change_at()) <= now:
            self._progress(changes_at)
            for name in [name for name, at in self._ends_at.items() if at == changes_at]:
                self._end(name, changes_at)
            if self._taken_at == changes_at:
                self._die(changes_at)
        self._progress(now)

    def apply(self, fault: faults.Fault, now: float) -> None:  # noqa: C901 - one case a fault, and nothing else
        """Let a fault happen."""
        self.advance(now)
        match fault:
            case faults.Kill():
                self._die(now)
            case faults.Restart():
                self._die(now)
                self.alive = True
            case faults.Join():
                self.alive, self.listed, self.draining, self._taken_at = True, True, False, math.inf
            case faults.Leave():
                self.listed = False
            case faults.Drain():
                self.draining = True
            case faults.Busy(retry_after_s, _, for_s):
                self._busy = fault
                self._last("busy", retry_after_s if for_s is None else for_s, now)
            case faults.Freeze(for_s):
                self._frozen_since = now if self._frozen_since is None else self._frozen_since
                self._last("freeze", for_s, now)
            case faults.Slow(x, for_s):
                self._slow_x = x
                self._last("slow", for_s, now)
            case faults.Error(_, _, for_s):
                self._error = fault
                self._last("error", for_s, now)
            case faults.Garbage(for_s):
                self._last("garbage", for_s, now)
            case faults.Abort():
                if self._frozen_since is None:  # a frozen process does nothing, not even give up
                    self._end_all(now, aborted=True)
            case faults.Cap(max_concurrent, slots):
                self.max_concurrent = self.max_concurrent if max_concurrent is None else max_concurrent
                if slots is not None:
                    self._engine.set_slots(slots, now)
            case faults.Notice(in_s):
                self.draining, self._taken_at = True, now + in_s
            case faults.Heal():
                self._heal(now)
            case _:
                assert_never(fault)
        self.advance(now)

    def _verdict(self, model: str, secret: str | None, prompt_tokens: int) -> Refusal | GarbageReply | None:
        if self.server.secret not in (None, secret):
            return Refusal(401, "the bearer token is missing or wrong")
        if self._busy is not None:
            return Refusal(self._busy.status, "too many requests, come back later", self._busy.retry_after_s)
        if self._error is not None and self.random.random() < self._error.rate:
            return Refusal(self._error.status, "simulated error")
        if "garbage" in self._ends_at:
            return GarbageReply()
        if model != self.server.model:
            return Refusal(404, f'the model "{model}" does not exist, this server has "{self.server.model}"')
        limit = self.server.context_tokens
        if limit is not None and prompt_tokens > limit:
            what = f"this model's maximum context length is {limit} tokens, the prompt has {prompt_tokens}"
            return Refusal(400, what)
        return None

    def _progress(self, now: float) -> None:
        for event in self._engine.advance(now):
            generation = self._generations[event.request_id]
            generation.tokens = event.tokens
            if event.finished:
                del self._generations[event.request_id]
                generation.finish_reason = generation.reply.finish_reason
                self.truth.finished += 1
                self.truth.tokens += event.tokens
            generation.wake()

    def _last(self, name: str, for_s: float | None, now: float) -> None:
        self._ends_at[name] = math.inf if for_s is None else now + for_s
        self._set_speed(now)

    def _end(self, name: str, now: float) -> None:
        del self._ends_at[name]
        if name == "busy":
            self._busy = None
        elif name == "error":
            self._error = None
        elif name == "slow":
            self._slow_x = 1.0
        elif name == "freeze":
            self._frozen_since = None
            self._wake_all()
        self._set_speed(now)

    def _set_speed(self, now: float) -> None:
        self._engine.set_speed(0.0 if "freeze" in self._ends_at else 1 / self._slow_x, now)
        if "freeze" in self._ends_at:
            self._wake_all()

    def _wake_all(self) -> None:
        for generation in self._generations.values():
            generation.wake()

    def _heal(self, now: float) -> None:
        for name in list(self._ends_at):
            self._end(name, now)

    def _die(self, now: float) -> None:
        self.alive = False
        self.deaths += 1
        self._taken_at = math.inf if self._taken_at <= now else self._taken_at
        self._end_all(now, aborted=False)
        self._heal(now)

    def _end_all(self, now: float, *, aborted: bool) -> None:
        ended, self._generations = self._generations, {}
        for generation in ended.values():
            self._engine.cancel(generation.request_id, now)
            if aborted:
                generation.finish_reason = "abort"
                self.truth.finished += 1
                self.truth.tokens += generation.tokens
            else:
                generation.lost = True
                self.truth.lost += 1
            generation.wake()
