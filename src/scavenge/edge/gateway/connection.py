"""One client's connection to the gateway: requests in, one after the other; answers out, in the same order.

The moment a client hangs up, what is done for it is cancelled. Nothing that a client sends raises out of here. A bug
costs the connection and goes to ``on_bug``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import trio

from scavenge.calls import Call, Page
from scavenge.core.doorwords import DETAIL, DETAIL_FIELD, kind_of, refusal_body
from scavenge.edge.gateway.answering import Answer, ask, ask_for_stream, failed
from scavenge.edge.gateway.calls import read_call
from scavenge.edge.gateway.chunks import event
from scavenge.edge.gateway.entrance import Entrance
from scavenge.edge.gateway.framing import JSON, answer, stream_head
from scavenge.edge.gateway.inbox import Inbox
from scavenge.edge.gateway.line import Line
from scavenge.edge.gateway.models import models_page
from scavenge.edge.gateway.peer import Peer
from scavenge.edge.gateway.requests import Requests
from scavenge.edge.gateway.routes import CallRoute, ModelsRoute, PageRoute, Route, SessionRoute
from scavenge.edge.gateway.stream import EventStream
from scavenge.edge.gateway.wire import Head, Refusal, Wire

_DETAIL_FIELD = DETAIL_FIELD.lower().encode()


async def serve_connection(line: Line, entrance: Entrance) -> None:
    """Answer a client's requests until one side has enough. Closes the line, however it ends."""
    connection = Connection(Peer(line, entrance.limits.write_s), entrance)
    entrance.clients.enter(connection)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.inbox.run_inbox)
            await connection.serve()
            nursery.cancel_scope.cancel()
    except* Exception as bugs:
        entrance.on_bug(bugs)
    finally:
        connection.drop()
        entrance.clients.leave(connection)


class Connection:
    """One client, from its first request to its last."""

    def __init__(self, peer: Peer, entrance: Entrance) -> None:
        limits = entrance.limits
        self._peer = peer
        self._entrance = entrance
        self._wire = Wire(limits.max_head_bytes, limits.max_body_bytes)
        self.inbox = Inbox(peer, self._wire, limits.ahead_bytes)
        self._requests = Requests(peer, self._wire, self.inbox, entrance.clients, limits, entrance.admit)
        self._broken = False  # whether the answer under way is the last one here
        self._served = False

    @property
    def is_between_requests(self) -> bool:
        """Whether it has had an answer, and nothing of another request has come."""
        return self._served and self.is_quiet

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of a request has come."""
        return not self._wire.begun and self._peer.is_quiet()

    def drop(self) -> None:
        """Close the connection at once. Never waits."""
        self._peer.close()
        self._requests.close()

    async def serve(self) -> None:
        """Answer one request after the other."""
        while await self._serve_next():
            self._wire.next_request()
            self._served = True
            if self._wire.begun:
                await trio.lowlevel.checkpoint()  # others have their turn, however much this client sends ahead

    async def _serve_next(self) -> bool:
        """Answer one request; false when it was the last."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            asked = await self._requests.next()
        except Refusal as refusal:
            self._wire.skim()
            with self._counted():
                await self._refuse(refusal)
        else:
            if asked is None:
                return False
            await self._serve(*asked)
        if self._peer.gone:
            return False
        if self._is_last:
            await self._part()
            return False
        return True

    @property
    def _is_last(self) -> bool:
        """Whether the connection ends with the present answer."""
        head = self._wire.head
        goes_on = head is not None and head.keep_alive and self._wire.whole
        return self._broken or self._entrance.clients.stopping or not goes_on

    async def _part(self) -> None:
        """Send nothing more, and wait for the client to read the rest and close.

        Closing at once would reset the connection where the client is still sending, and the answer would be lost with
        what it has not read.
        """
        self._peer.end()
        with trio.move_on_after(self._entrance.limits.linger_s):
            await self.inbox.wait_gone()

    # --- answering

    async def _serve(self, head: Head, route: Route, body: bytes) -> None:
        with self._counted(), self.inbox.watching() as scope:
            try:
                await self._answer(head, route, body, scope)
            except Refusal as refusal:
                await self._refuse(refusal)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """While the block runs, this is a client that is answered."""
        self._entrance.clients.asks(self)
        try:
            yield
        finally:
            self._entrance.clients.answered(self, last=self._is_last)

    async def _answer(self, head: Head, route: Route, body: bytes, scope: trio.CancelScope) -> None:
        if not isinstance(route, CallRoute):
            await self._show(route)
            return
        call = read_call(route, body)
        detail = head.field(_DETAIL_FIELD) == DETAIL.encode()
        if call.streamed:
            await self._stream(call, self._event_stream(head, scope), detail=detail)
        else:
            await self._tell(await ask(self._entrance, call, detail=detail))

    def _event_stream(self, head: Head, scope: trio.CancelScope) -> EventStream:
        chunked = not head.old
        return EventStream(
            self._peer, scope, lambda: stream_head(chunked=chunked, close=self._is_last), chunked=chunked
        )

    async def _stream(self, call: Call, stream: EventStream, *, detail: bool) -> None:
        answered = await ask_for_stream(self._entrance, call, stream, detail=detail)
        if answered.status == 200:
            await stream.end(answered.body)
        elif stream.opened:
            self._broken = True
            await stream.fail(event(answered.body))
        else:
            await self._tell(answered)

    async def _show(self, route: ModelsRoute | SessionRoute | PageRoute) -> None:
        try:
            page = self._page(route)
        except Refusal:
            raise
        except Exception as bug:
            await self._tell(failed(self._entrance, bug, detail=False))
        else:
            await self._send(page.status, page.body, {}, page.content_type)

    def _page(self, route: ModelsRoute | SessionRoute | PageRoute) -> Page:
        """What is shown for a request that is none for a model. Raises :class:`Refusal`."""
        if isinstance(route, PageRoute):
            return self._entrance.pages[route.path]()
        if isinstance(route, ModelsRoute):
            return models_page(self._entrance.door.models(), route.name)
        if self._entrance.door.end_session(route.session_id):
            return Page(204, "", b"")
        raise Refusal(404, "unknown_session", "there is no such session")

    async def _refuse(self, refusal: Refusal) -> None:
        body = refusal_body(str(refusal), code=refusal.code, kind=kind_of(refusal.status))
        await self._tell(Answer(refusal.status, body, refusal.headers))

    async def _tell(self, answered: Answer) -> None:
        """Send a whole answer to a call, or a refusal."""
        self._broken = self._broken or answered.broken
        fields = dict(answered.fields)
        if answered.status >= 400:
            # clients of OpenAI's heed it: what could be retried at once has been
            fields["x-should-retry"] = "true" if "Retry-After" in fields else "false"
        await self._send(answered.status, answered.body, fields, JSON)

    async def _send(self, status: int, body: bytes, fields: Mapping[str, str], content_type: str) -> None:
        closing = {"Connection": "close"} if self._is_last else {}
        head_only = self._wire.head is not None and self._wire.head.method == "HEAD"
        data = answer(status, body, {**fields, **closing}, content_type=content_type, head_only=head_only)
        await self._peer.send(data)
