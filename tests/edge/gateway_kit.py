"""A gateway on a real port with a scripted door behind it, and a client that says exactly which bytes it sends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing

import attrs
import h11
import trio

from scavenge.edge.gateway.connection import GatewaySettings
from scavenge.edge.gateway.server import GatewayListener, open_listener, run_gateway
from scavenge.errors import single_error
from scavenge.types import Attempt, Completion, Url, Usage

TOKEN = "the-token"
PATH = "/session/s1/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hello?"}]
ATTEMPT = Attempt(Url("http://10.0.0.7:8000/v1"), "ok", 1_700_000_000.0, 0.5, 200)
DOCUMENT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "sim",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello!"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}

Answer = Callable[[str, list, dict], Awaitable[Completion]]


def completion(document: dict | None = None) -> Completion:
    """A completion whose raw document is this one."""
    raw = DOCUMENT if document is None else document
    message = raw["choices"][0]["message"]
    calls = tuple(message.get("tool_calls") or ())
    return Completion(message.get("content") or "", "stop", None, calls, Usage(3, 2), (ATTEMPT,), raw)


def answering(document: dict | None = None) -> Answer:
    async def answer(session_id: str, messages: list, options: dict) -> Completion:
        await trio.lowlevel.checkpoint()
        return completion(document)

    return answer


def raising(error: Exception) -> Answer:
    async def answer(session_id: str, messages: list, options: dict) -> Completion:
        await trio.lowlevel.checkpoint()
        raise error

    return answer


@attrs.define(eq=False)
class Door:
    """A :class:`scavenge.runtime.ports.ModelDoor` that does what ``answer`` does, and counts."""

    answer: Answer = attrs.field(factory=answering)
    calls: list[tuple[str, list, dict]] = attrs.field(factory=list)
    under_way: int = 0
    cancelled: int = 0

    async def chat(self, session_id: str, messages: list, options: dict) -> Completion:
        self.calls.append((session_id, messages, options))
        self.under_way += 1
        try:
            return await self.answer(session_id, messages, options)
        except trio.Cancelled:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1


def waiting() -> tuple[Door, trio.Event]:
    """A door whose calls wait for the event."""
    release = trio.Event()

    async def answer(session_id: str, messages: list, options: dict) -> Completion:
        await release.wait()
        return completion()

    return Door(answer), release


@attrs.define(eq=False)
class Gateway:
    listener: GatewayListener
    door: Door
    bugs: list[BaseException] = attrs.field(factory=list)

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
async def open_gateway(door: Door | None = None, **settings: float) -> AsyncIterator[Gateway]:
    """A gateway while the block runs; whatever it takes for a bug fails the test, unless the test takes it out."""
    with closing(open_listener(TOKEN)) as listener:
        gateway = Gateway(listener, door or Door())
        with single_error():
            async with trio.open_nursery() as nursery:
                with trio.fail_after(60):
                    made = GatewaySettings(**settings)
                    await nursery.start(run_gateway, listener, gateway.door, gateway.bugs.append, made)
                    yield gateway
                nursery.cancel_scope.cancel()
    assert not gateway.bugs
    assert gateway.door.under_way == 0


def post(body: bytes | dict | None = None, path: str = PATH, token: str | None = TOKEN, **fields: str) -> bytes:
    """The bytes of a request; names of fields with ``_`` for ``-``."""
    if not isinstance(body, bytes):
        body = json.dumps({"model": "any", "messages": MESSAGES, **(body or {})}).encode()
    told = {"Host": "gateway", "Content-Length": str(len(body)), "Content-Type": "application/json"}
    if token is not None:
        told["Authorization"] = f"Bearer {token}"
    told |= {name.replace("_", "-"): value for name, value in fields.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items() if value != "")
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def chunked_head(**fields: str) -> bytes:
    return post(b"", Content_Length="", Transfer_Encoding="chunked", **fields)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@attrs.frozen
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True
    """Whether its end came."""

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def error(self) -> dict:
        return self.json["error"]

    @property
    def events(self) -> list[dict | str]:
        """The data of a stream's events; what is no JSON as text."""
        lines = [line[6:] for line in self.body.decode().split("\n\n") if line.startswith("data: ")]
        return [json.loads(line) if line.startswith("{") else line for line in lines]


class Client:
    """One connection to the gateway."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._rest = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def ask(self, data: bytes) -> Reply:
        await self.send(data)
        return await self.reply()

    async def reply(self, method: str = "POST") -> Reply:
        """The next answer; :class:`EOFError` when the server closes before it begins."""
        http = h11.Connection(h11.CLIENT)
        http.send(h11.Request(method=method, target="/", headers=[("Host", "gateway")]))
        http.send(h11.EndOfMessage())
        if self._rest:
            http.receive_data(self._rest)
        head: h11.Response | None = None
        body = bytearray()
        while True:
            try:
                event = http.next_event()
            except h11.RemoteProtocolError:
                if head is None:
                    raise EOFError from None
                return _reply(head, body, whole=False)
            if event is h11.NEED_DATA:
                http.receive_data(await self.stream.receive_some())
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                self._rest = http.trailing_data[0]
                return _reply(head, body)

    async def receive_some(self, size: int) -> None:
        """Read a little of what :meth:`reply` will tell."""
        data = await self.stream.receive_some(size)
        assert data, "the server closed"
        self._rest += data

    async def receive_until(self, end: bytes) -> bytes:
        """All bytes up to where *end* is in them."""
        while end not in self._rest:
            data = await self.stream.receive_some()
            assert data, f"the server closed after {self._rest!r}"
            self._rest += data
        data, self._rest = self._rest, b""
        return data

    async def at_end(self) -> bool:
        """Whether the server closes the connection and says nothing more."""
        try:
            return self._rest == b"" and await self.stream.receive_some() == b""
        except trio.BrokenResourceError:
            return True


def _reply(head: h11.Response, body: bytearray, *, whole: bool = True) -> Reply:
    headers = {name.decode(): value.decode() for name, value in head.headers}
    return Reply(head.status_code, headers, bytes(body), whole)


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so; the gateway's block bounds it."""
    while not condition():  # noqa: ASYNC110 (what happens in the gateway rings no bell here)
        await trio.sleep(0.001)
