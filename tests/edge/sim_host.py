"""One simulated server on any address: ``python sim_host.py ADDRESS PORT SLOTS TOKEN_S``."""

from __future__ import annotations

import sys
from functools import partial
from random import Random

import trio

from scavenge.testing import EngineSettings, Host, Node, SimulatedServer
from scavenge.testing.connection import serve_connection


async def serve(address: str, port: str, slots: str, token_s: str) -> None:
    """Serve until the process ends."""
    engine = EngineSettings(float(token_s), 0.001, int(slots), tokens_per_event=1)
    node = Node(Host(SimulatedServer("sim", engine), Random(0)), f"http://{address}:{port}/v1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run_clock)
        await trio.serve_tcp(partial(serve_connection, node=node, random_seed=0), int(port), host=address)


if __name__ == "__main__":
    trio.run(serve, *sys.argv[1:])
