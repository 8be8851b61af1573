"""Reading a client's requests: how long they may take, and how much of them is held.

A body that is being read or answered counts, of all clients together: beyond ``max_held_bytes`` requests are put off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import attrs
import trio

from scavenge.edge.gateway.clients import Clients
from scavenge.edge.gateway.framing import GO_ON
from scavenge.edge.gateway.inbox import Inbox
from scavenge.edge.gateway.limits import GatewayLimits
from scavenge.edge.gateway.peer import Peer
from scavenge.edge.gateway.wire import Head, Refusal, Wire

T = TypeVar("T")


@attrs.define(eq=False)
class Requests(Generic[T]):
    """The requests of one client. *admit* says what a request is for, by its head, or raises :class:`Refusal`."""

    peer: Peer
    wire: Wire
    inbox: Inbox
    clients: Clients
    limits: GatewayLimits
    admit: Callable[[Head], T]
    _held_bytes: int = attrs.field(default=0, init=False)
    """How much of the body under way is counted."""

    async def next(self) -> tuple[Head, T, bytes] | None:
        """The next request, whole; ``None``: no more come. Raises :class:`Refusal`."""
        self._hold(0)
        with trio.move_on_after(self.limits.idle_s) as patience:
            head = await self._read_head(patience)
            if head is None:
                return None
            wanted = self.admit(head)
            body = await self._read_body()
            return None if body is None else (head, wanted, body)
        if self.wire.begun:
            what = f"the request did not come within {self.limits.request_s:g} s"
            raise Refusal(408, "request_timeout", what)
        return None

    def close(self) -> None:
        """Count nothing of this client any more."""
        self._hold(0)

    async def _read_head(self, patience: trio.CancelScope) -> Head | None:
        await trio.lowlevel.checkpoint_if_cancelled()
        timed = False
        while True:
            if self.wire.begun and not timed:
                timed, patience.deadline = True, trio.current_time() + self.limits.request_s
            if (head := self.wire.read_head()) is not None:
                return head
            if not await self.inbox.wait_more():
                return None

    async def _read_body(self) -> bytes | None:
        await trio.lowlevel.checkpoint_if_cancelled()
        told = False
        while (body := self.wire.read_body()) is None:
            self._check_held(max(self.wire.length, self.wire.body_bytes))
            self._hold(self.wire.body_bytes)
            if self.wire.wants_continue and not told:
                told = True
                await self.peer.send(GO_ON)
            if not await self.inbox.wait_more():
                return None
        self._check_held(len(body))
        self._hold(len(body))
        return body

    def _check_held(self, size: int) -> None:
        if self.clients.held_bytes - self._held_bytes + size > self.limits.max_held_bytes:
            what = f"the requests under way have more than {self.limits.max_held_bytes} bytes: send it again"
            raise Refusal(503, "too_much_at_once", what, {"Retry-After": "1"})

    def _hold(self, size: int) -> None:
        self.clients.held_bytes += size - self._held_bytes
        self._held_bytes = size
