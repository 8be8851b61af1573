"""A client of the gateway that says exactly which bytes it sends."""

from __future__ import annotations

import json
from collections.abc import Callable

import attrs
import h11
import trio

TOKEN = "the-token"
PATH = "/session/s1/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hello?"}]


def get(path: str, method: str = "GET", token: str | None = TOKEN, **fields: str) -> bytes:
    """The bytes of a request without a body."""
    told = {"Host": "127.0.0.1"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    told |= {name.replace("_", "-"): value for name, value in fields.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items() if value != "")
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode()


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
