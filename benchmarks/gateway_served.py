"""The same trivial replies from our own server of the gateway and from Hypercorn's Trio worker, to compare the two.

``python benchmarks/gateway_served.py ours|hypercorn PORT`` serves until it is interrupted. Whatever is asked with GET
tells what those who make the replies have seen.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import trio
from gateway_fleet import ANSWER, KEY, event, prompt_of

FLOOD_BYTES = 256 * 2**20
FLOOD_S = 2.0
BODY = ANSWER.partition(b"\r\n\r\n")[2]
EVENT = event({"content": " word"})
LARGE = event({"content": "x" * 16_000})
DONE = b"data: [DONE]\n\n"

Send: TypeAlias = Callable[[bytes], Awaitable[None]]


# --- what is served, whoever serves it


@dataclass
class Told:
    """What the makers of replies have seen."""

    hung_up_at: float = 0.0
    sent_bytes: int = 0
    given_up_s: float = 0.0

    def as_json(self) -> bytes:
        return json.dumps(vars(self)).encode()


async def stream(kind: bytes, chunks: int, send: Send, told: Told) -> None:
    """Make a streamed reply: some chunks at once; ``endless``, one now and then; a ``flood``, as many as are taken."""
    await trio.lowlevel.checkpoint()
    if kind == b"burst":
        for _ in range(chunks):
            await send(EVENT)
    elif kind == b"flood":
        await flood(send, told)
    while kind == b"endless":
        await send(EVENT)
        await trio.sleep(0.01)


async def flood(send: Send, told: Told) -> None:
    """Send as fast as it is taken; after a while the sending is cancelled."""
    told.sent_bytes = 0
    with trio.move_on_after(FLOOD_S) as patience:
        await trio.lowlevel.checkpoint()
        while told.sent_bytes < FLOOD_BYTES:
            await send(LARGE)
            told.sent_bytes += len(LARGE)
    told.given_up_s = trio.current_time() - patience.deadline


# --- by our server


async def serve_ours(port: int) -> None:
    from scavenge.calls import Call, ModelCard, Page, Relayed
    from scavenge.edge.gateway.listener import open_listener
    from scavenge.edge.gateway.server import Gateway
    from scavenge.runtime.ports import ReplySink
    from scavenge.types import Reply

    told = Told()

    class Door:
        async def answer(self, call: Call, sink: ReplySink | None) -> Relayed:
            await trio.lowlevel.checkpoint()
            kind, _, chunks = prompt_of(call.body)
            try:
                if kind == b"wait":
                    await trio.sleep_forever()
                if sink is not None:
                    await stream(kind, chunks, sink.take, told)
            except trio.Cancelled:
                told.hung_up_at = time.monotonic()
                raise
            return Relayed(Reply("", "stop", body=BODY))

        def models(self) -> list[ModelCard]:
            return []

        def end_session(self, session_id: str) -> bool:
            return False

    listener = open_listener(KEY, port=port)
    pages = {"/health": lambda: Page(200, "application/json", told.as_json())}
    await Gateway(listener, Door(), pages).run_gateway()


# --- by Hypercorn


class Application:
    """An ASGI application that asks for what is wanted here: it listens for the client's hang-up all the time."""

    def __init__(self) -> None:
        self.told = Told()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("nothing but HTTP is served")
        if scope["method"] == "GET":
            await whole(send, self.told.as_json())
            return
        asked = b""
        while (message := await receive())["type"] == "http.request":
            asked += message["body"]
            if not message["more_body"]:
                break
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_gone, receive, nursery.cancel_scope)
            await self._answer(asked, send)
            nursery.cancel_scope.cancel()

    async def _until_gone(self, receive: Any, scope: trio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.told.hung_up_at = time.monotonic()
        scope.cancel()

    async def _answer(self, asked: bytes, send: Any) -> None:
        kind, _, chunks = prompt_of(asked)
        if kind == b"wait":
            await trio.sleep_forever()
        if json.loads(asked).get("stream"):
            await self._stream(kind, chunks, send)
        else:
            await whole(send, BODY)

    async def _stream(self, kind: bytes, chunks: int, send: Any) -> None:
        fields = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})

        async def send_chunk(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        await stream(kind, chunks, send_chunk, self.told)
        await send({"type": "http.response.body", "body": DONE, "more_body": False})


async def whole(send: Any, body: bytes) -> None:
    fields = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def serve_hypercorn(port: int) -> None:
    from hypercorn.config import Config  # type: ignore[import-not-found]
    from hypercorn.trio import serve  # type: ignore[import-not-found]

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.errorlog = None
    config.backlog = 1024
    config.keep_alive_max_requests = 2**31
    await serve(Application(), config)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        trio.run({"ours": serve_ours, "hypercorn": serve_hypercorn}[sys.argv[1]], int(sys.argv[2]))
