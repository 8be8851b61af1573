"""How fast a simulated fleet could be at best, whatever its servers go through. Pure.

It decides what the servers of a script can generate together from one change to the next, and from that the time before
which no run can have ended. It must not know who asks the servers for anything.

versionadded: 0.1
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from scavenge.testing import faults
from scavenge.testing.faults import Step
from scavenge.testing.grammar import FLEET
from scavenge.testing.node import make_hosts
from scavenge.testing.served import SimulatedServer


@attrs.frozen
class Pace:
    """From ``at_s`` on, until the next one, a fleet generates at most ``tokens_per_s``."""

    at_s: float
    tokens_per_s: float


def fleet_paces(servers: Sequence[SimulatedServer], steps: Sequence[Step]) -> Iterator[Pace]:
    """What a fleet can generate in all, as its script has it, from one change to the next.

    A server counts with what its engine gives with every slot taken (fewer, where its cap is lower) while it is up and
    listed, and neither frozen nor failing all it is asked. That is the most there is, since an engine's aggregate speed
    rises with its streams. It does not count what a server may finish, of requests that it has, after it left the
    listing or began to fail: at most one request a slot. The cost of prompts is left out.
    """
    hosts = make_hosts(servers, steps, 0)
    speeds = {name: host.ceiling_tokens_per_s for name, host in hosts.items()}
    yield Pace(0.0, math.fsum(speeds.values()))
    for at_s, step, name in _changes(steps, {name: host.next_change_at for name, host in hosts.items()}):
        host = hosts[name]
        host.advance(at_s)
        if step is not None and not isinstance(step.fault, faults.Outage | faults.Empty | faults.Hang):
            host.apply(step.fault, at_s)
        if (speed := host.ceiling_tokens_per_s) != speeds[name]:
            speeds[name] = speed
            yield Pace(at_s, math.fsum(speeds.values()))


def _changes(
    steps: Iterable[Step], next_change_at: Mapping[str, Callable[[], float]]
) -> Iterator[tuple[float, Step | None, str]]:
    """The steps about servers and, between them, the instants at which something ends by itself, in order."""
    ends: list[tuple[float, str]] = []

    def ended(until: float) -> Iterator[tuple[float, None, str]]:
        while ends and ends[0][0] <= until:
            at_s, name = heapq.heappop(ends)
            if next_change_at[name]() == at_s:
                yield at_s, None, name

    for step in steps:
        yield from ended(step.at_s)
        if step.server != FLEET:
            yield step.at_s, step, step.server
            if (at_s := next_change_at[step.server]()) < math.inf:
                heapq.heappush(ends, (at_s, step.server))
    yield from ended(math.inf)


def least_makespan_s(paces: Iterable[Pace], tokens: float) -> float:
    """The time before which no run over such a fleet can have generated so many tokens; infinite when it never can.

    The work is done when the integral of the paces reaches it: a lower bound of the makespan, because it takes the work
    as divisible at will and every slot as taken at every moment. :func:`fleet_paces` tells what the paces leave out.
    """
    at_s, pace, left = 0.0, 0.0, tokens
    for change in paces:
        if (made := pace * (change.at_s - at_s)) >= left:
            break
        at_s, pace, left = change.at_s, change.tokens_per_s, left - made
    return at_s + (left / pace if pace else math.inf if left > 0 else 0.0)


def most_tokens(paces: Iterable[Pace], within_s: float) -> float:
    """How many tokens a fleet with such paces can generate at most in so many seconds."""
    at_s, pace, made = 0.0, 0.0, 0.0
    for change in paces:
        if change.at_s >= within_s:
            break
        made += pace * (change.at_s - at_s)
        at_s, pace = change.at_s, change.tokens_per_s
    return made + pace * (within_s - at_s)
