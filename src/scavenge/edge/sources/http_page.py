"""The way to a page: requests and redirects, on the connections that models are asked by.

So proxies, TLS and messages are those of endpoints, a cancelled fetch closes its socket at once, and heads and bodies
are bounded. Each request has a connection of its own, since minutes may lie between two fetches.

Invariant: the token and the headers of the configuration go to the origin of its URL only, and not even there once a
redirect has led elsewhere.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping

import attrs
import httpx
import trio

from scavenge.core.documents import DocumentError
from scavenge.core.errorbody import Wording
from scavenge.core.listing_reply import MOST_REDIRECTS, REDIRECTS, Validators, redirected
from scavenge.core.urls import origin_of, page_url
from scavenge.edge.http.dial import Dialer
from scavenge.edge.http.exchange import Exchange, Pulse
from scavenge.edge.http.fields import fields_of
from scavenge.edge.http.pool import ConnectionPool
from scavenge.edge.http.request import RequestKind
from scavenge.edge.http.route import Route, route_to
from scavenge.edge.sources.http_config import HttpSourceConfig
from scavenge.listings import Listing

MOST_BYTES = 16 * 2**20
"""How long a listing may be."""

_SECRET_CHARACTERS = 8  # a shorter word in a header is no secret, and taking it out would shred messages


@attrs.frozen
class Page:
    """A reply. ``data`` is there with status 200 only."""

    url: str
    status: int
    headers: Mapping[str, str] = attrs.field(repr=False)
    data: bytes = attrs.field(default=b"", repr=False)


@attrs.frozen
class Kept:
    """A good listing, whose page it was, and what tells whether that is still the same."""

    url: str
    validators: Validators
    listing: Listing


class Way:
    """Leads to the page that is configured."""

    def __init__(self, config: HttpSourceConfig, token: str | None, tls: Callable[[], ssl.SSLContext]) -> None:
        self._config = config
        self._tls = tls
        self._own_headers = {name.lower(): value for name, value in config.headers.items()}
        if token is not None:
            self._own_headers["authorization"] = f"Bearer {token}"
        self.wording = Wording(secrets=_secrets(config, token))

    async def fetch(self, kept: Kept | None) -> Page:
        """The page at the end of the redirects, asked for on the condition that it is not the one that is *kept*.

        Raises :class:`DocumentError` and :class:`scavenge.edge.http.faults.HttpFault`.
        """
        url, trusted = page_url(self._config.url), True
        for _ in range(MOST_REDIRECTS + 1):
            conditions = kept.validators.conditions() if kept is not None and kept.url == url else {}
            page = await self._get(url, {**(self._own_headers if trusted else {}), **conditions})
            if page.status not in REDIRECTS:
                return page
            target = redirected(url, page.headers)
            trusted = trusted and origin_of(target) == origin_of(url)
            url = target
        raise DocumentError(f"more than {MOST_REDIRECTS} redirects; set `url` to where they end")

    async def _get(self, url: str, headers: Mapping[str, str]) -> Page:
        route, _ = route_to(url, self._config.proxy)
        pool = ConnectionPool(Dialer(route, self._tls))
        try:
            exchange = await pool.start(_request_kind(route, url, headers).request(), Pulse(trio.CancelScope()))
            try:
                return await _page_of(url, exchange)
            finally:
                exchange.close()
        finally:
            pool.close()


def _request_kind(route: Route, url: str, headers: Mapping[str, str]) -> RequestKind:
    every = {
        "accept": "application/json, application/toml, text/plain;q=0.5, */*;q=0.1",
        "user-agent": "scavenge",
        "cache-control": "no-cache",  # a cache on the way asks the server whether its copy is still right
        **headers,
        "accept-encoding": "identity",
    }
    return route.request_kind(b"GET", httpx.URL(url).raw_path, fields_of(every))


async def _page_of(url: str, exchange: Exchange) -> Page:
    head = exchange.head
    if head.status != 200:
        await trio.lowlevel.checkpoint()
        return Page(url, head.status, head.text())
    data = await exchange.read_whole(MOST_BYTES)
    if data is None:
        raise DocumentError(f"longer than {MOST_BYTES // 2**20} MiB, so it is no listing; see `url`")
    return Page(url, head.status, head.text(), data)


def _secrets(config: HttpSourceConfig, token: str | None) -> tuple[str, ...]:
    """What must not be shown: the token, the words of longer headers, the proxy's password."""
    words = [word for value in config.headers.values() for word in (value, *value.split())]
    secrets = [word for word in words if len(word) >= _SECRET_CHARACTERS]
    proxy = route_to(config.url, config.proxy)[0].proxy
    return (*secrets, *(() if token is None else (token,)), *(() if proxy is None else proxy.secrets))
