"""The source: reads the list of instances whole, and says which of them are servers.

Everything that it decides is decided elsewhere; here it waits. Knows the API key from its opening on, and tells it to
nobody but the API.
"""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from random import Random

import attrs
import httpx
import trio

from scavenge.plugin import EndpointSpec, Listing, SourceError
from scavenge_gpucloud.client import ApiClient
from scavenge_gpucloud.clouds import Cloud
from scavenge_gpucloud.config import CloudConfig
from scavenge_gpucloud.instance import read_instances, rows
from scavenge_gpucloud.pace import Pace
from scavenge_gpucloud.pages import Item, Moved, Unclear


@attrs.define(eq=False)
class CloudSource:
    """Lists the model servers among the instances of one account."""

    cloud: Cloud
    config: CloudConfig
    client: ApiClient

    async def list_endpoints(self) -> Listing:
        """The servers that run now.

        Raises :class:`SourceError` when the whole list cannot be had within ``list_within_s``. Cancelled, it hangs up.
        """
        within_s = self.client.pace.list_within_s
        try:
            with trio.fail_after(within_s):
                items = await self._read_whole()
        except trio.TooSlowError:
            why = self.client.trouble or "its pages come too slowly"
            raise self.client.error(f"no whole list within {within_s:g} s: {why}") from None
        self.client.leave_alone(self.client.pace.list_gap_s)
        return Listing(self._rows(items), where=self.cloud.service)

    async def _read_whole(self) -> list[Item]:
        async with self.client.connect() as http:
            return await self._read_until_it_stands_still(http)

    async def _read_until_it_stands_still(self, http: httpx.AsyncClient) -> list[Item]:
        moved: Moved | None = None
        for _ in range(self.client.pace.readings):
            try:
                return await self._read_once(http)
            except Moved as exc:
                moved = exc
            except Unclear as exc:
                raise self._unclear(exc) from None
        raise self.client.error(f"its list changed each time it was read: {moved}; it is read again at the next poll")

    async def _read_once(self, http: httpx.AsyncClient) -> list[Item]:
        pages = self.cloud.pages()
        while True:
            pages.take(await self.client.get(http, self.cloud.path, pages.query()))
            if pages.whole:
                return pages.items

    def _rows(self, items: list[Item]) -> list[EndpointSpec]:
        try:
            instances = read_instances(items, self.cloud.read)
        except Unclear as exc:
            raise self._unclear(exc) from None
        config = self.config
        return rows(
            instances,
            config,
            time.time(),
            name_prefix=config.name_prefix,
            statuses=config.statuses,
            drain_before_s=config.drain_before_s,
        )

    def _unclear(self, exc: Unclear) -> SourceError:
        return self.client.error(f"an answer that is not understood: {exc}; is api_url right?")


def opener(cloud: Cloud) -> Callable[[CloudConfig], AbstractAsyncContextManager[CloudSource]]:
    """What opens the sources of one cloud."""

    def open_source(config: CloudConfig) -> AbstractAsyncContextManager[CloudSource]:
        return open_cloud(cloud, config)

    return open_source


@asynccontextmanager
async def open_cloud(cloud: Cloud, config: CloudConfig, pace: Pace | None = None) -> AsyncIterator[CloudSource]:
    """A source that is closed at the end. Raises :class:`SourceError` when there is no API key.

    Proxies are taken from the environment, as for any service on the public internet.
    """
    headers = {
        "Authorization": f"Bearer {api_key(config.token_var, os.environ)}",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": "scavenge-gpucloud",
    }
    tls = await trio.to_thread.run_sync(_tls, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1))
    pace = pace or Pace()

    def connect() -> httpx.AsyncClient:
        return httpx.AsyncClient(
            headers=headers,
            verify=tls,
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=pace.connect_within_s),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=1),
        )

    client = ApiClient(cloud.service, config.api_url, config.token_var, connect, pace, Random())  # noqa: S311  # jitter
    yield CloudSource(cloud, config, client)


@cache
def _tls() -> ssl.SSLContext:
    """The certificates to trust; reading them takes 0.1 s, so once is enough."""
    return httpx.create_ssl_context()


def api_key(variable: str, environ: Mapping[str, str]) -> str:
    """The API key that the variable holds. Raises :class:`SourceError`, which does not show it."""
    key = environ.get(variable, "").strip()
    if not key:
        raise SourceError(
            f"the environment variable {variable} is not set; set it to the API key, or name it in token_var"
        )
    if not re.fullmatch(r"[!-~]+", key):
        raise SourceError(f"the environment variable {variable} holds what no HTTP header can, such as a space")
    return key
