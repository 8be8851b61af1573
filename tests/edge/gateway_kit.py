"""A gateway on a real port with a scripted door behind it."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager

import attrs
import trio
from raw_client import TOKEN, Client

from scavenge.calls import Call, ModelCard, Page, Relayed
from scavenge.edge.gateway.limits import GatewayLimits
from scavenge.edge.gateway.listener import GatewayListener, open_listener
from scavenge.edge.gateway.server import Gateway as Server
from scavenge.errors import single_error
from scavenge.runtime.ports import ReplySink
from scavenge.types import Attempt, Url, Usage
from scavenge.types import Reply as ModelReply

ATTEMPT = Attempt(Url("http://10.0.0.7:8000/v1"), "ok", 1_700_000_000.0, 0.5, 200)
DOCUMENT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "sim",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello!"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}

Does = Callable[[Call, ReplySink | None], Awaitable[Relayed]]


def relayed(document: dict | None = None, body: bytes | None = None) -> Relayed:
    """An answer that is whole, whose raw document is this one."""
    raw = DOCUMENT if document is None else document
    message = raw["choices"][0]["message"]
    calls = tuple(message.get("tool_calls") or ())
    reply = ModelReply(message.get("content") or "", "stop", None, calls, Usage(3, 2), raw, body)
    return Relayed(reply, (ATTEMPT,))


def answering(document: dict | None = None, body: bytes | None = None) -> Does:
    async def does(call: Call, sink: ReplySink | None) -> Relayed:
        await trio.lowlevel.checkpoint()
        return relayed(document, body)

    return does


def raising(error: Exception) -> Does:
    async def does(call: Call, sink: ReplySink | None) -> Relayed:
        await trio.lowlevel.checkpoint()
        raise error

    return does


def piece(text: str, **others: object) -> bytes:
    """An event of a stream."""
    told = {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None, **others}]}
    return b"data: " + json.dumps(told).encode() + b"\n\n"


STREAMED = Relayed(ModelReply("", "stop"), (ATTEMPT,))
"""What is returned when a sink has taken the reply."""


def telling(*events: bytes, then: Exception | None = None) -> Does:
    """Hand these events on, and come to the end, or raise."""

    async def does(call: Call, sink: ReplySink | None) -> Relayed:
        await trio.lowlevel.checkpoint()
        assert sink is not None
        for event in events:
            await sink.take(event)
        if then is not None:
            raise then
        return STREAMED

    return does


@attrs.define(eq=False)
class Door:
    """A :class:`scavenge.runtime.ports.ModelDoor` that does what ``does`` does, and counts."""

    does: Does = attrs.field(factory=answering)
    calls: list[Call] = attrs.field(factory=list)
    cards: list[ModelCard] = attrs.field(factory=lambda: [ModelCard("org/sim", "sim"), ModelCard("other", "other")])
    sessions: set[str] = attrs.field(factory=set)
    under_way: int = 0
    cancelled: int = 0

    async def answer(self, call: Call, sink: ReplySink | None) -> Relayed:
        self.calls.append(call)
        self.under_way += 1
        try:
            return await self.does(call, sink)
        except trio.Cancelled:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1

    def models(self) -> list[ModelCard]:
        return self.cards

    def end_session(self, session_id: str) -> bool:
        known = session_id in self.sessions
        self.sessions.discard(session_id)
        return known

    @property
    def asked(self) -> list[tuple[str | None, dict]]:
        """The sessions and the bodies of the calls."""
        return [(call.session_id, dict(call.document)) for call in self.calls]


def waiting() -> tuple[Door, trio.Event]:
    """A door whose calls wait for the event."""
    release = trio.Event()

    async def does(call: Call, sink: ReplySink | None) -> Relayed:
        await release.wait()
        return relayed()

    return Door(does), release


@attrs.define(eq=False)
class Gateway:
    listener: GatewayListener
    door: Door
    server: Server
    bugs: list[BaseException]

    @property
    def root(self) -> str:
        return self.listener.root

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A fresh connection."""
        with trio.socket.socket() as connecting:
            await connecting.connect(self.listener.socket.getsockname())
            yield Client(trio.SocketStream(connecting))


@asynccontextmanager
async def open_gateway(
    door: Door | None = None,
    *,
    token: str | None = TOKEN,
    pages: Mapping[str, Callable[[], Page]] | None = None,
    **limits: float,
) -> AsyncIterator[Gateway]:
    """A gateway while the block runs; whatever it takes for a bug fails the test, unless the test takes it out."""
    with closing(open_listener(token)) as listener:
        bugs: list[BaseException] = []
        door = door or Door()
        server = Server(listener, door, pages, GatewayLimits(**limits), bugs.append)
        gateway = Gateway(listener, door, server, bugs)
        with single_error():
            async with trio.open_nursery() as nursery:
                with trio.fail_after(60):
                    await nursery.start(server.run_gateway)
                    yield gateway
                nursery.cancel_scope.cancel()
    assert not gateway.bugs
    assert door.under_way == 0
    check_empty(server)


def check_empty(server: Server) -> None:
    """Fail unless nothing is left of any client."""
    clients = server._entrance.clients
    assert (clients.connections, clients.answering, clients.held_bytes) == (0, 0, 0)
    assert not clients._waiting


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open nothing more while the block runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno() + 1, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
