"""One client's connection to a simulated server: HTTP/1.1 requests in, responses out.

It paces replies by what the engine has produced, and sees at once when the client hangs up. Nothing that a client
sends may raise out of here: what is no HTTP gets status 400 and the end of the connection.
"""

from __future__ import annotations

import h11
import trio

from scavenge.testing import wire
from scavenge.testing.node import Bell, Node
from scavenge.testing.served import GarbageReply, Generation, Refusal

_CHUNK_BYTES = 65536
_MAX_BODY_BYTES = 16 * 1024 * 1024
_MAX_AHEAD_BYTES = 1024 * 1024  # what a client may send before it has its reply

_JSON = "application/json"
_COMPLETIONS = {"/v1/chat/completions": wire.CHAT, "/v1/completions": wire.TEXT}
_PAGES = {"/v1/models", "/health", "/metrics", "/props", "/slots"}
_OPEN_PAGES = {"/health", "/metrics"}  # they ask for no token
_LOOK_EVERY_S = 0.05  # for tokens that the engine does not tell of


async def serve_connection(stream: trio.abc.Stream, node: Node, random_seed: int) -> None:
    """Answer a client's requests until one side has enough. The caller closes the stream."""
    await trio.lowlevel.checkpoint()
    connection = _Connection(stream, node, random_seed)
    while await connection.serve_next():
        pass


