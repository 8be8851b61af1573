"""Connecting: addresses (all of them, a little apart), the proxy's tunnel, TLS; one deadline over it all.

The deadline is ``CONNECT_DEADLINE_S`` and ``CROWD_S`` more for each connection to the same endpoint that is being made
already: a thousand at once fill the backlog of a small server, and it is not dead for dropping some. A deadline that
passes is silence. When it fires late, this process was busy elsewhere and might not have seen the answer: then nobody
is blamed.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

import trio

from scavenge.edge.http.channel import Channel, PlainChannel, TlsChannel
from scavenge.edge.http.faults import ConnectFault, connect_fault
from scavenge.edge.http.route import Route
from scavenge.edge.http.signs import Signs
from scavenge.edge.http.wire import Wire, WireError
from scavenge.types import Lost, LostCause, Misrouted

CONNECT_DEADLINE_S = 10.0
CROWD_S = 0.01
LAG_S = 1.0
"""A deadline that fires later than this after its time says more about this machine than about the endpoint."""


class Dialer:
    """Makes connections along one route."""

    def __init__(
        self,
        route: Route,
        tls: Callable[[], ssl.SSLContext],
        connect_deadline_s: float = CONNECT_DEADLINE_S,
    ) -> None:
        self.route = route
        self._tls = tls
        self._connect_deadline_s = connect_deadline_s
        self.under_way = 0
        """How many connections are being made."""
        self.signs = Signs()
        """When the server was last heard: by this dialer, and by whoever uses its connections."""

    async def dial(self) -> Channel:
        """A fresh connection, owned by the caller. Raises :class:`ConnectFault`. Cancelled, it leaves none behind."""
        deadline_s = self._connect_deadline_s + CROWD_S * self.under_way
        self.under_way += 1
        try:
            with trio.move_on_after(deadline_s) as scope:
                return await self._connect()
        except (OSError, UnicodeError, trio.BrokenResourceError) as error:  # UnicodeError: no host name
            fault = connect_fault(error, self.route.origin)
            if fault.answered:
                self.signs.answered_at = trio.current_time()
            raise fault from error
        finally:
            self.under_way -= 1
        late = trio.current_time() - scope.deadline > LAG_S
        what = f"cannot connect to {self.route.origin}: no answer within {deadline_s:g} s"
        raise ConnectFault(Lost(what, LostCause.LATE if late else LostCause.SILENT))

    async def _connect(self) -> Channel:
        route = self.route
        proxy = route.proxy
        host, port = (route.host, route.port) if proxy is None else (proxy.host, proxy.port)
        stream = await trio.open_tcp_stream(host, port)
        self.signs.answered_at = trio.current_time()
        try:
            if route.scheme == "http":
                return PlainChannel(stream)
            if proxy is not None:
                await _open_tunnel(stream, route)
            secure = trio.SSLStream(stream, self._tls(), server_hostname=route.host, https_compatible=True)
            await secure.do_handshake()
            self.signs.heard_at = trio.current_time()
        except BaseException:
            stream.socket.close()
            raise
        return TlsChannel(secure)


async def _open_tunnel(stream: trio.SocketStream, route: Route) -> None:
    """Ask the proxy to pass bytes on to the endpoint. Raises :class:`ConnectFault` when it does not."""
    wire = Wire()
    await stream.send_all(wire.start(route.tunnel_request()))
    try:
        while wire.head is None:
            wire.feed(await stream.receive_some())
    except WireError as error:
        raise ConnectFault(Lost(f"cannot connect to {route.origin} by its proxy: {error}")) from error
    if wire.tunnels:
        return
    status = wire.head.status
    what = f"the proxy refuses to connect to {route.origin}: HTTP {status}"
    raise ConnectFault(Lost(what) if status >= 500 else Misrouted(f"{what}; see the endpoint's proxy"))
