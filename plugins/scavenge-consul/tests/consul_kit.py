"""What the tests share: the stand-in of an agent in a process of its own, and how its catalogue is filled."""

from __future__ import annotations

import atexit
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import attrs
import httpx
import trio
from scavenge_consul import ConsulConfig, open_consul
from scavenge_consul.pacing import Pace
from scavenge_consul.source import ConsulSource

from scavenge.plugin import EndpointSpec, Listing

_AGENT = Path(__file__).with_name("consul_agent.py")


@attrs.frozen
class Double:
    """The stand-in, and how it is told what to be."""

    port: int
    process: subprocess.Popen[bytes]
    _client: httpx.AsyncClient

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def authorise(self, token: str) -> None:
        """Do what follows with a token."""
        self._client.headers["X-Consul-Token"] = token

    async def put(self, path: str, body: Any = None) -> None:
        response = await self._client.put(f"/v1/{path}", json=body)
        assert response.status_code == 200, response.text

    async def store(self, key: str, text: str) -> None:
        response = await self._client.put(f"/v1/kv/{key}", content=text.encode())
        assert response.status_code == 200, response.text

    async def delete(self, key: str) -> None:
        await self._client.delete(f"/v1/kv/{key}")

    async def control(self, **orders: Any) -> dict[str, Any]:
        response = await self._client.put("/_ctl", json=orders)
        return dict(response.json())

    async def serve(self, node: str, port: int, *, status: str = "passing", **service: Any) -> None:
        """Register an instance of the service ``llm`` on a node of its own."""
        body = {"Service": "llm", "ID": f"llm-{node}", "Port": port, "Check": {"CheckID": "up", "Status": status}}
        await self.put("catalog/register", {"Node": node, "Address": f"10.0.0.{node[1:]}", "Service": body | service})

    async def check(self, node: str, status: str) -> None:
        check = {"CheckID": "up", "ServiceID": f"llm-{node}", "Status": status}
        await self.put("catalog/register", {"Node": node, "Address": f"10.0.0.{node[1:]}", "Check": check})

    async def leave(self, node: str) -> None:
        await self.put("catalog/deregister", {"Node": node, "ServiceID": f"llm-{node}"})

    @asynccontextmanager
    async def wrong(self, **fault: Any) -> AsyncIterator[None]:
        """Let every answer be wrong in some way; queries that are blocked end."""
        async with self.told({"fault": fault, "wake": True}, {"fault": {}, "wake": True}):
            yield

    @asynccontextmanager
    async def told(self, during: dict[str, Any], after: dict[str, Any]) -> AsyncIterator[None]:
        """Tell it one thing, and another one afterwards."""
        await self.control(**during)
        try:
            yield
        finally:
            with trio.move_on_after(5, shield=True):
                await self.control(**after)


def start_agent(*arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start the stand-in; its process, and its port."""
    process = subprocess.Popen([sys.executable, str(_AGENT), *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@lru_cache
def shared_agent() -> tuple[subprocess.Popen[bytes], int]:
    """The stand-in that most tests use, one after the other."""
    process, port = start_agent()
    atexit.register(stop_agent, process)
    return process, port


def stop_agent(process: subprocess.Popen[bytes]) -> None:
    """Kill a stand-in."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@asynccontextmanager
async def open_double(*arguments: str, own: bool = False) -> AsyncIterator[Double]:
    """The stand-in as good as new, or one with *arguments* or of its own, which is killed at the end."""
    mine = own or bool(arguments)
    process, port = start_agent(*arguments) if mine else shared_agent()
    try:
        transport = httpx.AsyncHTTPTransport(verify=False, limits=httpx.Limits(max_keepalive_connections=0))
        base_url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=base_url, transport=transport, trust_env=False, timeout=10) as client:
            double = Double(port, process, client)
            if not mine:
                await double.control(reset=True)
            yield double
    finally:
        if mine:
            stop_agent(process)


def service_config(address: str, **keys: Any) -> ConsulConfig:
    """What most tests ask for."""
    row = {"endpoint_id": "pool", "model": "m", "url": "http://{address}:{port}/v1"}
    return ConsulConfig(**{"service": "llm", "address": address, **row, **keys})


def open_quick(config: ConsulConfig) -> AbstractAsyncContextManager[ConsulSource]:
    """The source, which asks as fast as it is asked."""
    return open_consul(config, Pace(Random(0), spacing_s=0.0, backoff_first_s=0.02))


def shown(listing: Listing) -> dict[object, object]:
    """What a listing says of each server: its URL, and whether it drains."""
    rows: Sequence[Any] = listing.endpoints
    return {
        (row.url if isinstance(row, EndpointSpec) else row.get("url")): bool(
            row.draining if isinstance(row, EndpointSpec) else row.get("draining")
        )
        for row in rows
    }
