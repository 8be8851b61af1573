"""One simulated server as a real HTTP server on a loopback port, and a fleet of them.

It gives the decisions of :mod:`scavenge.testing.host` a socket: a dead server has a closed port and resets its
connections, a frozen one accepts and is silent. What is said on a connection is :mod:`scavenge.testing.connection`'s.

The port stays this process's own while the server is down: the socket is bound but does not listen, so that
connections are refused.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from scavenge.errors import UsageError, single_error
from scavenge.listings import EndpointSpec, Listing
from scavenge.testing import faults
from scavenge.testing.connection import serve_connection
from scavenge.testing.host import Host
from scavenge.testing.lister import Lister
from scavenge.testing.node import Node, check_servers, make_hosts
from scavenge.testing.script import run_script
from scavenge.testing.served import SimulatedServer, Truth

_LOOPBACK = "127.0.0.1"
_BACKLOG = 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER, on, for 0 s: closing sends RST


class HttpServer:
    """A simulated server on a port of the loopback interface; it answers while :meth:`run` runs.

    Ownership: the port is taken, and a server that is alive listens, from the start; :meth:`close` gives the port back.
    """

    def __init__(self, host: Host, port: int = 0, random_seed: int = 0) -> None:
        self._socket = _bind(port)
        self.port: int = self._socket.getsockname()[1]
        self.node = Node(host, f"http://{_LOOPBACK}:{self.port}/v1", self._follow)
        self._seed = random_seed
        self._connections: set[trio.SocketStream] = set()
        self._life = trio.CancelScope()
        self._follow(died=False)

    async def run(self) -> None:
        """Serve for ever, one life after the other. Cancelled, it ends every connection and closes the port."""
        while True:
            await self.node.wait_alive()
            with trio.CancelScope() as self._life:
                await trio.serve_listeners(self._serve, [trio.SocketListener(self._socket)])

    def close(self) -> None:
        """Give the port back. Never waits."""
        self._socket.close()

    def _follow(self, died: bool) -> None:
        """Do to the sockets, at once, what has been done to the server."""
        if died:
            for stream in self._connections:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._life.cancel()
            self._socket.close()
            self._socket = _bind(self.port)
        if self.node.host.alive:
            self._socket.listen(_BACKLOG)

    async def _serve(self, stream: trio.SocketStream) -> None:
        self._connections.add(stream)
        try:
            await serve_connection(stream, self.node, self._seed)
        finally:
            self._connections.remove(stream)


@attrs.frozen(eq=False)
class HttpFleet:
    """Simulated HTTP servers in operation: an :class:`scavenge.runtime.ports.EndpointSource` that lists them."""

    nodes: Mapping[str, Node]
    """By name; ``nodes[name].apply(fault)`` lets a fault happen outside the script."""
    lister: Lister
    """``lister.apply(fault)`` lets a fault of the listing happen outside the script."""

    async def list_endpoints(self) -> Listing:
        """The endpoints as the script has them listed now.

        Raises :class:`scavenge.errors.SourceError` during an outage.
        """
        return await self.lister.list_endpoints()

    def rows(self) -> list[EndpointSpec]:
        """What is listed now."""
        return self.lister.rows()

    @property
    def truth(self) -> Mapping[str, Truth]:
        """What each server really did, by name."""
        return {name: node.host.truth for name, node in self.nodes.items()}


@attrs.frozen
class FleetPlan:
    """What :func:`open_http_fleet` starts."""

    servers: Sequence[SimulatedServer]
    script: str | Sequence[faults.Step] = ""
    random_seed: int = 0
    first_port: int = 0
    """The first server's port, the others take the ones after it; 0: any free ports."""
    key: str | None = None
    """The environment variable with the bearer token, as it is to be listed."""


@asynccontextmanager
async def open_http_fleet(
    plan: FleetPlan, on_step: Callable[[faults.Step, HttpFleet], None] = lambda step, fleet: None
) -> AsyncIterator[HttpFleet]:
    """Start simulated servers on loopback ports, and the script; ``on_step`` is called after each of its steps.

    Raises :class:`scavenge.errors.ConfigError` for servers or a script that are wrong, and
    :class:`scavenge.errors.UsageError` for a port that is taken. Leaving, also by cancellation, ends the servers,
    every connection and every task.
    """
    check_servers(plan.servers)
    steps = faults.read_steps(plan.script, {server.name for server in plan.servers})
    hosts = make_hosts(plan.servers, steps, plan.random_seed)
    servers: list[HttpServer] = []
    try:
        for index, host in enumerate(hosts.values()):
            port = plan.first_port + index if plan.first_port else 0
            servers.append(HttpServer(host, port, plan.random_seed))
        nodes = {server.node.host.name: server.node for server in servers}
        fleet = HttpFleet(nodes, Lister(nodes.values(), plan.key))
        with single_error():
            async with trio.open_nursery() as nursery:
                for server in servers:
                    nursery.start_soon(server.run)
                    nursery.start_soon(server.node.run_clock)
                nursery.start_soon(run_script, steps, fleet.nodes, fleet.lister, lambda step: on_step(step, fleet))
                yield fleet
                nursery.cancel_scope.cancel()
    finally:
        for server in servers:
            server.close()


def _bind(port: int) -> trio.socket.SocketType:
    """A socket that is bound to a loopback port and does not listen."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((_LOOPBACK, port))
        return trio.socket.from_stdlib_socket(bound)
    except OSError as error:
        bound.close()
        raise UsageError(f"port {port} cannot be used ({error.strerror}): choose another one") from error
    except OverflowError as error:
        bound.close()
        raise UsageError(f"port {port} does not exist: choose one from 1 to 65535") from error
