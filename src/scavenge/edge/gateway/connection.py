"""One client's connection to the gateway: requests in, one after the other; answers out, in the same order.

While a request waits for its reply the client is watched: the moment it hangs up, the call is cancelled. A streamed
answer begins with the reply, or with the first comment when the reply is long in coming; until then an error has a
status of its own. After that an error is one event, and the connection breaks off without an end of the stream.

Nothing that a client sends raises out of here. A bug costs the connection and goes to ``on_bug``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import attrs
import trio

from scavenge.core.doorwords import error_body, refusal_body, reply_body
from scavenge.core.plainjson import read_json
from scavenge.edge.gateway.calls import Call, read_call, session_of
from scavenge.edge.gateway.chunks import WAITING, event, events_of
from scavenge.edge.gateway.peer import Peer
from scavenge.edge.gateway.wire import Head, Refusal, Wire
from scavenge.errors import ScavengeError
from scavenge.runtime.ports import ModelDoor
from scavenge.types import Json


@attrs.frozen
class GatewaySettings:
    """What a client may do, and how long it may take."""

    max_head_bytes: int = 64 * 1024
    max_body_bytes: int = 64 * 2**20
    ahead_bytes: int = 64 * 1024
    """How much is read of requests that come before an earlier one is answered."""
    request_s: float = 60.0
    """From the first byte of a request to its last."""
    idle_s: float = 300.0
    """Between two requests."""
    write_s: float = 60.0
    """Without the client taking anything of its answer."""
    comment_s: float = 15.0
    """Between two signs of life to a client that waits for a streamed reply."""
    linger_s: float = 2.0
    """For the client to read the last answer on a connection that is not closed in turn."""


@attrs.frozen
class Gate:
    """What the connections of a gateway share."""

    door: ModelDoor
    token: str = attrs.field(repr=False)
    on_bug: Callable[[BaseException], object]
    settings: GatewaySettings
    idle: set[trio.CancelScope] = attrs.field(factory=set, init=False, repr=False)
    """The waits of connections that have served a request, for their next one."""

    def shed(self) -> None:
        """Close the idle connections, so that there are descriptors for new ones. Their clients connect anew."""
        for wait in self.idle:
            wait.cancel()


async def serve_connection(stream: trio.SocketStream, gate: Gate) -> None:
    """Answer a client's requests until one side has enough. Closes the stream, however it ends."""
    peer = Peer(stream, gate.settings.write_s)
    try:
        connection = _Connection(peer, gate)
        while await connection.serve_next():
            pass
    except* Exception as bugs:
        gate.on_bug(bugs)
    finally:
        peer.close()


@attrs.define(eq=False)
class _Pending:
    """A call under way: its answer, once there is one."""

    answered: trio.Event = attrs.field(factory=trio.Event)
    status: int = 0
    body: bytes = b""


