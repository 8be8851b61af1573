"""One connection of the double of the Kubernetes API, and the ways in which it may be broken."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import attrs
import h11
import trio

HEAD = b'{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}'
BODIES = {
    "half": HEAD,  # a whole answer of HTTP with half a document, as of a proxy that lost its server
    "html": b"<html><h1>Sign in</h1></html>",
    "null": HEAD + b', "items": null}',
    "unversioned": b'{"kind": "PodList", "metadata": {}, "items": []}',
    "deep": b"[" * 200_000,
    "circle": b'{"kind": "PodList", "metadata": {"resourceVersion": "9", "continue": "a"}, "items": []}',
}
"""What broken APIs answer, by the kind of fault."""


@attrs.define
class Fault:
    """What is wrong with the API now; each applies to the requests of the kinds in ``of``."""

    kind: str
    of: tuple[str, ...] = ("list", "watch")
    headers: Mapping[str, str] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Wire:
    """One connection's HTTP."""

    stream: trio.abc.Stream
    connection: h11.Connection = attrs.field(factory=lambda: h11.Connection(h11.SERVER))

    async def read_request(self) -> h11.Request | None:
        request = None
        while True:
            event = self.connection.next_event()
            if event is h11.NEED_DATA:
                self.connection.receive_data(await self.stream.receive_some(65536))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.EndOfMessage):
                return request
            elif isinstance(event, h11.ConnectionClosed):
                return None

    def start_next(self) -> bool:
        if self.connection.our_state is not h11.DONE or self.connection.their_state is not h11.DONE:
            return False
        self.connection.start_next_cycle()
        return True

    async def send(self, event: Any) -> None:
        data = self.connection.send(event)
        if data is not None:
            await self.stream.send_all(data)

    async def send_json(self, value: object, status: int = 200) -> None:
        await self.send_bytes(json.dumps(value).encode(), status, {"Content-Type": "application/json"})

    async def send_bytes(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        length = {"Content-Length": str(len(body))}
        await self.send(h11.Response(status_code=status, headers=list({**headers, **length}.items())))
        await self.send(h11.Data(data=body))
        await self.send(h11.EndOfMessage())

    async def begin_stream(self) -> None:
        headers = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
        await self.send(h11.Response(status_code=200, headers=headers))

    async def send_event(self, word: str, item: object) -> None:
        await self.send_line({"type": word, "object": item})

    async def send_line(self, value: object, then: bytes = b"") -> None:
        await self.send(h11.Data(data=json.dumps(value).encode() + b"\n" + then))

    async def wait_left(self) -> None:
        """Wait until the client closes the connection; one that watches sends nothing else."""
        with contextlib.suppress(trio.BrokenResourceError):
            await self.stream.receive_some(1)

    async def cancel_when_left(self, scope: trio.CancelScope) -> None:
        await self.wait_left()
        scope.cancel()

    async def end_stream(self) -> None:
        await self.send(h11.EndOfMessage())

    async def misbehave(self, fault: Fault) -> bool:
        """Answer as a broken API does. False: the fault is of no kind that has an answer of its own."""
        headers = {name.replace("_", "-"): value for name, value in fault.headers.items()}
        if fault.kind in BODIES:
            await self.send_bytes(BODIES[fault.kind], 200, headers)
        elif fault.kind.isdigit():
            await self.send_bytes(b"upstream trouble", int(fault.kind), headers)
        elif fault.kind in ("cut", "slam", "hang", "mute", "ended", "endless"):
            await self._break_off(fault.kind)
        else:
            return False
        return True

    async def _break_off(self, kind: str) -> None:
        match kind:
            case "cut":
                await self.send(h11.Response(status_code=200, headers=[("Content-Length", "5000")]))
                await self.send(h11.Data(data=HEAD))
            case "hang":
                await self.wait_left()
            case "mute":  # a watch whose events are lost on the way
                await self.begin_stream()
                await self.wait_left()
            case "ended":
                await self.begin_stream()
                await self.end_stream()
                return
            case "endless":
                await self.begin_stream()
                while True:
                    await self.send(h11.Data(data=b" " * 65536))
        raise trio.BrokenResourceError
