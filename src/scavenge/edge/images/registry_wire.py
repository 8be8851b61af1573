"""Requests to one registry's host, and what went wrong with them as the end of a delivery.

Decides which scheme is spoken, where a request may go, and how long silence may last. Knows nothing of repositories or
of who may do what.

Invariants: a host that is not this machine is never spoken to over plain http. A reply is closed by whoever had it
opened, on every way out.
"""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress

import attrs
import httpx
import trio

from scavenge.core.images.distribution import error_text, pause_s
from scavenge.core.images.said import end_of
from scavenge.core.naming import one_line
from scavenge.edge.http.tls import shared_context
from scavenge.errors import leaves
from scavenge.images import Broken, DeliveryEnd, Missing

CONNECT_S = 10.0
IDLE_S = 120.0
"""How long a registry may say nothing, or take nothing, in the middle of something."""
TLS_HERE_S = 2.0
"""How long a server on this machine has for a TLS handshake until it is taken to speak plain http."""
ERROR_MOST_BYTES = 65536
HUB = "docker.io"
HUB_HOST = "registry-1.docker.io"
"""Where the images are whose names begin with ``docker.io``."""
SENT_BYTES = 2**17
CLOSE_S = 2.0
"""How long closing a connection may take."""

_UNKNOWN = ("MANIFEST_UNKNOWN", "NAME_UNKNOWN", "BLOB_UNKNOWN", "NOT_FOUND")
"""What a registry says about what it does not have (distribution specification, error codes; the last is Harbor's)."""


class RegistryFault(Exception):
    """A registry did not do what it was asked. ``end`` says what that means for a delivery, ``status`` what it was."""

    def __init__(self, end: DeliveryEnd, status: int | None = None) -> None:
        super().__init__(getattr(end, "why", ""))
        self.end = end
        self.status = status


