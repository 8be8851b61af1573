"""Reads a server's own figures, wherever it tells them. Waits; which page to read is decided in the core.

The pages lie below the root of the server, which is the API's without a last ``/v1``. They are asked for as everything
else is, key included, since some servers want it; redirects are not followed. A page of more than
:data:`PAGE_BYTES` is one without figures.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Sequence

import attrs
import trio

from scavenge.core.loadpages import LoadPages, Page
from scavenge.core.serverload import is_of_llama_cpp, load_of_metrics, load_of_props, load_of_slots
from scavenge.edge.http.exchange import Pulse
from scavenge.edge.http.faults import HttpFault
from scavenge.edge.http.fields import Field
from scavenge.edge.http.pool import ConnectionPool
from scavenge.edge.http.route import Route
from scavenge.signals import ServerLoad

PAGE_BYTES = 8 * 2**20
SLOTS_STAY_S = 60.0
"""How long the number of slots is taken to stay what it was: a restart may go unseen."""

_READERS = {
    Page.METRICS: load_of_metrics,
    Page.TENSORRT_METRICS: load_of_metrics,
    Page.SLOTS: load_of_slots,
    Page.PROPS: load_of_props,
}


class LoadReader:
    """Reads the figures of one server; :meth:`read` may be cancelled at any time and leaves nothing behind."""

    def __init__(self, pool: ConnectionPool, path: bytes, fields: list[Field]) -> None:
        self._pool = pool
        self._root = path.removesuffix(b"/v1")
        self._fields = fields
        self._pages = LoadPages(is_hosted(pool.dialer.route))
        self._slots: int | None = None
        self._slots_read_at = -math.inf

    async def read(self) -> ServerLoad | None:
        """The figures as they are now; ``None`` when the server tells none, or cannot be asked."""
        await trio.lowlevel.checkpoint()
        try:
            return await self._read(self._pages.to_read(trio.current_time()))
        except HttpFault:
            self._pages.forget()
            self._slots_read_at = -math.inf
            return None

    async def _read(self, pages: Sequence[Page]) -> ServerLoad | None:
        """The figures on the first of some pages that has any. Raises :class:`HttpFault`."""
        status = None
        for page in pages:
            status, body = await self._get(page)
            load = _READERS[page](body) if status == 200 else None
            if load is not None:
                self._pages.on_figures(page)
                return await self._with_slots(load) if is_of_llama_cpp(body) else load
        if status is not None:
            self._pages.on_nothing(trio.current_time(), status)
            self._slots_read_at = -math.inf
        return None

    async def _with_slots(self, load: ServerLoad) -> ServerLoad:
        """The metrics of llama.cpp do not have the number of slots, which is the most that it works on at once."""
        now = trio.current_time()
        if now - self._slots_read_at > SLOTS_STAY_S:
            status, body = await self._get(Page.PROPS)
            props = load_of_props(body) if status == 200 else None
            self._slots, self._slots_read_at = None if props is None else props.slots, now
        return attrs.evolve(load, slots=self._slots)

    async def _get(self, page: Page) -> tuple[int, bytes]:
        """The status and the body of a page. Raises :class:`HttpFault`."""
        kind = self._pool.dialer.route.request_kind(b"GET", self._root + page.value.encode(), self._fields)
        pulse = Pulse(trio.CancelScope())  # without a limit of its own it cancels nothing
        exchange = await self._pool.start(kind.request(), pulse)
        try:
            return exchange.head.status, await exchange.read_whole(PAGE_BYTES) or b""
        finally:
            exchange.close()


def is_hosted(route: Route) -> bool:
    """Whether a server looks like a service on the Internet: TLS on the usual port of a host with a full name."""
    if (route.scheme, route.port) != ("https", 443) or "." not in route.host:
        return False
    try:
        ipaddress.ip_address(route.host)
    except ValueError:
        return True
    return False
