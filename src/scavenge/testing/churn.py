"""A random life of a simulated fleet: servers join, die, freeze, lie, flap, shrink and are preempted. Pure.

It decides what happens to whom and when. It must not know who asks the servers for anything, nor how they fare:
:mod:`scavenge.testing.bound` tells how fast such a fleet could be. The same seed and settings give the same churn.

Each server leads a life of its own: it is well for a random time, then something happens to it, then it is well again.
So nothing but the listing ever fails for all of them at once, and a share of them is never touched.

versionadded: 0.1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import TypeAlias

import attrs
from attrs import validators

from scavenge.testing import faults
from scavenge.testing.engine import EngineSettings
from scavenge.testing.faults import Step, format_script, in_order
from scavenge.testing.grammar import FLEET
from scavenge.testing.served import SimulatedServer

_RATE = validators.ge(0.0)
_SHARE = validators.and_(validators.ge(0.0), validators.le(1.0))


@attrs.frozen
class ChurnRates:
    """How often something happens to a server in an hour during which it is well; 0: never."""

    kill: float = attrs.field(default=0.2, validator=_RATE)
    """Dies, and is restarted after some minutes, one in three smaller than before."""
    freeze: float = attrs.field(default=0.1, validator=_RATE)
    """Falls silent for a minute or so with its sockets open."""
    black_hole: float = attrs.field(default=0.1, validator=_RATE)
    """Fails fast for some minutes: status 500, or a page of HTML."""
    flap: float = attrs.field(default=0.05, validator=_RATE)
    """Dies and comes back every few seconds for a while."""
    resize: float = attrs.field(default=0.1, validator=_RATE)
    """Takes another number of streams from now on."""
    leave: float = attrs.field(default=0.1, validator=_RATE)
    """Vanishes from the listing, one in two dies soon after, and joins again some time later."""
    preempt: float = attrs.field(default=0.2, validator=_RATE)
    """Gets a notice, is killed half a minute to two minutes later, leaves, and joins again with another size."""
    outage: float = attrs.field(default=0.2, validator=_RATE)
    """Of the listing, not of a server: its source fails, hangs or lists nothing for a minute or two."""


@attrs.frozen
class ChurnSettings:
    """What a random churn is made of."""

    servers: int = attrs.field(default=100, validator=validators.ge(1))
    """How many, named ``ep1``, ``ep2`` ..."""
    duration_s: float = attrs.field(default=3600.0, validator=validators.gt(0))
    """How long something happens; what lasts then is ended, and the servers are well."""
    rates: ChurnRates = attrs.field(factory=ChurnRates)
    steady_share: float = attrs.field(default=0.1, validator=_SHARE)
    """The share of servers that nothing ever happens to, at least one of them."""
    late_share: float = attrs.field(default=0.2, validator=_SHARE)
    """The share of the other servers that join in the first quarter of the time instead of being there at the start."""
    capped: bool = True
    """Whether they are listed with ``max_concurrent``, which is the number of their slots then."""
    token_s: float = attrs.field(default=0.01, validator=validators.gt(0))
    """Seconds that a token takes on the fastest server when it is idle; see :func:`random_engine`."""


@attrs.frozen
class Churn:
    """A fleet and what happens to it."""

    servers: tuple[SimulatedServer, ...]
    steps: tuple[Step, ...] = attrs.field(repr=False)

    @property
    def script(self) -> str:
        """The same as a script, a statement a line."""
        return format_script(self.steps)


def random_engine(random: Random, token_s: float) -> EngineSettings:
    """An engine somewhere between a data centre's and a laptop's, log-uniform.

    The fastest has 16 slots and gives a lone stream a token each ``token_s`` seconds; the slowest has 2 slots and takes
    8 times as long. All streams together, the first is 36 times as fast as the last.
    """
    slower = 8.0 ** random.random()
    slots = round(16 / slower)
    return EngineSettings(token_s=token_s * slower, load_s=token_s * slower / 16, slots=slots)


def random_churn(random_seed: int, settings: ChurnSettings | None = None) -> Churn:
    """A fleet of random servers and a random life for each of them."""
    settings = settings or ChurnSettings()
    chance = Random(f"{random_seed} fleet")  # noqa: S311 - a simulation, no secret
    names = [f"ep{number}" for number in range(1, settings.servers + 1)]
    steady = set(chance.sample(names, max(1, round(settings.steady_share * len(names)))))
    servers: list[SimulatedServer] = []
    steps = list(_listing(chance, settings))
    for name in names:
        own = Random(f"{random_seed} churn {name}")  # noqa: S311 - a simulation, no secret
        engine = random_engine(own, settings.token_s)
        servers.append(SimulatedServer(name, engine, max_concurrent=engine.slots if settings.capped else None))
        if name not in steady:
            steps += _life(name, _Chance(own, engine.slots, settings.capped), settings)
    return Churn(tuple(servers), in_order(steps))


# --- one server's life

_Episode: TypeAlias = Iterator[tuple[float, faults.Fault]]
"""What happens, each so many seconds after the one before; the server is well with the last."""


@attrs.frozen
class _Chance:
    """Where a server's randomness comes from, and what it can be resized to."""

    random: Random
    slots: int
    capped: bool

    def seconds(self, mean_s: float, low_s: float = 5.0) -> float:
        return low_s + self.random.expovariate(1 / (mean_s - low_s))

    def resized(self) -> faults.Cap:
        slots = self.random.randint(1, self.slots)
        return faults.Cap(max_concurrent=slots if self.capped else None, slots=slots)


