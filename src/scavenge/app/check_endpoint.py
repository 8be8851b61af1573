"""Looks at one endpoint as a run would meet it: name, proxy, TLS, key, and one probe, each with a deadline.

What goes wrong is part of the finding; nothing here raises because of an endpoint.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

import trio

from scavenge.core.check_report import EndpointFinding
from scavenge.core.naming import listed, one_line
from scavenge.edge.http.route import Route, RouteError, route_to
from scavenge.edge.http.tls import shared_context
from scavenge.runtime.member import PROBE_WITHIN_S
from scavenge.runtime.ports import ModelTransport
from scavenge.types import Endpoint, Healthy

NAME_WITHIN_S = 5.0
TLS_WITHIN_S = 5.0
NONE = "none"


async def look_at(endpoint: Endpoint, transport: ModelTransport, probe_path: str) -> EndpointFinding:
    """Everything there is to find about an endpoint. Cancelled, it closes its connections."""
    await trio.lowlevel.checkpoint()
    try:
        route, _ = route_to(endpoint.url, endpoint.proxy)
    except RouteError as exc:
        return _finding(endpoint, NONE, "–", "–", "misrouted", False, 0.0, str(exc))
    proxy = NONE if route.proxy is None else f"{route.proxy.host}:{route.proxy.port}"
    addresses = await _addresses(route)
    tls = await _tls(route)
    started_at = trio.current_time()
    outcome, listed_there, said = await _probe(endpoint, transport, probe_path)
    probe_s = trio.current_time() - started_at
    return _finding(endpoint, proxy, addresses, tls, outcome, listed_there, probe_s, said)


def _finding(
    endpoint: Endpoint,
    proxy: str,
    addresses: str,
    tls: str,
    outcome: str,
    listed_there: bool,
    probe_s: float,
    said: str,
) -> EndpointFinding:
    return EndpointFinding(
        endpoint_id=str(endpoint.endpoint_id),
        url=str(endpoint.url),
        model=endpoint.model,
        max_concurrent=endpoint.max_concurrent,
        source=endpoint.source,
        draining=endpoint.draining or endpoint.drain_deadline is not None,
        key=NONE if endpoint.key is None else f"{endpoint.key}, set",
        proxy=proxy,
        addresses=addresses,
        tls=tls,
        outcome=outcome,
        listed=listed_there,
        probe_s=probe_s,
        said=said,
    )


async def _addresses(route: Route) -> str:
    """The addresses of the host that connections go to: the proxy's where there is one."""
    host, port = (route.host, route.port) if route.proxy is None else (route.proxy.host, route.proxy.port)
    with trio.move_on_after(NAME_WITHIN_S):
        await trio.lowlevel.checkpoint()
        try:
            found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        except OSError as exc:
            return f"{host}: {exc.strerror or exc}"
        except UnicodeError:
            return f"{host}: no valid host name"
        return listed(dict.fromkeys(str(entry[4][0]) for entry in found), most=4)
    return f"{host}: no answer within {NAME_WITHIN_S:g} s"


async def _tls(route: Route) -> str:
    """The version of TLS and how long the certificate is good for, or why there is none."""
    await trio.lowlevel.checkpoint()
    if route.scheme != "https":
        return NONE
    if route.proxy is not None:
        return "through the proxy"
    with trio.move_on_after(TLS_WITHIN_S):
        await trio.lowlevel.checkpoint()
        try:
            return await _handshake(route)
        except (OSError, trio.BrokenResourceError) as exc:
            return one_line(f"failed: {exc.__cause__ or exc}", 120)
    return f"no answer within {TLS_WITHIN_S:g} s"


async def _handshake(route: Route) -> str:
    stream = await trio.open_ssl_over_tcp_stream(
        route.host, route.port, ssl_context=shared_context(), https_compatible=True
    )
    async with stream:
        await stream.do_handshake()
        certificate = stream.getpeercert()
        ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
        return f"{stream.version()}, certificate until {ends:%Y-%m-%d}"


async def _probe(endpoint: Endpoint, transport: ModelTransport, path: str) -> tuple[str, bool, str]:
    """What a probe came to: the outcome's name, whether the server lists the model, and what it said."""
    client = transport.open_client(endpoint)
    try:
        with trio.move_on_after(PROBE_WITHIN_S):
            result = await client.probe(path)
            if isinstance(result, Healthy):
                return result.name, result.listed, ""
            return result.name, False, one_line(result.message or "")
    finally:
        client.close()
    return "timeout", False, f"no answer within {PROBE_WITHIN_S:g} s"
