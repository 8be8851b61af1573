"""The way to the files of an HTTP store: requests and redirects, over httpx, since uploads are streams.

One client a store, without limits of its own (a cancelled wait inside of httpx's pool loses a place in it for good),
with the proxies of the environment. Timeouts are of silence, never of a whole transfer.

Invariant: the token and the headers of the configuration go to the origin of the configured URL only, and not even
there once a redirect has led elsewhere. No message has a secret, or the query of a URL.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeAlias
from urllib.parse import quote

import attrs
import httpx
import trio

from scavenge.core.documents import DocumentError
from scavenge.core.errorbody import Wording
from scavenge.core.listing_reply import MOST_REDIRECTS, REDIRECTS, redirected
from scavenge.core.outcome import retry_after_s
from scavenge.core.urls import origin_of
from scavenge.edge.http.tls import shared_context
from scavenge.errors import StoreError

IDLE_S = 120.0
"""How long a server may say nothing, or take nothing."""
TAKEN_IN_S = 600.0
"""The same of a server that has a whole upload, which some put together from parts, or scan."""
CONNECT_S = 30.0
KEPT_S = 2.0
"""How long a connection is kept: less than the 5 s after which many servers close it."""
CLOSED_WITHIN_S = 2.0

_KEEPS_METHOD = frozenset({307, 308})
"""RFC 9110, section 15.4: after the others a client may go on with GET, which uploads nothing."""
_REMEDIES = {
    401: "it wants a token, or refuses the one that it got; see `token_var` and `headers`",
    403: "not allowed with what was sent (some stores say so of what is not there); see `token_var` and `headers`",
    404: "there is no such place; see `url`",
    405: "it does not take uploads this way; see `upload`, or upload to another URL of the same files",
    407: "the proxy wants a name and a password; set them in HTTPS_PROXY or HTTP_PROXY",
    409: "the folder is not there; make it at the server, or see `url`",
    411: "it wants uploads another way; see `upload`",
    413: "the file is too large for it; raise its limit (nginx: client_max_body_size)",
    501: "it does not take uploads this way; see `upload`, or upload to another URL of the same files",
    507: "there is no room; make some at the server",
}
_AGAIN = frozenset({408, 425, 429})

Content: TypeAlias = "Callable[[], AsyncIterator[bytes]]"
"""Gives the body of a request, afresh for each time that it is sent."""

_HEADERS = {"user-agent": "scavenge", "accept": "*/*", "accept-encoding": "identity"}


class Cut(Exception):
    """The connection broke, or the server failed: the same request may well be answered. The text says what it was."""


@attrs.frozen(eq=False)
class _Body(httpx.AsyncByteStream):
    """The body of a request."""

    pieces: AsyncIterator[bytes]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.pieces


@attrs.define(eq=False)
class Reply:
    """A reply; its body may be left unread."""

    _way: Way
    _name: str
    _response: httpx.Response
    _body: AsyncIterator[bytes] | None = None

    @property
    def status(self) -> int:
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        return self._response.headers

    async def read(self) -> bytes | None:
        """The next piece of the body as it came; ``None``: that was all. Raises :class:`Cut`."""
        if self._body is None:
            self._body = aiter(self._response.aiter_raw())
        with self._way.told(self._name):
            return await anext(self._body, None)

    async def hang_up(self) -> None:
        """Close the connection, unless all has been read."""
        if self._body is not None and not self._response.is_closed:
            await self._response.extensions["network_stream"].aclose()
            with suppress(httpx.HTTPError, httpx.StreamError, StopAsyncIteration):
                while True:  # so that httpx's generators end here, and not when they are collected
                    await anext(self._body)
        await self._response.aclose()


@attrs.define(eq=False)
class Way:
    """Leads to the files of a store."""

    base: str
    """The configured URL, without a slash at its end."""
    own_headers: Mapping[str, str] = attrs.field(repr=False)
    client: httpx.AsyncClient
    wording: Wording

    def url(self, name: str) -> str:
        """The URL of a file."""
        return f"{self.base}/{quote(name)}"

    @asynccontextmanager
    async def reply(
        self,
        method: str,
        name: str,
        headers: Mapping[str, str],
        content: Content | None = None,
    ) -> AsyncIterator[Reply]:
        """The reply at the end of the redirects. Raises :class:`Cut` and :class:`StoreError`."""
        with self.told(name):
            response = await self._follow(method, self.url(name), headers, content)
        reply = Reply(self, name, response)
        try:
            yield reply
        finally:
            with trio.move_on_after(CLOSED_WITHIN_S, shield=True):
                await reply.hang_up()

    @contextmanager
    def told(self, name: str) -> Iterator[None]:
        """Raise what httpx raises as :class:`Cut` or :class:`StoreError`."""
        try:
            yield
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError) as exc:
            raise self.error(name, _said(exc)) from None
        except (httpx.TransportError, httpx.StreamError) as exc:
            raise Cut(self.wording.line(_said(exc))) from None
        except httpx.HTTPError as exc:
            raise self.error(name, _said(exc)) from None
        except DocumentError as exc:
            raise self.error(name, str(exc)) from None

    async def _follow(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: Content | None,
    ) -> httpx.Response:
        trusted = True
        for _ in range(MOST_REDIRECTS + 1):
            every = {**_HEADERS, **(self.own_headers if trusted else {}), **headers}
            patience = _patience(IDLE_S if content is None else TAKEN_IN_S)
            request = self.client.build_request(method, url, headers=every, timeout=patience)
            if content is not None:
                request.stream = _Body(content())  # httpx would wrap it in a generator, and leave that open
            response = await self.client.send(request, stream=True)
            if response.status_code not in (REDIRECTS if method == "GET" else _KEEPS_METHOD):
                return response
            await Reply(self, "", response).hang_up()
            target = redirected(url, response.headers)
            trusted = trusted and origin_of(target) == origin_of(url)
            url = target
        raise DocumentError(f"more than {MOST_REDIRECTS} redirects; set `url` to where they end")

    def error(self, name: str, what: str, retry_after_s: float | None = None) -> StoreError:
        """What is told of a file."""
        return StoreError(self.wording.line(f"{self.url(name)}: {what}"), retry_after_s=retry_after_s)

    def refusal(self, name: str, reply: Reply) -> StoreError | Cut:
        """What a status says that is none of those that were hoped for."""
        status = reply.status
        pause_s = retry_after_s(reply.headers, time.time())
        if status in REDIRECTS:
            return self.error(name, f"HTTP {status}: it redirects uploads; set `url` to where they are taken")
        if pause_s is not None or status == 429:
            return self.error(name, f"HTTP {status}: it is asked too often, or has too much to do", pause_s or 0.0)
        if status in _AGAIN or (status >= 500 and status not in _REMEDIES):
            return Cut(f"HTTP {status}, a fault of the server")
        return self.error(name, f"HTTP {status}: {_REMEDIES.get(status, 'neither the file nor a reason; see `url`')}")


@asynccontextmanager
async def open_way(url: str, own_headers: Mapping[str, str]) -> AsyncIterator[Way]:
    """A way to the files below *url*; nothing is asked yet.

    Raises :class:`StoreError` for proxies in the environment that cannot be used.
    """
    context = await trio.to_thread.run_sync(shared_context)  # reads all certificates when it is the first
    try:
        client = httpx.AsyncClient(
            verify=context,
            trust_env=True,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEPT_S),
        )
    except (ValueError, ImportError, httpx.InvalidURL):
        what = "a proxy that cannot be used; see HTTPS_PROXY, HTTP_PROXY and ALL_PROXY"
        raise StoreError(f"the environment names {what}") from None
    secrets = tuple(word for value in own_headers.values() for word in (value, *value.split()) if len(word) >= 8)
    try:
        yield Way(url.rstrip("/"), own_headers, client, Wording(secrets=secrets))
    finally:
        with trio.move_on_after(CLOSED_WITHIN_S, shield=True):
            await client.aclose()


def _patience(read_s: float) -> httpx.Timeout:
    return httpx.Timeout(connect=CONNECT_S, read=read_s, write=IDLE_S, pool=None)


def _said(exc: Exception) -> str:
    """What went wrong, without the URL, which may be a redirect's with a secret."""
    match exc:
        case httpx.ConnectTimeout():
            return f"no connection within {CONNECT_S:g} s"
        case httpx.TimeoutException():
            return "it has been silent for too long"
        case httpx.ProxyError():
            return f"the proxy refuses: {exc}; see HTTPS_PROXY and HTTP_PROXY"
        case _:
            return str(exc) or type(exc).__name__