class _Connection:
    def __init__(self, peer: Peer, gate: Gate) -> None:
        self._peer = peer
        self._gate = gate
        self._settings = gate.settings
        self._wire = Wire(gate.settings.max_head_bytes, gate.settings.max_body_bytes)
        self._last = False  # whether the answer under way is the last one here
        self._served = False

    async def serve_next(self) -> bool:
        """Answer one request; false when it was the last."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            asked = await self._read_request()
        except Refusal as refusal:
            await self._refuse(refusal)
        else:
            if asked is None:
                return False
            await self._serve(*asked)
        if self._peer.gone:
            return False
        if self._last or not self._wire.whole:
            await self._peer.part(self._settings.linger_s)
            return False
        self._served = self._wire.next_cycle()
        return self._served

    # --- reading

    async def _read_request(self) -> tuple[str, Call] | None:
        """The next request's session and call; ``None``: no more come. Raises :class:`Refusal`."""
        with trio.move_on_after(self._settings.idle_s) as patience:
            head = await self._read_head(patience)
            if head is None:
                return None
            session_id = session_of(head, self._gate.token)
            body = await self._read_body()
            return None if body is None else (session_id, read_call(body))
        if self._wire.begun:
            what = f"the request did not come within {self._settings.request_s:g} s"
            raise Refusal(408, "request_timeout", what)
        return None

    async def _read_head(self, patience: trio.CancelScope) -> Head | None:
        await trio.lowlevel.checkpoint_if_cancelled()
        timed = False
        while True:
            if self._wire.begun and not timed:
                timed, patience.deadline = True, trio.current_time() + self._settings.request_s
            if (head := self._wire.read_head()) is not None:
                return head
            if not await (self._receive_next() if self._served and not timed else self._receive()):
                return None

    async def _read_body(self) -> bytes | None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while (body := self._wire.read_body()) is None:
            if self._wire.wants_continue:
                await self._peer.send(self._wire.go_on())
            if not await self._receive():
                return None
        return body

    async def _receive_next(self) -> bool:
        """Take in the beginning of the next request; false when none comes."""
        with trio.CancelScope() as wait:
            self._gate.idle.add(wait)
            try:
                return await self._receive()
            finally:
                self._gate.idle.remove(wait)
        return False

    async def _receive(self) -> bool:
        """Take in what comes; false when the client is gone."""
        data = await self._peer.receive()
        self._wire.receive(data)
        return bool(data)

    # --- answering

    async def _serve(self, session_id: str, call: Call) -> None:
        pending = _Pending()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            if call.stream:
                nursery.start_soon(self._ask, session_id, call, pending)
                await self._stream(pending, include_usage=call.include_usage)
            else:
                await self._ask(session_id, call, pending)
                await self._tell(pending.status, pending.body)
            nursery.cancel_scope.cancel()

    async def _watch(self, scope: trio.CancelScope) -> None:
        """Cancel *scope* when the client hangs up. Stops reading when it has sent a lot ahead."""
        await trio.lowlevel.checkpoint()
        while self._wire.held_bytes < self._settings.ahead_bytes:
            if not await self._receive():
                scope.cancel()
                return

    async def _ask(self, session_id: str, call: Call, pending: _Pending) -> None:
        """Have the call made, and put its answer in *pending*."""
        try:
            completion = await self._gate.door.chat(session_id, call.messages, call.options)
            pending.status, pending.body = 200, reply_body(completion)
        except ScavengeError as exc:
            pending.status, pending.body = error_body(exc)
        except Exception as exc:
            self._gate.on_bug(exc)
            self._last = True
            pending.status, pending.body = error_body(exc)
        pending.answered.set()

    async def _stream(self, pending: _Pending, *, include_usage: bool) -> None:
        """Tell the reply as a stream, with comments while it is waited for."""
        begun = False
        while not await self._answered(pending):
            await self._send_events(WAITING, begin=not begun)
            begun = True
            if self._peer.gone:
                return
        if pending.status == 200:
            document = cast("Json", read_json(pending.body))
            events = events_of(document, include_usage=include_usage)
            await self._send_events(events, begin=not begun, end=True)
        elif begun:
            self._last = True
            await self._send_events(event(pending.body), begin=False)
        else:
            await self._tell(pending.status, pending.body)

    async def _answered(self, pending: _Pending) -> bool:
        with trio.move_on_after(self._settings.comment_s):
            await pending.answered.wait()
        return pending.answered.is_set()

    async def _send_events(self, events: bytes, *, begin: bool, end: bool = False) -> None:
        parts = [self._wire.stream_head()] if begin else []
        parts.append(self._wire.stream_data(events))
        parts += [self._wire.stream_end()] if end else []
        await self._peer.send(b"".join(parts))

    async def _refuse(self, refusal: Refusal) -> None:
        self._wire.skim()
        body = refusal_body(str(refusal), code=refusal.code, kind="invalid_request_error")
        await self._tell(refusal.status, body, refusal.headers)

    async def _tell(self, status: int, body: bytes, extra: Mapping[str, str] | None = None) -> None:
        """Send a whole answer."""
        headers = dict(extra or {})
        if status >= 400:
            headers["x-should-retry"] = "false"  # clients of OpenAI's heed it: what could be retried has been
        if self._last or not self._wire.whole:
            headers["Connection"] = "close"
        await self._peer.send(self._wire.answer(status, body, headers))
