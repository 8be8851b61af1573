"""Hosts of their own for servers, on a network of their own, so that packets between them and a client can vanish.

A network is a namespace for whoever is the client and one more for each host, joined by a pair of virtual interfaces.
The machine's own network is not touched, so addresses are always the same. A namespace has no name: it is kept by a
process that ends with its standard input, and goes, interfaces and all, when the last process in it is gone. So
nothing is left behind by a test that is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from real_parts import excuse_processor, real

LEASH = Path(__file__).with_name("leash.py")
NOBODY = "02:00:00:00:00:01"
"""A hardware address that no interface has: what is sent there vanishes."""


def _may_make_namespaces() -> bool:
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return False
    return subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0


needs_hosts = real(
    "network namespaces",
    shutil.which("ip") is not None and _may_make_namespaces(),
    "needs Linux, root's right to make network namespaces, util-linux, and iproute2 (apt-get install iproute2)",
)


class Namespace:
    """A network namespace, there until it is closed and the last process in it has ended."""

    def __init__(self) -> None:
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.write("there\n")
        assert self._keeper.stdout.readline() == "there\n"  # an echo comes from inside
        self.ip("link set lo up")

    @property
    def pid(self) -> int:
        """A process inside."""
        return self._keeper.pid

    @property
    def prefix(self) -> list[str]:
        """What to put before a command so that it runs inside."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]

    def ip(self, *commands: str) -> None:
        """Let ``ip`` do these things inside."""
        done = subprocess.run(
            [*self.prefix, "ip", "-batch", "-"], input="\n".join(commands), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"ip: {'; '.join(commands)}: {done.stderr}"

    def close(self) -> None:
        """Let it go."""
        self._keeper.communicate()


@attrs.define(eq=False)
class Host:
    """One host: its namespace, and the way to the client's. It starts out with the network in order."""

    client: Namespace
    number: int
    inside: Namespace = attrs.field(factory=Namespace)

    def __attrs_post_init__(self) -> None:
        self.client.ip(
            f"link add {self._ours} type veth peer name net netns {self.inside.pid}",
            f"address add {self._client_address}/30 dev {self._ours}",
            f"link set {self._ours} up",
        )
        self.inside.ip(f"address add {self.address}/30 dev net", "link set net up")

    @property
    def address(self) -> str:
        """Where it is, seen from the client."""
        return f"10.77.{self.number}.2"

    @property
    def _client_address(self) -> str:
        return f"10.77.{self.number}.1"

    @property
    def _ours(self) -> str:
        return f"host{self.number}"

    def vanish(self) -> None:
        """Let every packet to and from it vanish, as if it had lost its power; nobody is told."""
        self.client.ip(f"neighbour replace {self.address} lladdr {NOBODY} dev {self._ours} nud permanent")
        self.inside.ip(f"neighbour replace {self._client_address} lladdr {NOBODY} dev net nud permanent")

    def appear(self) -> None:
        """Let packets through again."""
        self.inside.ip(f"neighbour delete {self._client_address} dev net")
        self.client.ip(f"neighbour delete {self.address} dev {self._ours}")


@attrs.frozen(eq=False)
class Network:
    """Where the client runs, and the hosts that it can reach."""

    client: Namespace
    hosts: tuple[Host, ...]


@contextmanager
def open_network(count: int) -> Iterator[Network]:
    """A network with that many hosts."""
    with ExitStack() as stack:
        client = Namespace()
        stack.callback(client.close)
        hosts = []
        for number in range(count):
            hosts.append(Host(client, number))
            stack.callback(hosts[-1].inside.close)
        yield Network(client, tuple(hosts))


class HostedServer:
    """A server process on a host; it is gone when it is ended, and when the test process is."""

    def __init__(self, host: Host, command: Sequence[str], log: Path) -> None:
        self.log = log
        self.told_to_end = False
        with log.open("ab") as output:
            self._leash = subprocess.Popen(
                [*host.inside.prefix, sys.executable, str(LEASH), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        assert self._leash.stdout is not None
        self.pid = int(self._leash.stdout.readline())

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the server itself."""
        assert self._leash.poll() is None, "the server has ended"
        self.told_to_end |= number in (signal.SIGKILL, signal.SIGTERM)
        os.kill(self.pid, number)

    def check(self, name: str) -> None:
        """See that it runs, if it was not told to end. Skips the test where the processor cannot run it."""
        if self.told_to_end:
            return
        status = self._leash.poll()
        excuse_processor(name, None if status is None else 128 - status)
        assert status is None, self.log.read_text(errors="replace")[-2000:]

    def end(self) -> None:
        """Make sure that it is gone."""
        self._leash.communicate()
