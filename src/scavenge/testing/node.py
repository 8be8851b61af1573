"""A simulated server on Trio's clock, and what is made and listed of a whole fleet of them.

It waits for what :mod:`scavenge.testing.host` decides. It must not know whether requests come through memory or
through sockets.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime

import attrs
import trio

from scavenge.errors import ConfigError, Problem
from scavenge.listings import EndpointSpec
from scavenge.testing import faults
from scavenge.testing.grammar import FLEET
from scavenge.testing.host import Host
from scavenge.testing.model import SimulatedReply
from scavenge.testing.served import Generation, Refusal, SimulatedServer


class Bell:
    """Wakes one task; a ring while nobody waits is not lost."""

    def __init__(self) -> None:
        self._rung = trio.Event()

    def ring(self) -> None:
        """Wake the task that waits, or the next one that will."""
        self._rung.set()

    async def wait_rung(self) -> None:
        """Wait for a ring that nobody has answered yet."""
        await self._rung.wait()
        self._rung = trio.Event()


@attrs.define(eq=False)
class Node:
    """One simulated server whose time passes while :meth:`run_clock` runs."""

    host: Host
    url: str
    on_fault: Callable[[bool], None] = attrs.field(default=lambda died: None)
    """Called after each fault and each death; whether the process died, also to be restarted at once."""
    wall_clock: Callable[[], float] = time.time
    """Seconds since the epoch, for the deadline of a preemption notice."""
    drain_deadline: datetime | None = attrs.field(default=None, init=False)
    """When the server is taken away, as it is listed."""
    _alarm: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _lives: int = attrs.field(default=0, init=False)

    async def run_clock(self) -> None:
        """Let the host's time pass, for ever."""
        while True:
            next_at = self.host.next_event_at()
            with trio.CancelScope(deadline=math.inf if next_at is None else next_at) as self._alarm:
                await trio.sleep_forever()
            self._advance()

    def apply(self, fault: faults.Fault) -> None:
        """Let a fault happen now."""
        self.host.apply(fault, trio.current_time())
        match fault:
            case faults.Notice(in_s):
                self.drain_deadline = datetime.fromtimestamp(self.wall_clock() + in_s, UTC)
            case faults.Join():
                self.drain_deadline = None
        self._follow()
        self._set_alarm()

    def _follow(self) -> None:
        """Tell of what has become of the host."""
        died, self._lives = self.host.deaths != self._lives, self.host.deaths
        self.on_fault(died)
        self._tell()

    def begin(self, reply: SimulatedReply, wake: Callable[[], None]) -> Generation | Refusal:
        """Take a request on now; whoever begins a generation cancels it when it hangs up."""
        begun = self.host.begin(reply, wake, trio.current_time())
        self._set_alarm()
        return begun

    def cancel(self, generation: Generation) -> None:
        """Stop generating now. Never waits, so that it also works while cancelled."""
        self.host.cancel(generation, trio.current_time())
        self._set_alarm()

    async def wait_alive(self) -> None:
        """Wait until the server is up."""
        await trio.lowlevel.checkpoint()
        while not self.host.alive:
            await self._changed.wait()

    async def wait_responsive(self) -> bool:
        """Wait while the server is frozen; false when it is not the same process any more."""
        await trio.lowlevel.checkpoint()
        life = self._lives
        while self.host.alive and life == self._lives and self.host.frozen_since is not None:
            await self._changed.wait()
        return self.host.alive and life == self._lives

    def _advance(self) -> None:
        was_frozen = self.host.frozen_since is not None
        self.host.advance(trio.current_time())
        if self.host.deaths != self._lives:
            self._follow()
        elif was_frozen and self.host.frozen_since is None:
            self._tell()

    def _set_alarm(self) -> None:
        next_at = self.host.next_event_at()
        self._alarm.deadline = math.inf if next_at is None else next_at

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def check_servers(servers: Collection[SimulatedServer]) -> None:
    """See that every name is there once.

    Raises :class:`scavenge.errors.ConfigError` for a name that is there twice, and for no server at all.
    """
    names = [server.name for server in servers]
    reserved = [Problem("servers", f'the name "{FLEET}" means the listing in scripts')] if FLEET in names else []
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    problems = [Problem("servers", f'the name "{name}" is there twice') for name in twice] + reserved
    if not names:
        problems.append(Problem("servers", "expected at least one simulated server"))
    if problems:
        raise ConfigError(problems)


def make_hosts(
    servers: Collection[SimulatedServer], steps: Collection[faults.Step], random_seed: int
) -> dict[str, Host]:
    """A host for each server as it is at the start of the script."""
    hosts = {}
    absent = faults.absent_at_start(steps)
    for server in servers:
        here = server.name not in absent
        chance = random.Random(f"{random_seed} {server.name}")  # noqa: S311 - a simulation, no secret
        hosts[server.name] = Host(server, chance, alive=here, listed=here)
    return hosts


def rows_of(nodes: Iterable[Node], key: str | None = None) -> list[EndpointSpec]:
    """What a source says of these servers now; ``key`` names the variable with the bearer token."""
    return [
        EndpointSpec(
            endpoint_id=node.host.server.endpoint_id,
            model=node.host.server.model,
            url=node.url,
            key=key,
            max_concurrent=node.host.max_concurrent,
            draining=node.host.draining or None,
            drain_deadline=node.drain_deadline,
        )
        for node in nodes
        if node.host.listed
    ]
