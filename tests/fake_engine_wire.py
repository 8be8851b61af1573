"""How the fake engine speaks HTTP: requests as values, replies byte by byte. Knows nothing of images."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs
import h11
import trio

KINDS = {
    ("GET", "/_ping"): "ping",
    ("GET", "/info"): "info",
    ("GET", "/images/json"): "list",
    ("POST", "/images/create"): "pull",
    ("POST", "/images/load"): "load",
}
NAMED = {("GET", "json"): "inspect", ("POST", "tag"): "tag", ("GET", "get"): "save"}


class Gone(Exception):
    """The client hung up before its answer was whole."""


class Torn(Exception):
    """The connection is to break now, or did."""


@attrs.define
class Call:
    """One request."""

    kind: str
    path: str
    version: str | None
    name: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""


def call_of(request: h11.Request) -> Call:
    """What is asked for."""
    method = request.method.decode()
    target = urlsplit(request.target.decode())
    versioned = re.fullmatch(r"(?:/v(\d+\.\d+))?(/.*)", target.path)
    assert versioned is not None, target.path
    version, path = versioned.groups()
    named = re.fullmatch(r"/images/(.+?)(?:/(json|tag|get))?", path)
    kind = KINDS.get((method, path))
    if kind is None:
        assert named is not None, path
        kind = "remove" if method == "DELETE" else NAMED[method, named[2]]
    headers = {name.decode(): value.decode() for name, value in request.headers}
    name = unquote(named[1]) if named else ""
    return Call(kind, path, version, name, dict(parse_qsl(target.query)), headers)


class Exchange:
    """One connection, a request and its reply at a time."""

    def __init__(self, stream: trio.SocketStream, *, podman: bool) -> None:
        self._stream = stream
        self._podman = podman
        self._http = h11.Connection(h11.SERVER)

    async def read_call(self) -> Call | None:
        """The next request without its body; ``None``: the client has left."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        event = await self._next_event()
        return call_of(event) if isinstance(event, h11.Request) else None

    async def read_body(self) -> bytes:
        """The body to its end. Raises :class:`Torn` when it ends before."""
        body = bytearray()
        while isinstance(event := await self._next_event(), h11.Data):
            body += event.data
        return bytes(body)

    async def _next_event(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive_some())
        except (h11.RemoteProtocolError, trio.BrokenResourceError) as exc:
            raise Torn from exc
        if event is h11.PAUSED:
            raise Torn
        return event

    async def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """A whole reply."""
        fields = {"Content-Length": str(len(body)), "Content-Type": "application/json", **(headers or {})}
        await self._send(h11.Response(status_code=status, headers=list(fields.items())))
        await self.say_bytes(body)
        await self.end_stream()

    async def reply_json(self, status: int, what: object) -> None:
        """A whole reply in JSON."""
        await self.reply(status, json.dumps(what).encode())

    async def refuse(self, status: int, message: str) -> None:
        """An error, as the engine words it."""
        more = {"cause": message, "response": status} if self._podman else {}
        await self.reply_json(status, {"message": message, **more})

    async def start_stream(self, kind: str = "application/json") -> None:
        """Begin a reply whose length is not known."""
        await self._send(h11.Response(status_code=200, headers=[("Content-Type", kind)]))

    async def say(self, *messages: Mapping[str, object]) -> None:
        """Send messages as the engine does, one JSON object after the other."""
        for message in messages:
            await self.say_bytes(json.dumps(message).encode() + (b"\n" if self._podman else b"\r\n"))

    async def say_error(self, message: str, *, bare: bool) -> None:
        """Send an error in the stream."""
        await self.say({"error": message} if bare else {"errorDetail": {"message": message}, "error": message})

    async def say_bytes(self, data: bytes) -> None:
        """Send a piece of the reply's body."""
        await self._send(h11.Data(data=data))

    async def end_stream(self, *, close: bool = False) -> None:
        """End the reply; *close*: and the connection."""
        await self._send(h11.EndOfMessage())
        if close:
            raise Torn

    async def sleep(self, seconds: float) -> None:
        """Let time pass. Raises :class:`Gone` when the client hangs up meanwhile."""
        if seconds <= 0:
            return
        with trio.move_on_after(seconds):
            await self.wait_gone()

    async def wait_gone(self) -> None:
        """Wait until the client hangs up, and raise :class:`Gone`."""
        with suppress(trio.BrokenResourceError):
            await self._stream.receive_some()
        raise Gone

    async def _send(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            try:
                await self._stream.send_all(data)
            except trio.BrokenResourceError as exc:
                raise Gone from exc
