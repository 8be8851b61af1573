"""What the tests of relayed calls share: bodies of foreign clients, sinks, and the asking itself."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs
import trio
from http_cases import client_of
from raw_server import Conn, raw_server, script_of

from scavenge.core.callbody import CallBody
from scavenge.core.flow import Stream
from scavenge.runtime.ports import RelayRequest, ReplySink
from scavenge.types import Answer, ApiType

CHAT, TEXT = ApiType.CHAT_COMPLETIONS, ApiType.COMPLETIONS
HELLO = {"model": "any", "messages": [{"role": "user", "content": "hi"}], "stream": True}
PROMPT = {"model": "any", "prompt": "hi", "stream": True}


@attrs.define(eq=False)
class Sink:
    """Keeps what it is given, and takes it at once."""

    taken: list[bytes] = attrs.field(factory=list)
    _more: trio.Event = attrs.field(factory=trio.Event)

    @property
    def begun(self) -> bool:
        return bool(self.taken)

    @property
    def whole(self) -> bytes:
        return b"".join(self.taken)

    async def take(self, events: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.taken.append(events)
        self._more.set()
        self._more = trio.Event()

    async def wait_for(self, events: bytes) -> None:
        """Wait until these are all that has come."""
        while self.whole != events:
            await self._more.wait()


@attrs.define(eq=False)
class StubbornSink(Sink):
    """Takes nothing before it is told to."""

    asked: trio.Event = attrs.field(factory=trio.Event)
    willing: trio.Event = attrs.field(factory=trio.Event)

    async def take(self, events: bytes) -> None:
        self.asked.set()
        await self.willing.wait()
        await super().take(events)


def a_call(
    document: object = HELLO, sink: ReplySink | None = None, *, api: ApiType = CHAT, stream: bool = True, **more: object
) -> RelayRequest:
    return RelayRequest(api, CallBody(json.dumps(document).encode()), stream, sink, **more)  # type: ignore[arg-type]


async def relayed(url: str, request: RelayRequest, stream: Stream | None = None, **endpoint: object) -> Answer:
    client = client_of(url, **endpoint)
    try:
        with trio.fail_after(10):
            return await client.ask(request, stream)
    finally:
        client.close()


async def relay_of(steps: Sequence[object], request: RelayRequest, **endpoint: object) -> Answer:
    """What comes of a call to a server that does *steps*."""
    async with raw_server(script_of(*steps)) as server:
        return await relayed(server.url, request, **endpoint)


async def asked_as(request: RelayRequest, answer: bytes, **endpoint: object) -> tuple[bytes, bytes]:
    """The request line and the body that a server gets of a call."""
    got: list[tuple[bytes, bytes]] = []

    async def script(conn: Conn) -> None:
        head, body = await conn.request()
        got.append((head.partition(b"\r\n")[0], body))
        await conn.send(answer)

    async with raw_server(script) as server:
        await relayed(server.url, request, **endpoint)
    return got[0]
