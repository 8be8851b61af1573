"""Calls to whichever container engine is there now. Knows its versions and deadlines, and nothing of images.

The first call finds the engine and asks which version of its API it speaks. Both are kept until a call is not answered,
so that an engine that starts later, or starts anew as another version, is found by the next call.

Invariant: at most :data:`SHORT_CALLS` connections are made for calls that are answered at once; pulls, loads and saves
are counted by those who ask for them.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import attrs
import httpx
import trio

from scavenge.core.naming import shown
from scavenge.edge.images.engine_wire import LOG, LOOK, Answer, Feed, Reply, Wire, engine_error
from scavenge.edge.images.sockets import Address, find_address
from scavenge.errors import EngineError

CALL_S = 10.0
"""How long a call may take that an engine answers at once."""

SHORT_CALLS = 64
"""How many of them are under way at once: fewer than wait at a socket where Linux keeps few, which is 128."""

NEWEST = (1, 48)
"""The version of the API that is spoken, where the engine speaks it too."""

OLDEST = (1, 41)
"""That of Docker 20.10 and Podman 4.3."""


@attrs.frozen
class Peer:
    """The engine as it was found: where, and what it speaks."""

    address: Address
    version: tuple[int, int]
    is_podman: bool


class EngineCalls:
    """Makes the calls. *named* is the address that ``[images] engine`` has."""

    def __init__(self, named: str | None, environ: Mapping[str, str]) -> None:
        self._named = named
        self._environ = environ
        self._wire = Wire()
        self._short = trio.CapacityLimiter(SHORT_CALLS)
        self._peer: Peer | None = None

    async def ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, *, within_s: float = CALL_S
    ) -> Answer:
        """One call that is answered at once, whatever its status.

        Raises :class:`EngineError`, silent when the engine is not there, or has not answered all within that time.
        """
        async with self._short:
            with trio.move_on_after(within_s):
                async with self.open(method, path, query) as reply:
                    answer = await reply.whole(math.inf)
                if answer.status == 400 and "API version" in answer.message:  # it is another one by now
                    self._peer = None
                return answer
            peer, self._peer = self._peer, None
            address = find_address(self._named, self._environ) if peer is None else peer.address
            raise engine_error(address, f"does not answer within {within_s:g} s", LOOK, silent=True)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        feed: Feed | None = None,
        idle_s: float = math.inf,
    ) -> AsyncIterator[Reply]:
        """A call whose answer comes in the block; leaving it hangs up.

        Raises :class:`EngineError`, silent, when the engine cannot be reached, and what
        :meth:`scavenge.edge.images.engine_wire.Wire.send` raises.
        """
        peer = await self.find()
        major, minor = peer.version
        url = httpx.URL(f"{peer.address.url}/v{major}.{minor}/{path}", params=dict(query or {}))
        fields = {} if feed is None else {"Host": url.netloc.decode(), "Transfer-Encoding": "chunked"}
        request = httpx.Request(method, url, headers={**fields, **(headers or {})}, stream=feed)
        try:
            async with self._wire.send(peer.address, request, idle_s) as reply:
                yield reply
        except EngineError as exc:
            if exc.silent and self._peer is peer:
                self._peer = None
            raise

    async def find(self) -> Peer:
        """The engine. Raises :class:`EngineError` when none is there, or none that can be talked to."""
        await trio.lowlevel.checkpoint()
        if self._peer is not None:
            return self._peer
        address = find_address(self._named, self._environ)
        with trio.move_on_after(CALL_S):
            async with self._wire.send(address, httpx.Request("GET", f"{address.url}/_ping"), math.inf) as reply:
                return self._keep(_peer_of(await reply.whole(math.inf)))
        raise engine_error(address, f"does not answer within {CALL_S:g} s", LOOK, silent=True)

    def _keep(self, found: Peer) -> Peer:
        """Keep the engine that was found, or the one that another call has found meanwhile."""
        if self._peer is None:
            self._peer = found
        return self._peer


def _peer_of(answer: Answer) -> Peer:
    if answer.status != 200:
        what = f"does not say what it is: {answer.message}"
        raise engine_error(answer.address, what, LOOK, silent=answer.status >= 500)
    said = answer.headers.get("Api-Version", "")
    version = re.fullmatch(r"(\d{1,3})\.(\d{1,4})", said)
    if version is None:
        raise engine_error(answer.address, f"is no container engine (its version is {shown(said)})", LOOK)
    newest = min(NEWEST, (int(version[1]), int(version[2])))
    if newest < OLDEST:
        raise engine_error(answer.address, f"speaks API {said} at most", "Docker 20.10 and Podman 4.3 are new enough")
    return Peer(answer.address, newest, "Libpod-Api-Version" in answer.headers)


def refusal(answer: Answer, doing: str) -> EngineError:
    """The error for an answer that says that something cannot be done."""
    return engine_error(answer.address, f"cannot {doing}: {answer.message}", LOG)