class _Connection:
    def __init__(self, stream: trio.abc.Stream, node: Node, random_seed: int) -> None:
        self._stream = stream
        self._node = node
        self._seed = random_seed
        self._http = h11.Connection(h11.SERVER)
        self._hung_up = False
        self._head_only = False

    async def serve_next(self) -> bool:
        """Answer one request; false when it was the last."""
        try:
            request = await self._next_event()
            if not isinstance(request, h11.Request):
                return False
            self._head_only = request.method == b"HEAD"
            body = await self._read_body()
        except h11.RemoteProtocolError as error:
            if await self._node.wait_responsive():
                await self._refuse(Refusal(error.error_status_hint, f"this is no HTTP request: {error}"))
            return False
        if body is None or not await self._node.wait_responsive():
            return False
        await self._respond(request, body)
        if self._hung_up or self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _next_event(self) -> object:
        """The next event of h11, or ``ConnectionClosed`` once the client is gone."""
        await trio.lowlevel.checkpoint()
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            data = b"" if self._hung_up else await self._receive()
            self._http.receive_data(data)
            if not data and self._http.their_state is not h11.DONE:
                self._hung_up = True
                return h11.ConnectionClosed()
        return event

    async def _read_body(self) -> bytes | None:
        """The body of the request; ``None`` when the client hung up over it."""
        body = bytearray()
        while not isinstance(event := await self._next_event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                return None
            body += event.data
            if len(body) > _MAX_BODY_BYTES:
                raise h11.RemoteProtocolError(f"the body is longer than {_MAX_BODY_BYTES} bytes", 413)
        return bytes(body)

    async def _respond(self, request: h11.Request, body: bytes) -> None:
        await trio.lowlevel.checkpoint()
        path, method = request.target.partition(b"?")[0].decode("latin-1"), request.method
        if path in _PAGES and method in {b"GET", b"HEAD"}:
            await self._send_page(path, _token_of(request))
        elif path in _COMPLETIONS and method == b"POST":
            await self._complete(_token_of(request), wire.read_ask(body, _COMPLETIONS[path]))
        elif path in _PAGES or path in _COMPLETIONS:
            await self._refuse(Refusal(405, f"{path} does not take this method"))
        else:
            await self._refuse(Refusal(404, f"{path} does not exist on this server"))

    async def _send_page(self, path: str, token: str | None) -> None:
        await trio.lowlevel.checkpoint()
        host, load = self._node.host, self._node.read_load()
        page = wire.page(path, host, load)
        if page is None:
            return await self._refuse(Refusal(404, f"{path} does not exist on this server"))
        refusal = None if path in _OPEN_PAGES else host.admit_probe(token, trio.current_time())
        return await (self._send(200, *page) if refusal is None else self._refuse(refusal))

    async def _complete(self, token: str | None, ask: wire.Ask | Refusal) -> None:
        await trio.lowlevel.checkpoint()
        if isinstance(ask, Refusal):
            return await self._refuse(ask)
        reply = wire.reply_for(ask, self._seed)
        bell = Bell()
        verdict = self._node.host.admit(ask.model, token, reply.prompt_tokens, trio.current_time())
        begun = self._node.begin(reply, bell.ring) if verdict is None else verdict
        if isinstance(begun, GarbageReply):
            return await self._send(200, wire.GARBAGE_PAGE, "text/html")
        if isinstance(begun, Refusal):
            return await self._refuse(begun)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                await (self._stream_out if ask.stream else self._send_whole)(ask, begun, bell)
                nursery.cancel_scope.cancel()
        finally:
            self._node.cancel(begun)
        return None

    async def _watch(self, scope: trio.CancelScope) -> None:
        """Cancel *scope* when the client hangs up, or sends more than anybody sends ahead."""
        await trio.lowlevel.checkpoint()
        ahead_bytes = 0
        while ahead_bytes <= _MAX_AHEAD_BYTES and (data := await self._receive()):
            self._http.receive_data(data)
            ahead_bytes += len(data)
        self._hung_up = True
        scope.cancel()

    async def _stream_out(self, ask: wire.Ask, generation: Generation, bell: Bell) -> None:
        await trio.lowlevel.checkpoint()
        written = 0
        while written < generation.tokens or not generation.over:
            if written == generation.tokens:
                await self._wait_for_tokens(generation, bell)
                continue
            start, written = written, generation.tokens  # more may come while this is written
            data = wire.stream_tokens(ask, generation.reply.tokens[start:written])
            if start:
                await self._write(h11.Data(data=data))
            else:
                await self._write(_STREAM_HEAD, h11.Data(data=wire.stream_opening(ask) + data))
        await self._finish_stream(ask, generation, written)

    async def _wait_for_tokens(self, generation: Generation, bell: Bell) -> None:
        if self._node.host.tells_each_token or not generation.tokens:
            return await bell.wait_rung()
        with trio.move_on_after(_LOOK_EVERY_S):
            await bell.wait_rung()
        self._node.refresh(generation)
        return None

    async def _finish_stream(self, ask: wire.Ask, generation: Generation, written: int) -> None:
        await trio.lowlevel.checkpoint()
        if generation.lost:
            return  # the connection is being reset
        end = (h11.Data(data=wire.stream_end(ask, generation)), h11.EndOfMessage())
        await self._write(*([] if written else [_STREAM_HEAD]), *end)

    async def _send_whole(self, ask: wire.Ask, generation: Generation, bell: Bell) -> None:
        await trio.lowlevel.checkpoint()
        while not generation.over:
            await bell.wait_rung()
        if not generation.lost:
            await self._send(200, wire.whole_reply(ask, generation))

    async def _refuse(self, refusal: Refusal) -> None:
        await self._send(refusal.status, wire.error_body(refusal), extra=wire.refusal_headers(refusal))

    async def _send(
        self, status: int, body: bytes, content_type: str = _JSON, extra: list[tuple[str, str]] | None = None
    ) -> None:
        await trio.lowlevel.checkpoint()
        head = _head(status, content_type, [("Content-Length", str(len(body))), *(extra or [])])
        await self._write(head, *([] if self._head_only else [h11.Data(data=body)]), h11.EndOfMessage())

    async def _write(self, *events: h11.Event) -> None:
        """Send what belongs together in one piece."""
        await trio.lowlevel.checkpoint()
        data = b"".join(self._http.send(event) or b"" for event in events)
        if self._hung_up:
            return
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError:
            self._hung_up = True

    async def _receive(self) -> bytes:
        """Bytes from the client, none when it is gone."""
        try:
            return bytes(await self._stream.receive_some(_CHUNK_BYTES))
        except trio.BrokenResourceError:
            await trio.lowlevel.checkpoint()
            return b""


def _head(status: int, content_type: str, headers: list[tuple[str, str]]) -> h11.Response:
    return h11.Response(status_code=status, headers=[("Content-Type", content_type), *headers])


def _token_of(request: h11.Request) -> str | None:
    for name, value in request.headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].decode("latin-1").strip()
    return None


_STREAM_HEAD = _head(200, "text/event-stream", [("Cache-Control", "no-cache")])