@attrs.define(eq=False)
class Wire:
    """The way to one registry. ``host`` is the registry as it is called in the names of images."""

    host: str
    client: httpx.AsyncClient
    _scheme: str = ""
    """That of a registry on this machine, once it has answered."""
    _looking: trio.Lock = attrs.field(factory=trio.Lock)

    async def base(self) -> str:
        """The beginning of the registry's addresses: ``https://registry.example:5000``.

        A registry on this machine is tried with https first, and spoken to in plain http where it does not take that.
        """
        await trio.lowlevel.checkpoint()
        if not is_here(self.host):
            return f"https://{HUB_HOST if self.host == HUB else self.host}"
        async with self._looking:
            return f"{self._scheme or await self._scheme_here()}://{self.host}"

    async def _scheme_here(self) -> str:
        request = self.client.build_request("GET", f"https://{self.host}/v2/", timeout=TLS_HERE_S)
        try:
            response = await self.client.send(request, stream=True)
        except httpx.HTTPError as exc:
            return "http" if _certificate_error(exc) is None else "https"
        async with closing(Reply(self, response)):
            return "https"

    async def send(
        self,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        content: bytes | None = None,
        idle_s: float = IDLE_S,
    ) -> Reply:
        """Send a request. The body of the reply is not read yet; whoever calls this closes it with :func:`closing`.

        Raises :class:`RegistryFault`.
        """
        self._check(url)
        timeout = httpx.Timeout(idle_s, connect=CONNECT_S, pool=None)
        with self.faults():
            fields = {"accept-encoding": "identity", **headers}
            request = self.client.build_request(method, url, headers=fields, content=content, timeout=timeout)
            if content is not None:
                request.stream = _Content(content)
            response = await self.client.send(request, stream=True)
        if _netloc(url) == self.host:
            self._scheme = url.scheme
        return Reply(self, response)

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Tell what httpx raises as :class:`RegistryFault`."""
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise RegistryFault(Broken(f"{self.host}: {_words(exc)}")) from exc

    def _check(self, url: httpx.URL) -> None:
        """Raise :class:`RegistryFault` for an address that nothing may be sent to."""
        if url.scheme != "https" and not (url.scheme == "http" and is_here(_netloc(url))):
            raise RegistryFault(Broken(f"{self.host}: it leads to {url.scheme}://{url.host}, which is not https"))


@asynccontextmanager
async def open_wire(host: str) -> AsyncIterator[Wire]:
    """The way to a registry while the block runs; nothing is sent yet.

    Proxies are those of the environment, but for a registry on this machine. Raises :class:`RegistryFault` for a proxy
    that cannot be used.
    """
    tls = await trio.to_thread.run_sync(shared_context)
    try:
        client = httpx.AsyncClient(
            verify=tls,
            trust_env=not is_here(host),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=3.0),
            headers={"user-agent": "scavenge"},
        )
    except (ValueError, ImportError, httpx.InvalidURL) as exc:
        what = f"the proxy of the environment cannot be used: {one_line(str(exc))}"
        raise RegistryFault(Broken(f"{host}: {what}; correct HTTPS_PROXY or ALL_PROXY")) from exc
    try:
        yield Wire(host, client)
    finally:
        with trio.move_on_after(CLOSE_S, shield=True):
            await client.aclose()


@attrs.define(eq=False)
class Reply:
    """A reply. Its body comes piece by piece, and may be left unread."""

    _wire: Wire
    _response: httpx.Response
    _pieces: AsyncIterator[bytes] | None = None

    @property
    def status(self) -> int:
        """The status; redirects are not followed."""
        return self._response.status_code

    @property
    def is_success(self) -> bool:
        """Whether the status is one of success."""
        return self._response.is_success

    @property
    def headers(self) -> httpx.Headers:
        """The fields, by names in any case."""
        return self._response.headers

    @property
    def url(self) -> httpx.URL:
        """What was asked for."""
        return self._response.request.url

    async def piece(self) -> bytes:
        """The next piece of the body, as it came; empty: that was all. Raises :class:`RegistryFault`."""
        if self._pieces is None:
            self._pieces = self._response.aiter_raw()
        with self._wire.faults():
            return await anext(self._pieces, b"")

    async def read(self, most: int) -> bytes:
        """The whole body. Raises :class:`RegistryFault`, also for one longer than *most*."""
        data = bytearray()
        while piece := await self.piece():
            data += piece
            if len(data) > most:
                raise RegistryFault(Broken(f"{self._wire.host}: an answer of more than {most} bytes"))
        return bytes(data)

    async def fault(self) -> RegistryFault:
        """What a reply that is no success means, by its status, its headers and its body."""
        data = b""
        with suppress(RegistryFault), trio.move_on_after(CONNECT_S):
            data = await self.read(ERROR_MOST_BYTES)
        said, host = error_text(data), self._wire.host
        why = f"{host}: {said or f'it answers with status {self.status}'}"
        if self.status == 404 and (said.startswith(_UNKNOWN) or self._response.request.method == "HEAD"):
            return RegistryFault(Missing(why), self.status)
        return RegistryFault(end_of(self.status, why, pause_s(self.headers, time.time())), self.status)

    async def hang_up(self) -> None:
        """Close the connection, unless all has been read."""
        if self._pieces is not None and not self._response.is_closed:
            with trio.move_on_after(0, shield=True), suppress(httpx.HTTPError):
                async for _ in self._pieces:  # so that httpx's generators end now, and not when they are collected
                    pass
        await self._response.aclose()


@attrs.frozen(eq=False)
class _Content(httpx.AsyncByteStream):
    """The body of a request. httpx's own is a generator, which would be left open where a request ends early.

    It goes in small pieces, each of which has the whole time that a registry may take nothing.
    """

    data: bytes

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _Sending(memoryview(self.data))


@attrs.define(eq=False)
class _Sending:
    left: memoryview

    def __aiter__(self) -> _Sending:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        piece, self.left = self.left[:SENT_BYTES], self.left[SENT_BYTES:]
        if not piece:
            raise StopAsyncIteration
        return bytes(piece)


@asynccontextmanager
async def closing(reply: Reply) -> AsyncIterator[None]:
    """Close a reply after the block, read or not, also where that is cancelled."""
    try:
        yield
    finally:
        with trio.move_on_after(CLOSE_S, shield=True):
            await reply.hang_up()


def is_here(host: str) -> bool:
    """Whether a host, perhaps with a port, is this machine by its name."""
    name = host.rpartition(":")[0] if host[-1:].isdigit() and ":" in host and not host.endswith("]") else host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    """Whether two addresses are of one server, which may see the same secrets."""
    return (one.scheme, one.host, _port(one)) == (other.scheme, other.host, _port(other))


def _port(url: httpx.URL) -> int | None:
    return url.port or {"https": 443, "http": 80}.get(url.scheme)


def _netloc(url: httpx.URL) -> str:
    return url.netloc.decode("ascii", "replace")


def _certificate_error(error: BaseException) -> ssl.SSLCertVerificationError | None:
    return next((cause for cause in _causes(error) if isinstance(cause, ssl.SSLCertVerificationError)), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it comes from, the outermost first."""
    at: BaseException | None = error
    while at is not None:
        yield from leaves(at)
        at = at.__cause__ or at.__context__


def _words(error: Exception) -> str:
    """What a failed request came to, in the words of its innermost cause."""
    if (bad := _certificate_error(error)) is not None:
        return f"its certificate is not trusted: {bad.verify_message}; name its authority's file in SSL_CERT_FILE"
    match error:
        case httpx.ConnectTimeout():
            return f"no connection within {CONNECT_S:g} s"
        case httpx.ReadTimeout() | httpx.WriteTimeout():
            return "it has been silent for too long"
    texts = [str(cause) for cause in _causes(error) if isinstance(cause, OSError) and str(cause)]
    return one_line(texts[-1] if texts else str(error) or type(error).__name__, 200)
