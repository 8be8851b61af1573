"""Model endpoints over HTTP: the port's ``ask``, ``probe`` and ``read_load``, straight on our connections. No policy.

What every request to an endpoint has in common is prepared once. Whatever goes wrong is an outcome, settings that
cannot work included; messages show neither the key nor other headers.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable
from functools import cached_property

import attrs
import httpx
import trio

from scavenge.core.errorbody import Wording
from scavenge.core.flow import Stream
from scavenge.core.modellist import outcome_of_probe
from scavenge.core.outcome import of_another_api
from scavenge.core.reply import is_from_cache
from scavenge.core.request_body import encode_relay, encode_request
from scavenge.edge.http.dial import CONNECT_DEADLINE_S, LAG_S, Dialer
from scavenge.edge.http.exchange import Pulse
from scavenge.edge.http.faults import HttpFault
from scavenge.edge.http.fields import BadRequest, Field, fields_of
from scavenge.edge.http.load import LoadReader
from scavenge.edge.http.pool import IDLE_EXPIRY_S, ConnectionPool
from scavenge.edge.http.reply import Reception
from scavenge.edge.http.request import Request, RequestKind
from scavenge.edge.http.route import Route, RouteError, route_to
from scavenge.edge.http.tls import shared_context
from scavenge.edge.http.transport import Observe, open_http_client
from scavenge.errors import UsageError
from scavenge.runtime.ports import RelayRequest
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

    async def ask(self, request: ChatRequest | RelayRequest, stream: Stream | None = None) -> Answer:
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


@attrs.frozen
class _Api:
    """What requests to one of the protocols have in common."""

    post: RequestKind = attrs.field(repr=False)
    wording: Wording


class HttpModelClient:
    """Talks to one endpoint. Its connections live until :meth:`close`."""

    def __init__(self, endpoint: Endpoint, pool: ConnectionPool, path: bytes, fields: list[Field]) -> None:
        self._endpoint = endpoint
        self._pool = pool
        self._path = path
        self._fields = fields
        self._secrets = _secrets(endpoint, pool.dialer.route)
        self._apis = {api: self._api(asked) for api, asked in _PATHS.items()}
        self._load = LoadReader(pool, path, fields)

    @property
    def heard_at(self) -> float:
        """When a byte last came from the server, on any connection (Trio's clock); minus infinity: never."""
        return self._pool.dialer.signs.heard_at

    @property
    def reached_at(self) -> float:
        """When anything last came from its host: bytes, or a connection accepted, refused or ended."""
        return self._pool.dialer.signs.reached_at

    async def ask(self, request: ChatRequest | RelayRequest, stream: Stream | None = None) -> Answer:
        """Send one request and wait for the whole reply. What goes wrong is an outcome, never an exception.

        What comes of a streamed reply is noted in *stream* as it comes, and handed on where that is asked for.
        Cancellation closes the connection, so that the server stops generating.
        """
        body = self._body_of(request)
        if isinstance(body, Rejected):
            await trio.lowlevel.checkpoint()
            return Answer(body)
        own, sink = self._endpoint.type, None
        asked = own
        if isinstance(request, RelayRequest):
            asked, sink = request.api, request.sink
        api = self._apis[asked]
        with trio.CancelScope() as silence:
            pulse = Pulse(silence, request.idle_timeout_s, from_sending=request.stream)
            answer = await self._exchange(api.post.request(body), Reception(pulse, stream, sink), api.wording)
            return answer if asked is own else attrs.evolve(answer, outcome=of_another_api(answer.outcome))
        late = trio.current_time() - silence.deadline > LAG_S  # this process was busy: it blames nobody
        what = f"{self._endpoint.url}: not a byte for {request.idle_timeout_s:g} s (idle_timeout)"
        return Answer(Lost(what, LostCause.LATE if late else LostCause.SILENT), pulse.first_byte_s)

    async def probe(self, path: str) -> Healthy | Outcome:
        """Ask ``GET {url}{path}`` whether the server is there and lists the model; the caller sets the deadline."""
        path = f"/{path.lstrip('/')}"
        wording = Wording(f"GET {self._endpoint.url}{path}", self._secrets)
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
        return open_http_client(self._endpoint, self._pool, self._apis[self._endpoint.type].wording, observe)

    def close(self) -> None:
        """Close the idle connections at once; those in use close when their exchange ends. Never waits."""
        self._pool.close()

    def _api(self, path: str) -> _Api:
        fields = [*self._fields, (b"content-type", b"application/json")]
        post = self._pool.dialer.route.request_kind(b"POST", self._path + path.encode(), fields)
        return _Api(post, Wording(f"POST {self._endpoint.url}{path}", self._secrets))

    def _body_of(self, request: ChatRequest | RelayRequest) -> bytes | Rejected:
        model = self._endpoint.model
        if isinstance(request, ChatRequest):
            return encode_request(self._endpoint.type, model, request)
        handed_on = request.sink is not None
        return encode_relay(model, request.body, request.defaults, stream=request.stream, handed_on=handed_on)

    async def _exchange(self, request: Request, reception: Reception, wording: Wording) -> Answer:
        pulse = reception.pulse
        try:
            exchange = await self._pool.start(request, pulse)
        except HttpFault as fault:
            return Answer(fault.told(wording), pulse.first_byte_s)
        try:
            headers = exchange.head.text()
            outcome = await reception.read(exchange, headers, wording)
        finally:
            exchange.close()
        return Answer(outcome, pulse.first_byte_s, isinstance(outcome, Ok) and is_from_cache(headers))

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
