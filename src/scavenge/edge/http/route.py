"""The way to one endpoint: its origin, the proxy in between, and what both want to see in a request. Pure.

No proxy is ever taken from the environment: an endpoint names its own or is reached directly.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import unquote

import attrs
import httpx

from scavenge.edge.http.fields import Field
from scavenge.edge.http.request import Request, RequestKind

_HOST = re.compile(r"[^\s\[\]/@]+")


class RouteError(ValueError):
    """A URL or a proxy that cannot be used."""


@attrs.frozen
class Proxy:
    """An HTTP proxy. ``authorization`` is the value of ``Proxy-Authorization``."""

    host: str
    port: int
    authorization: bytes | None = attrs.field(default=None, repr=False)
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)

    def fields(self) -> tuple[Field, ...]:
        """The header that the proxy asks for, if it asks for one."""
        return () if self.authorization is None else ((b"proxy-authorization", self.authorization),)


@attrs.frozen
class Route:
    """Where connections go. ``authority`` is host and port as they stand in a request."""

    scheme: str
    host: str
    port: int
    authority: bytes
    proxy: Proxy | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port, for messages."""
        return f"{self.scheme}://{self.authority.decode()}"

    def request_kind(self, method: bytes, path: bytes, fields: Iterable[Field]) -> RequestKind:
        """What requests to *path* have in common, the proxy's wishes included."""
        host = (b"host", self.authority)
        if self.proxy is None or self.scheme != "http":
            return RequestKind(method, path, (host, *fields))
        return RequestKind(method, self.origin.encode() + path, (host, *self.proxy.fields(), *fields))

    def tunnel_request(self) -> Request:
        """What the proxy is asked, to pass bytes on to the endpoint (CONNECT, RFC 9110 9.3.6)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        target = f"{host}:{self.port}".encode()
        extra = () if self.proxy is None else self.proxy.fields()
        return RequestKind(b"CONNECT", target, ((b"host", target), *extra)).request()


def route_to(url: str, proxy: str | None) -> tuple[Route, bytes]:
    """The route to the server of *url*, and the path in it. Raises :class:`RouteError`."""
    parsed = _parsed(url, "url", ("http", "https"))
    port = parsed.port or {"http": 80, "https": 443}[parsed.scheme]
    route = Route(parsed.scheme, _host(parsed), port, parsed.netloc, None if proxy is None else _proxy(proxy))
    return route, parsed.raw_path.partition(b"?")[0].rstrip(b"/")


def _proxy(url: str) -> Proxy:
    parsed = _parsed(url, "proxy", ("http",))
    user, password = unquote(parsed.username), unquote(parsed.password)
    if not parsed.userinfo:
        return Proxy(_host(parsed), parsed.port or 80)
    pair = f"{user}:{password}"
    encoded = base64.b64encode(pair.encode())
    return Proxy(_host(parsed), parsed.port or 80, b"Basic " + encoded, (password, pair, encoded.decode()))


def _parsed(url: str, what: str, schemes: tuple[str, ...]) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        raise RouteError(f"the {what} of the endpoint is no valid URL") from None
    if parsed.scheme not in schemes or not _HOST.fullmatch(_host(parsed)):
        raise RouteError(f"the {what} of the endpoint must begin with {' or '.join(s + '://' for s in schemes)}")
    if parsed.port is not None and not 0 < parsed.port < 65536:  # sockets would take the rest of a division
        raise RouteError(f"the port in the {what} of the endpoint is not between 1 and 65535")
    return parsed


def _host(url: httpx.URL) -> str:
    """The host as sockets and certificates know it: without brackets, international names encoded."""
    return url.raw_host.decode("ascii").strip("[]")