def _kill(chance: _Chance) -> _Episode:
    yield 0.0, faults.Kill()
    if chance.random.random() < 1 / 3:
        yield 0.0, chance.resized()
    yield chance.seconds(300), faults.Restart()


def _freeze(chance: _Chance) -> _Episode:
    yield 0.0, faults.Freeze()
    yield chance.seconds(90), faults.Heal()


def _black_hole(chance: _Chance) -> _Episode:
    yield 0.0, faults.Garbage() if chance.random.random() < 0.5 else faults.Error()
    yield chance.seconds(600), faults.Heal()


def _flap(chance: _Chance) -> _Episode:
    for _ in range(chance.random.randint(5, 20)):
        yield chance.seconds(6, 2.0), faults.Kill()
        yield chance.seconds(6, 2.0), faults.Restart()


def _resize(chance: _Chance) -> _Episode:
    yield 0.0, chance.resized()


def _leave(chance: _Chance) -> _Episode:
    yield 0.0, faults.Leave()
    if chance.random.random() < 0.5:
        yield chance.seconds(120), faults.Kill()
    yield chance.seconds(900), faults.Join()


def _preempt(chance: _Chance) -> _Episode:
    in_s = chance.random.uniform(30, 120)
    yield 0.0, faults.Notice(round(in_s, 2))
    yield in_s + chance.seconds(20), faults.Leave()
    yield 0.0, chance.resized()
    yield chance.seconds(900), faults.Join()


_EPISODES: Mapping[str, Callable[[_Chance], _Episode]] = {
    "kill": _kill,
    "freeze": _freeze,
    "black_hole": _black_hole,
    "flap": _flap,
    "resize": _resize,
    "leave": _leave,
    "preempt": _preempt,
}


def _life(name: str, chance: _Chance, settings: ChurnSettings) -> Iterator[Step]:
    weights = [getattr(settings.rates, episode) for episode in _EPISODES]
    at_s = 0.0
    if chance.random.random() < settings.late_share:
        at_s = chance.random.uniform(0, settings.duration_s / 4)
        yield _step(at_s, name, faults.Join())
    while sum(weights) > 0:
        at_s += chance.random.expovariate(sum(weights) / 3600)
        if at_s >= settings.duration_s:
            return
        (episode,) = chance.random.choices(list(_EPISODES.values()), weights)
        for after_s, fault in episode(chance):
            at_s += after_s
            yield _step(min(at_s, settings.duration_s), name, fault)


def _listing(random: Random, settings: ChurnSettings) -> Iterator[Step]:
    at_s = 0.0
    while settings.rates.outage > 0:
        at_s += random.expovariate(settings.rates.outage / 3600)
        if at_s >= settings.duration_s:
            return
        fault: faults.ListingFault = random.choice((faults.Outage(), faults.Empty(), faults.Hang()))
        yield _step(at_s, FLEET, fault)
        at_s += 5 + random.expovariate(1 / 90)
        yield _step(min(at_s, settings.duration_s), FLEET, faults.Heal())


def _step(at_s: float, name: str, fault: faults.Fault | faults.ListingFault) -> Step:
    return Step(round(at_s, 2), name, fault)  # a script that people can read
