"""Our own server of the gateway beside Hypercorn's Trio worker: the same trivial answers, by a door and by ASGI.

Hypercorn gets a virtual environment of its own::

    python -m venv VENV && VENV/bin/pip install 'hypercorn[trio]'
    python benchmarks/gateway_server.py --hypercorn VENV/bin/python

Prints CPU microseconds a request and a chunk of a stream that the application sends one by one, and then what happens
to whoever makes the reply: how soon it is told that its client hung up, in the middle of waiting and of streaming;
whether a client that reads nothing makes it wait, and at what cost in memory; and how soon such a reply can be given
up when its maker is cancelled after all. Both servers take turns in one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from gateway_fleet import asking
from gateway_load import Seen, Target, saturate
from gateway_proxies import Proxy, free_port, running
from gateway_served import FLOOD_S

CHUNKS = 200
CONNECTIONS = 64
STREAMS = 8
PATIENCE_S = 10.0


@dataclass
class Server:
    """A server, and what was measured of it."""

    proxy: Proxy
    costs: dict[str, list[float]] = field(default_factory=dict)

    def measure(self, name: str, body: bytes, connections: int, seconds: float) -> None:
        read: list[float] = []
        ask = partial(saturate, body=body, connections=connections, seconds=seconds)
        seen = asyncio.run(ask([self.proxy.port], lambda: read.append(self.proxy.cpu_s())))
        self.costs.setdefault(name, []).append((self.proxy.cpu_s() - read[0]) / seen.requests * 1e6)

    def told(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.proxy.port}/health") as answer:
            return dict(json.load(answer))

    def client(self, kind: str, *, stream: bool) -> socket.socket:
        """A client that has asked for a reply of this kind, and reads nothing."""
        client = socket.create_connection(("127.0.0.1", self.proxy.port))
        client.sendall(Target([], Seen()).request(asking(kind, chunks=CHUNKS, stream=stream)))
        return client

    def hang_up(self, kind: str, *, stream: bool) -> float | None:
        """Milliseconds until the maker of a reply is told that its client is gone; ``None``: it never is."""
        with self.client(kind, stream=stream):
            time.sleep(0.3)
        closed_at = time.monotonic()
        while time.monotonic() < closed_at + PATIENCE_S:
            time.sleep(0.05)
            if (told_at := self.told()["hung_up_at"]) > closed_at - 0.01:
                return (told_at - closed_at) * 1000
        return None

    def flood(self) -> tuple[float, float, float | None]:
        """Megabytes that were taken for a client that reads nothing, and kept; and when the reply was given up."""
        self.proxy.forget_peak()
        before_mb = self.proxy.peak_mb()
        with self.client("flood", stream=True):
            time.sleep(FLOOD_S + 1.0)
            told = self.told()
            grown_mb = self.proxy.peak_mb() - before_mb
        return told["sent_bytes"] / 2**20, grown_mb, told["given_up_s"] or None


def measure(servers: list[Server], seconds: float, rounds: int) -> None:
    for server in servers:
        asyncio.run(saturate([server.proxy.port], body=asking(), connections=STREAMS, seconds=0.5))
    for _ in range(rounds):
        for server in servers:
            server.measure("request", asking(), CONNECTIONS, seconds)
            server.measure("stream", asking(stream=True, chunks=CHUNKS), STREAMS, seconds)


def report(servers: list[Server]) -> None:
    costs = f"{'':10} {'µs a request':>13} {'µs a chunk':>11}"
    print(f"{costs} {'hang-up told after, ms':>26} {'a client that reads nothing':>42}")
    print(f"{'':36} {'waiting':>13} {'streaming':>12} {'MB taken':>13} {'MB grown':>9} {'given up after, ms':>18}")
    for server in servers:
        request, chunk = median(server.costs["request"]), median(server.costs["stream"]) / CHUNKS
        waiting, streaming = server.hang_up("wait", stream=False), server.hang_up("endless", stream=True)
        taken_mb, grown_mb, given_up_s = server.flood()
        print(
            f"{server.proxy.name:10} {request:13.0f} {chunk:11.1f} {shown(waiting):>13} {shown(streaming):>12}", end=""
        )
        print(f" {taken_mb:13.1f} {grown_mb:9.1f} {shown(given_up_s and given_up_s * 1000):>18}")
    ours, theirs = servers
    ratios = [median(ours.costs[name]) / median(theirs.costs[name]) for name in ("request", "stream")]
    print(f"ratios: a request {ratios[0]:.2f}, a chunk {ratios[1]:.2f}")


def shown(milliseconds: float | None) -> str:
    return "never" if milliseconds is None else f"{max(milliseconds, 0.0):.1f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--hypercorn", default=sys.executable, help="the Python of its virtual environment")
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    with ExitStack() as open_ones:
        folder = Path(open_ones.enter_context(tempfile.TemporaryDirectory()))
        servers = []
        for name, python in (("ours", sys.executable), ("hypercorn", given.hypercorn)):
            port = free_port()
            command = [python, str(Path(__file__).with_name("gateway_served.py")), name, str(port)]
            servers.append(Server(open_ones.enter_context(running(name, command, port, "/health", folder, {}))))
        measure(servers, given.seconds, given.rounds)
        report(servers)


if __name__ == "__main__":
    main()
