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

from scavenge.signals import ServerLoad
from scavenge.testing import faults
from scavenge.testing.engine import Engine, Progress
from scavenge.testing.engine_kinds import AnyEngine, make_engine, most_tokens_per_s
from scavenge.testing.front_door import FrontDoor
from scavenge.testing.model import SimulatedReply
from scavenge.testing.served import GarbageReply, Generation, Refusal, SimulatedServer, Truth

_FELT_AT_ONCE = ("freeze", "slow", "kv")  # the end of any other fault is seen by the next who asks


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
    _engine: AnyEngine = attrs.field(init=False)
    _generations: dict[int, Generation] = attrs.field(factory=dict, init=False)
    _next_id: int = attrs.field(default=0, init=False)
    _door: FrontDoor = attrs.field(init=False)
    _slow_x: float = attrs.field(default=1.0, init=False)
    _frozen_since: float | None = attrs.field(default=None, init=False)
    _ends_at: dict[str, float] = attrs.field(factory=dict, init=False)
    """When each lasting fault is over; one that is not here is not there."""
    _taken_at: float = attrs.field(default=math.inf, init=False)
    """When a preempted server is killed."""

    def __attrs_post_init__(self) -> None:
        self._door = FrontDoor(self.server, self.random)
        self._engine = make_engine(self.server.engine, self.random)
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

        With as many streams as its slots and its cap allow, see :mod:`scavenge.testing.engine_kinds`.
        """
        if not (self.alive and self.listed) or self._door.fails_all or "freeze" in self._ends_at:
            return 0.0
        streams = self._engine.slots
        if self.max_concurrent is not None:
            streams = min(streams, self.max_concurrent)
        return most_tokens_per_s(self.server.engine, streams) / self._slow_x

    def admit(self, model: str, secret: str | None, prompt_tokens: int, now: float) -> Refusal | GarbageReply | None:
        """What stands at the front door: ``None`` lets the request in. The server is alive and not frozen."""
        self.advance(now)
        verdict = self._door.check(model, secret, prompt_tokens)
        if isinstance(verdict, Refusal):
            self.truth.refused += 1
        return verdict

    def admit_probe(self, secret: str | None, now: float) -> Refusal | None:
        """The same for a request that asks for no generation."""
        self.advance(now)
        return self._door.check_token(secret)

    def begin(self, reply: SimulatedReply, wake: Callable[[], None], now: float) -> Generation | Refusal:
        """Take a request on; a full queue turns it away, and a server that died in this instant loses it at once."""
        self.advance(now)
        self._next_id += 1
        if not self._engine.submit(self._next_id, reply.prompt_tokens, len(reply.tokens), now, reply.conversation):
            self.truth.refused += 1
            return self._door.full
        generation = Generation(self._next_id, reply, wake)
        self._generations[self._next_id] = generation
        self.truth.started += 1
        self.truth.peak_in_flight = max(self.truth.peak_in_flight, len(self._generations))
        if not self.alive:
            self._end_all(now, aborted=False)
        return generation

    @property
    def tells_each_token(self) -> bool:
        """Whether who asked is called for every token that it is to see, or has to look by :meth:`refresh`."""
        return isinstance(self._engine, Engine)

    def refresh(self, generation: Generation, now: float) -> None:
        """Bring a generation's tokens up to date: its engine may tell of no more than the first and the last."""
        self.advance(now)
        self._count_tokens(generation, now)

    def load(self, now: float) -> ServerLoad | None:
        """The figures that it offers; ``None``: it offers none."""
        self.advance(now)
        return self._door.figures(self._engine.load())

    def cancel(self, generation: Generation, now: float) -> None:
        """Stop generating for somebody who hung up; one that is over stays as it is."""
        self.advance(now)
        if not generation.over and self._generations.pop(generation.request_id, None) is not None:
            self._engine.cancel(generation.request_id, now)
            self.truth.cancelled += 1

    def next_event_at(self) -> float | None:
        """When :meth:`advance` is to be called next; ``None``: not before something else happens."""
        soonest, engine_at = self._taken_at, self._engine.next_event_at()
        if self._ends_at:
            soonest = min(soonest, *(self._ends_at.get(name, math.inf) for name in _FELT_AT_ONCE))
        if engine_at is not None and engine_at < soonest:
            return engine_at
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
                self._door.busy = fault
                self._last("busy", retry_after_s if for_s is None else for_s, now)
            case faults.Freeze(for_s):
                self._frozen_since = now if self._frozen_since is None else self._frozen_since
                self._last("freeze", for_s, now)
            case faults.Slow(x, for_s):
                self._slow_x = x
                self._last("slow", for_s, now)
            case faults.Kv(x, for_s):
                self._set_kv(x, now)
                self._last("kv", for_s, now)
            case faults.Error(_, _, for_s):
                self._door.error = fault
                self._last("error", for_s, now)
            case faults.Garbage(for_s):
                self._door.garbage = True
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

    def _progress(self, now: float) -> None:
        for event in self._engine.advance(now):
            generation = self._generations[event.request_id]
            generation.tokens = event.tokens
            if generation.first_at is None:
                self._note_first(generation, event)
            if event.finished:
                del self._generations[event.request_id]
                generation.finish_reason = generation.reply.finish_reason
                self.truth.finished += 1
                self.truth.tokens += event.tokens
            generation.wake()

    def _note_first(self, generation: Generation, event: Progress) -> None:
        generation.first_at = event.at
        if self.server.reports_cache and not isinstance(self._engine, Engine):
            generation.cached_tokens = event.cached_tokens

    def _count_tokens(self, generation: Generation, now: float) -> None:
        if generation.first_at is not None and not generation.over:
            made = math.floor(self._engine.tokens(generation.request_id, now))
            generation.tokens = max(generation.tokens, min(made, len(generation.reply.tokens)))

    def _last(self, name: str, for_s: float | None, now: float) -> None:
        self._ends_at[name] = math.inf if for_s is None else now + for_s
        self._set_speed(now)

    def _end(self, name: str, now: float) -> None:
        del self._ends_at[name]
        self._door.lift(name)
        if name == "slow":
            self._slow_x = 1.0
        elif name == "kv":
            self._set_kv(1.0, now)
        elif name == "freeze":
            self._frozen_since = None
            self._wake_all()
        self._set_speed(now)

    def _set_speed(self, now: float) -> None:
        self._engine.set_speed(0.0 if "freeze" in self._ends_at else 1 / self._slow_x, now)
        if "freeze" in self._ends_at:
            self._wake_all()

    def _set_kv(self, x: float, now: float) -> None:
        if not isinstance(self._engine, Engine):
            self._engine.set_kv(x, now)

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
        """End the requests in flight: the engine gave them up, or died over them and has forgotten all."""
        ended, self._generations = self._generations, {}
        for generation in ended.values():
            self._count_tokens(generation, now)
            if aborted:
                self._engine.cancel(generation.request_id, now)
                generation.finish_reason = "abort"
                self.truth.finished += 1
                self.truth.tokens += generation.tokens
            else:
                generation.lost = True
                self.truth.lost += 1
            generation.wake()
        if not aborted:
            self._engine.kill(now)
