"""Model endpoints over HTTP: the port's ``ask``, ``probe`` and ``read_load``, straight on our connections. No policy.

What every request to an endpoint has in common is prepared once. Whatever goes wrong is an outcome, settings that
cannot work included; messages show neither the key nor other headers.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Mapping
from functools import cached_property

import httpx
import trio

from scavenge.core.chat import ReplyReader, encode_request
from scavenge.core.errorbody import Wording
from scavenge.core.flow import Stream
from scavenge.core.modellist import outcome_of_probe
from scavenge.core.reply import is_from_cache
from scavenge.edge.http.dial import CONNECT_DEADLINE_S, LAG_S, Dialer
from scavenge.edge.http.exchange import Exchange, Pulse
from scavenge.edge.http.faults import HttpFault
from scavenge.edge.http.fields import BadRequest, Field, fields_of
from scavenge.edge.http.load import LoadReader
from scavenge.edge.http.pool import IDLE_EXPIRY_S, ConnectionPool
from scavenge.edge.http.request import Request
from scavenge.edge.http.route import Route, RouteError, route_to
from scavenge.edge.http.tls import shared_context
from scavenge.edge.http.transport import Observe, open_http_client
from scavenge.errors import UsageError
from scavenge.signals import ServerLoad
from scavenge.types import (
    Answer,
    ApiType,
    ChatRequest,
    Endpoint,
    Failed,
    Healthy,
    Lost,
    LostCause,
    Misrouted,
    Ok,
    Outcome,
    Rejected,
)

PROBE_BODY_BYTES = 8 * 2**20
"""How long a list of models may be."""

LINGER_S = 1.0
"""How long the end of a body may take after all that counts has come; a connection that takes longer is closed."""

_PATHS = {ApiType.CHAT_COMPLETIONS: "/chat/completions", ApiType.COMPLETIONS: "/completions"}
_SECRET_HEADER_CHARACTERS = 8


class HttpModelTransport:
    """Makes HTTP clients for endpoints.

    *tls* gives the TLS context when one is first needed; the default is the one the process shares.
    """

    def __init__(
        self,
        *,
        tls: Callable[[], ssl.SSLContext] = shared_context,
        idle_expiry_s: float = IDLE_EXPIRY_S,
        connect_deadline_s: float = CONNECT_DEADLINE_S,
    ) -> None:
        self._tls = tls
        self._idle_expiry_s = idle_expiry_s
        self._connect_deadline_s = connect_deadline_s

    def open_client(self, endpoint: Endpoint) -> HttpModelClient | UnusableClient:
        """A client for one endpoint's present settings; whoever calls this closes it."""
        try:
            route, path = route_to(endpoint.url, endpoint.proxy)
            fields = _fields(endpoint)
            route.request_kind(b"GET", path or b"/", fields).request()
        except (RouteError, BadRequest) as problem:
            return UnusableClient(
                Misrouted(f"{endpoint.url} cannot be asked: {problem}; see its url, key, headers and proxy")
            )
        pool = ConnectionPool(Dialer(route, self._tls, self._connect_deadline_s), self._idle_expiry_s)
        return HttpModelClient(endpoint, pool, path, fields)


class UnusableClient:
    """Stands for an endpoint whose settings cannot make a request."""

    def __init__(self, outcome: Misrouted) -> None:
        self._outcome = outcome

    @property
    def heard_at(self) -> float:
        """Minus infinity: nothing is ever sent, so nothing comes."""
        return -math.inf

    @property
    def reached_at(self) -> float:
        """Minus infinity, too."""
        return -math.inf

    async def ask(self, request: ChatRequest, stream: Stream | None = None) -> Answer:
        """Say what is wrong."""
        await trio.lowlevel.checkpoint()
        return Answer(self._outcome)

    async def probe(self, path: str) -> Healthy | Outcome:
        """Say what is wrong."""
        await trio.lowlevel.checkpoint()
        return self._outcome

    async def read_load(self) -> ServerLoad | None:
        """Nobody can be asked."""
        await trio.lowlevel.checkpoint()
        return None

    @property
    def http(self) -> httpx.AsyncClient:
        """There is none. Raises :class:`scavenge.UsageError`."""
        raise UsageError(self._outcome.message)

    def open_http(self, observe: Observe | None = None) -> httpx.AsyncClient:
        """There is none. Raises :class:`scavenge.UsageError`."""
        raise UsageError(self._outcome.message)

    def close(self) -> None:
        """Nothing is open."""


