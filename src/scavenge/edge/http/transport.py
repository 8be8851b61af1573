"""The same connections under ``httpx.AsyncClient``, the client that users know.

Ownership: the pool belongs to the model client; closing the ``AsyncClient`` closes nothing. Requests go to the origin
of the endpoint only: the client's headers hold its key. Of httpx's timeouts, ``read`` is honoured (from sending to the
head, and for each piece of the body); connecting has its own deadline, and there is no pool to wait for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeAlias

import httpx
import trio

from scavenge.core.errorbody import Wording
from scavenge.core.outcome import outcome_of_status
from scavenge.edge.http.exchange import Exchange, Pulse
from scavenge.edge.http.faults import ConnectFault, HttpFault
from scavenge.edge.http.fields import OWNED, BadRequest
from scavenge.edge.http.pool import ConnectionPool
from scavenge.edge.http.request import Request
from scavenge.edge.http.wire import Head
from scavenge.errors import UsageError
from scavenge.types import Endpoint, Outcome

Observe: TypeAlias = "Callable[[Outcome | None, float], None]"
"""Told how each exchange ended, and when it had begun (Trio's clock): what went wrong, or ``None`` when the reply came
whole and its status is below 400."""


def open_http_client(
    endpoint: Endpoint, pool: ConnectionPool, wording: Wording, observe: Observe | None = None
) -> httpx.AsyncClient:
    """A client for *endpoint*: its URL is the base, its key and headers are set, no timeouts, redirects or proxies."""
    headers = dict(endpoint.headers)
    if endpoint.secret is not None and "authorization" not in {name.lower() for name in headers}:
        headers["Authorization"] = f"Bearer {endpoint.secret}"
    return httpx.AsyncClient(
        base_url=f"{endpoint.url}/",
        headers=headers,
        transport=ScavengeTransport(pool, wording, observe),
        timeout=None,  # noqa: S113 - the caller's cancel scope is the deadline
        follow_redirects=False,
        trust_env=False,
    )


class ScavengeTransport(httpx.AsyncBaseTransport):
    """Sends httpx's requests over a :class:`ConnectionPool`."""

    def __init__(self, pool: ConnectionPool, wording: Wording, observe: Observe | None = None) -> None:
        self._pool = pool
        self._wording = wording
        self._observe = observe or _nobody

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and wait for the head of the reply.

        Raises :class:`scavenge.UsageError` for a URL of another origin, and httpx's own errors.
        """
        translated, since = await self._translated(request), trio.current_time()
        exchange, read_s = await self._begin(request, translated, since)
        body = _Body(exchange, read_s, self, request, since)
        fields = list(exchange.head.fields)
        return httpx.Response(
            exchange.head.status, headers=fields, stream=body, extensions={"http_version": b"HTTP/1.1"}
        )

    async def _translated(self, request: httpx.Request) -> Request:
        route = self._pool.dialer.route
        if (request.url.scheme, request.url.raw_host.strip(b"[]"), _port(request.url)) != (
            route.scheme,
            route.host.encode(),
            route.port,
        ):
            asked = f"{request.url.scheme}://{request.url.netloc.decode()}"
            raise UsageError(f"this client holds the key of {route.origin}; use one of your own for {asked}")
        fields = [(name, value) for name, value in request.headers.raw if name.lower() not in OWNED]
        body = await request.aread()
        kind = route.request_kind(request.method.encode(), request.url.raw_path, fields)
        try:
            return kind.request(body if body or request.method not in ("GET", "HEAD") else None)
        except BadRequest as problem:
            raise httpx.LocalProtocolError(str(problem), request=request) from problem

    async def _begin(self, request: httpx.Request, ours: Request, since: float) -> tuple[Exchange, float]:
        given = request.extensions.get("timeout", {}).get("read")
        read_s = math.inf if given is None else float(given)
        with trio.CancelScope() as scope:
            try:
                return await self._pool.start(ours, Pulse(scope, read_s)), read_s
            except HttpFault as fault:
                kind = httpx.ConnectError if isinstance(fault, ConnectFault) else httpx.ReadError
                raise kind(self.failed(fault, since), request=request) from None  # the cause may show secrets
        raise httpx.ReadTimeout(f"no byte for {read_s:g} s", request=request)

    def failed(self, fault: HttpFault, since: float) -> str:
        """Report that an exchange that began at *since* came to nothing; return what to say of it."""
        outcome = fault.told(self._wording)
        self._observe(outcome, since)
        return outcome.message

    def answered(self, head: Head, since: float) -> None:
        """Report that a reply came whole, of an exchange that began at *since*."""
        outcome = None
        if head.status >= 400:
            outcome = outcome_of_status(head.status, head.text(), b"", self._wording, time.time())
        self._observe(outcome, since)


class _Body(httpx.AsyncByteStream):
    """The body of one reply."""

    def __init__(
        self,
        exchange: Exchange,
        read_s: float,
        transport: ScavengeTransport,
        request: httpx.Request,
        since: float,
    ) -> None:
        self._exchange = exchange
        self._read_s = read_s
        self._transport = transport
        self._request = request
        self._since = since
        self._told = False  # the end has been reported

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        with trio.move_on_after(self._read_s):
            data = await self._read()
            if not data:
                self._tell_end()
                raise StopAsyncIteration
            return data
        raise httpx.ReadTimeout(f"no byte for {self._read_s:g} s", request=self._request)

    async def aclose(self) -> None:
        """Give the connection back, or close it when the body was not read to its end."""
        self._exchange.close()

    async def _read(self) -> bytes:
        try:
            return await self._exchange.read()
        except HttpFault as fault:
            self._told = True
            raise httpx.ReadError(self._transport.failed(fault, self._since), request=self._request) from None

    def _tell_end(self) -> None:
        if not self._told:
            self._told = True
            self._transport.answered(self._exchange.head, self._since)


def _nobody(outcome: Outcome | None, since: float) -> None:
    """Nobody listens."""


def _port(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)
