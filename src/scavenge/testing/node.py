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
from scavenge.signals import ServerLoad
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
    """How many deaths of the host have been told."""
    _frozen: bool = attrs.field(default=False, init=False)
    """Whether the host was frozen when its state was told last."""

    async def run_clock(self) -> None:
        """Let the host's time pass, for ever."""
        while True:
            next_at = self.host.next_event_at()
            with trio.CancelScope(deadline=math.inf if next_at is None else next_at) as self._alarm:
                await trio.sleep_forever()
            self.host.advance(trio.current_time())
            self._settle()

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

    def begin(self, reply: SimulatedReply, wake: Callable[[], None]) -> Generation | Refusal:
        """Take a request on now; whoever begins a generation cancels it when it hangs up."""
        begun = self.host.begin(reply, wake, trio.current_time())
        self._settle()
        return begun

    def cancel(self, generation: Generation) -> None:
        """Stop generating now. Never waits, so that it also works while cancelled."""
        self.host.cancel(generation, trio.current_time())
        self._settle()

    def refresh(self, generation: Generation) -> None:
        """Bring a generation's tokens up to date. Never waits."""
        self.host.refresh(generation, trio.current_time())
        self._settle()

    def read_load(self) -> ServerLoad | None:
        """The figures that the server offers now, if it offers any."""
        load = self.host.load(trio.current_time())
        self._settle()
        return load

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

    def _follow(self) -> None:
        """Tell of what has become of the host."""
        died, self._lives = self.host.deaths != self._lives, self.host.deaths
        self.on_fault(died)
        self._tell()

    def _settle(self) -> None:
        """Tell of a death or a thaw that came with the time, whoever let it pass, and set the alarm."""
        if self.host.deaths != self._lives:
            self._follow()
        elif self._frozen and self.host.frozen_since is None:
            self._tell()
        self._set_alarm()

    def _set_alarm(self) -> None:
        next_at = self.host.next_event_at()
        deadline = math.inf if next_at is None else next_at
        if deadline != self._alarm.deadline:  # to set it costs more than to look
            self._alarm.deadline = deadline

    def _tell(self) -> None:
        self._frozen = self.host.frozen_since is not None
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
