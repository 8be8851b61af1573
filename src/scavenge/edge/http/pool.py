"""The connections of one endpoint: a stack of idle ones, no queue and no limit; how many are in use, the slots decide.

The one used last is used first, so that few stay warm and the others expire. Idle ones are kept for ``IDLE_EXPIRY_S``:
uvicorn (vLLM, SGLang) and llama.cpp close theirs after 5 s, and a request that crosses such a close on its way is lost;
staying well below leaves that to slow networks. There is no task: expired ones are closed at the next use.

A connection that was used before and ends before a byte of the reply is replaced once by a fresh one: that says only
that it was old. A fresh one that does the same is a failure of the endpoint.
"""

from __future__ import annotations

from collections import deque

import trio

from scavenge.edge.http.dial import Dialer
from scavenge.edge.http.exchange import Connection, Exchange, Pulse
from scavenge.edge.http.faults import NoReply
from scavenge.edge.http.request import Request

IDLE_EXPIRY_S = 3.0


class ConnectionPool:
    """Lends connections along one route, each for one exchange."""

    def __init__(self, dialer: Dialer, idle_expiry_s: float = IDLE_EXPIRY_S) -> None:
        self.dialer = dialer
        self._idle_expiry_s = idle_expiry_s
        self._idle: deque[tuple[float, Connection]] = deque()  # since when; the longest idle first
        self._closed = False

    @property
    def idle(self) -> int:
        """How many connections are idle."""
        return len(self._idle)

    async def start(self, request: Request, pulse: Pulse) -> Exchange:
        """Send *request* and wait for the head of the reply; the exchange is the caller's to close.

        Raises :class:`scavenge.edge.http.faults.HttpFault`. Cancelled, it leaves no connection behind.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        used = self._take()
        if used is not None:
            try:
                return await self._begin(used, request, pulse)
            except NoReply:
                pulse.pause()
        else:
            pulse.pause()
        return await self._begin(Connection(await self.dialer.dial()), request, pulse)

    def close(self) -> None:
        """Close the idle connections; those in use close when their exchange ends."""
        self._closed = True
        while self._idle:
            self._idle.pop()[1].channel.close()

    async def _begin(self, connection: Connection, request: Request, pulse: Pulse) -> Exchange:
        exchange = Exchange(connection, self._give_back, pulse, self.dialer.signs, self.dialer.route.origin)
        try:
            await exchange.begin(request)
        except BaseException:
            exchange.close()
            raise
        return exchange

    def _take(self) -> Connection | None:
        """An idle connection that is still good."""
        self._expire()
        while self._idle:
            connection = self._idle.pop()[1]
            if connection.channel.is_quiet():
                return connection
            connection.channel.close()
        return None

    def _give_back(self, connection: Connection) -> None:
        if self._closed:
            connection.channel.close()
            return
        self._idle.append((trio.current_time(), connection))
        self._expire()

    def _expire(self) -> None:
        oldest_at = trio.current_time() - self._idle_expiry_s
        while self._idle and self._idle[0][0] <= oldest_at:
            self._idle.popleft()[1].channel.close()