class HttpModelClient:
    """Talks to one endpoint. Its connections live until :meth:`close`."""

    def __init__(self, endpoint: Endpoint, pool: ConnectionPool, path: bytes, fields: list[Field]) -> None:
        self._endpoint = endpoint
        self._pool = pool
        self._path = path
        self._fields = fields
        asked = _PATHS[endpoint.type]
        json_fields = [*fields, (b"content-type", b"application/json")]
        self._post = pool.dialer.route.request_kind(b"POST", path + asked.encode(), json_fields)
        self._wording = Wording(f"POST {endpoint.url}{asked}", _secrets(endpoint, pool.dialer.route))
        self._load = LoadReader(pool, path, fields)

    @property
    def heard_at(self) -> float:
        """When a byte last came from the server, on any connection (Trio's clock); minus infinity: never."""
        return self._pool.dialer.signs.heard_at

    @property
    def reached_at(self) -> float:
        """When anything last came from its host: bytes, or a connection accepted, refused or ended."""
        return self._pool.dialer.signs.reached_at

    async def ask(self, request: ChatRequest, stream: Stream | None = None) -> Answer:
        """Send one request and wait for the whole reply. What goes wrong is an outcome, never an exception.

        What comes of a streamed reply is noted in *stream* as it comes. Cancellation closes the connection, so that the
        server stops generating.
        """
        body = encode_request(self._endpoint.type, self._endpoint.model, request)
        if isinstance(body, Rejected):
            await trio.lowlevel.checkpoint()
            return Answer(body)
        with trio.CancelScope() as silence:
            pulse = Pulse(silence, request.idle_timeout_s, from_sending=request.stream)
            return await self._exchange(self._post.request(body), pulse, stream)
        late = trio.current_time() - silence.deadline > LAG_S  # this process was busy: it blames nobody
        what = f"{self._endpoint.url}: not a byte for {request.idle_timeout_s:g} s (idle_timeout)"
        return Answer(Lost(what, LostCause.LATE if late else LostCause.SILENT), pulse.first_byte_s)

    async def probe(self, path: str) -> Healthy | Outcome:
        """Ask ``GET {url}{path}`` whether the server is there and lists the model; the caller sets the deadline."""
        path = f"/{path.lstrip('/')}"
        wording = Wording(f"GET {self._endpoint.url}{path}", self._wording.secrets)
        try:
            target = self._path + httpx.URL(path).raw_path
        except httpx.InvalidURL:
            await trio.lowlevel.checkpoint()
            return Misrouted(f"{wording.tried}: the path cannot be part of a URL; see health.path")
        request = self._pool.dialer.route.request_kind(b"GET", target, self._fields).request()
        with trio.CancelScope() as scope:
            try:
                return await self._probe(request, Pulse(scope), wording)
            except HttpFault as fault:
                return fault.told(wording)
        raise AssertionError("a pulse without a limit never fires")

    async def read_load(self) -> ServerLoad | None:
        """The server's own figures, as far as it tells any; ``None``: it tells none. The caller sets the deadline."""
        return await self._load.read()

    @cached_property
    def http(self) -> httpx.AsyncClient:
        """An httpx client over the same connections, for requests of the user's own."""
        return self.open_http()

    def open_http(self, observe: Observe | None = None) -> httpx.AsyncClient:
        """An httpx client over the same connections that tells *observe* how its exchanges end."""
        return open_http_client(self._endpoint, self._pool, self._wording, observe)

    def close(self) -> None:
        """Close the idle connections at once; those in use close when their exchange ends. Never waits."""
        self._pool.close()

    async def _exchange(self, request: Request, pulse: Pulse, stream: Stream | None) -> Answer:
        try:
            exchange = await self._pool.start(request, pulse)
        except HttpFault as fault:
            return Answer(fault.told(self._wording), pulse.first_byte_s)
        try:
            headers = exchange.head.text()
            outcome = await self._read(exchange, headers, pulse, stream)
        finally:
            exchange.close()
        return Answer(outcome, pulse.first_byte_s, isinstance(outcome, Ok) and is_from_cache(headers))

    async def _read(
        self, exchange: Exchange, headers: Mapping[str, str], pulse: Pulse, stream: Stream | None
    ) -> Outcome:
        reader = ReplyReader(self._wording)
        reader.start(exchange.head.status, headers, time.time())
        noted = 0
        try:
            while not reader.over and (data := await exchange.read()):
                reader.feed(data)
                if stream is not None and (pieces := reader.pieces) != noted:
                    stream.came(pulse.received_at, pieces - noted)
                    noted = pieces
        except HttpFault as fault:
            return reader.cut(str(fault), fault.cause)
        if reader.over:
            pulse.stop()
            await _linger(exchange)
        return reader.finish()

    async def _probe(self, request: Request, pulse: Pulse, wording: Wording) -> Healthy | Outcome:
        exchange = await self._pool.start(request, pulse)
        try:
            body = await exchange.read_whole(PROBE_BODY_BYTES)
        finally:
            exchange.close()
        if body is None:
            return Failed(f"{wording.tried}: the reply is longer than {PROBE_BODY_BYTES} bytes")
        head = exchange.head
        return outcome_of_probe(self._endpoint.model, head.status, head.text(), body, wording, time.time())


async def _linger(exchange: Exchange) -> None:
    """Read the little that may follow what counts, so that the connection can be used again."""
    with trio.move_on_after(LINGER_S):
        try:
            await exchange.read()
        except HttpFault:
            return


def _fields(endpoint: Endpoint) -> list[Field]:
    """The headers of every request. Raises :class:`BadHeader`."""
    headers = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "scavenge"}
    if endpoint.secret is not None:
        headers["authorization"] = f"Bearer {endpoint.secret}"
    headers.update({name.lower(): value for name, value in endpoint.headers.items()})
    headers.pop("content-type", None)
    return fields_of(headers)


def _secrets(endpoint: Endpoint, route: Route) -> tuple[str, ...]:
    """What must not be shown: the key, the words of longer headers, the proxy's password."""
    secrets = [] if endpoint.secret is None else [endpoint.secret]
    for value in endpoint.headers.values():
        secrets += [word for word in [value, *value.split()] if len(word) >= _SECRET_HEADER_CHARACTERS]
    return (*secrets, *(() if route.proxy is None else route.proxy.secrets))
