"""What the tests of the three clouds have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import attrs
import httpx
import pytest
from gpucloud_double import TOKEN, Double, Machine, prime_pod, runpod_pod, vast_instance
from scavenge_gpucloud.client import ApiClient
from scavenge_gpucloud.clouds import PRIME, RUNPOD, VAST, Cloud
from scavenge_gpucloud.config import CloudConfig, PrimeConfig, RunPodConfig, VastConfig
from scavenge_gpucloud.pace import Pace
from scavenge_gpucloud.source import CloudSource, open_cloud

FAST = Pace(list_gap_s=0.0, page_gap_s=0.0, backoff_first_s=0.01, backoff_max_s=0.05)
"""Nothing waits for long, and nobody is given up because this machine is busy."""
HURRIED = attrs.evolve(FAST, list_within_s=0.4, answer_within_s=0.2)
"""Only for clouds that do not answer."""


@attrs.frozen
class Case:
    """A cloud, how it is configured, and how it tells of a machine."""

    cloud: Cloud
    config: type[CloudConfig]
    shown: Callable[[Machine], dict[str, Any]]
    prefix: str = ""
    """Of the path of its API in the double."""

    def template(self, **keys: Any) -> CloudConfig:
        text = {"endpoint_id": "pool", "model": "m", "url": "http://{address}:{port.8000}/v1"}
        return self.config(**{**text, **keys})

    def at(self, double: Double, **keys: Any) -> CloudConfig:
        return self.template(api_url=double.url + self.prefix, token_var="GPUCLOUD_TEST_KEY", **keys)

    @asynccontextmanager
    async def source(self, double: Double, pace: Pace = FAST, **keys: Any) -> AsyncIterator[CloudSource]:
        async with open_cloud(self.cloud, self.at(double, **keys), pace) as source:
            yield source


CASES = {
    "runpod": Case(RUNPOD, RunPodConfig, runpod_pod, "/v1"),
    "vast": Case(VAST, VastConfig, vast_instance),
    "prime": Case(PRIME, PrimeConfig, prime_pod),
}
each_cloud = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def client(handler: Callable[..., Any], pace: Pace | None = None) -> ApiClient:
    """A client whose requests go to a function."""

    def connect() -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return httpx.AsyncClient(transport=httpx.MockTransport(handler), headers=headers)

    return ApiClient("Cloud", "https://api.example.com", "KEY", connect, pace or Pace(), Random(1))


async def get(api: ApiClient, path: str = "pods", **query: str) -> object:
    async with api.connect() as http:
        return await api.get(http, path, query)


def urls(listing: Any) -> set[str]:
    return {row.url for row in listing.endpoints}
