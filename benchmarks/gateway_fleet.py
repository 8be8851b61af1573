"""Canned inference servers for the gateway's benchmarks: every request is answered as its prompt says, cheaply.

``python benchmarks/gateway_fleet.py SERVERS`` serves that many ports from one process until it is killed, and prints
``ready PORT PORT ...`` once they listen. A prompt has ``kind=KIND hold=SECONDS chunks=COUNT``. A request for no stream
is answered by 1.5 KB after the hold. A stream is a ``burst``, which comes as a whole after the hold, or ``paced``,
with a hold before each chunk, whose text is the time when it was sent.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import sys
import time
from functools import cache

MODEL = "canned"
KEY = "sk-benchmark-0123456789abcdef0123456789"
COMPLETION = "chatcmpl-0123456789abcdef0123456789abcdef"

_ASKED = re.compile(rb"kind=(\w+) hold=([\d.]+) chunks=(\d+)")
_STREAM_ASKED = re.compile(rb'"stream": ?true')
_USAGE_ASKED = re.compile(rb'"include_usage": ?true')
_BASE = {"id": COMPLETION, "object": "chat.completion.chunk", "created": 1, "model": MODEL}
_USAGE = {"prompt_tokens": 20, "total_tokens": 270, "completion_tokens": 250, "prompt_tokens_details": None}
_STREAMED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def asking(kind: str = "burst", *, hold_s: float = 0.0, chunks: int = 200, stream: bool = False) -> bytes:
    """The body of a request that is answered so."""
    prompt = f"kind={kind} hold={hold_s:g} chunks={chunks} " + "Say what you think of this. " * 8
    asked = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": 256, "temperature": 0.7}
    return json.dumps({**asked, "stream": True} if stream else asked).encode()


def prompt_of(body: bytes) -> tuple[bytes, float, int]:
    """Kind, hold and chunks that a request asks for."""
    found = _ASKED.search(body)
    return (found[1], float(found[2]), int(found[3])) if found else (b"burst", 0.0, 1)


def whole(document: object) -> bytes:
    """A document as a whole answer."""
    body = json.dumps(document, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def event(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return b"data: " + json.dumps({**_BASE, "choices": [choice]}, separators=(",", ":")).encode() + b"\n\n"


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@cache
def beginning() -> bytes:
    return _STREAMED + framed(event({"role": "assistant", "content": ""}))


@cache
def ending(usage: bool) -> bytes:
    told = json.dumps({**_BASE, "choices": [], "usage": _USAGE}, separators=(",", ":")).encode()
    events = [event({}, "stop"), *([b"data: " + told + b"\n\n"] if usage else []), b"data: [DONE]\n\n"]
    return b"".join(framed(one) for one in events) + b"0\r\n\r\n"


@cache
def burst(chunks: int, usage: bool) -> bytes:
    words = (framed(event({"content": f" word{number}"})) for number in range(chunks))
    return beginning() + b"".join(words) + ending(usage)  # LiteLLM gives up on a model that says the same again


MESSAGE = {"role": "assistant", "content": "word " * 260}
ANSWER = whole(
    {
        **_BASE,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": MESSAGE, "logprobs": None, "finish_reason": "stop"}],
        "usage": _USAGE,
    }
)
MODELS = whole({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "canned"}]})
BEFORE, AFTER = event({"content": " w@"}).split(b"@")


class Server(asyncio.Protocol):
    """One connection: requests come one after the other, and each is answered as it asks."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.later = asyncio.get_running_loop().call_later
        self.held = b""

    def data_received(self, data: bytes) -> None:
        self.held += data
        while (end := self.held.find(b"\r\n\r\n")) >= 0:
            head = self.held[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.held) < end + 4 + length:
                return
            body, self.held = self.held[end + 4 : end + 4 + length], self.held[end + 4 + length :]
            self.answer(body) if head.startswith(b"post") else self.transport.write(MODELS)

    def answer(self, body: bytes) -> None:
        kind, hold_s, chunks = prompt_of(body)
        usage = _USAGE_ASKED.search(body) is not None
        streamed = _STREAM_ASKED.search(body) is not None
        if streamed and kind == b"paced":
            self.transport.write(beginning())
            self.later(hold_s, self.pace, hold_s, chunks, usage)
            return
        reply = burst(chunks, usage) if streamed else ANSWER
        self.later(hold_s, self.transport.write, reply) if hold_s else self.transport.write(reply)

    def pace(self, hold_s: float, left: int, usage: bool) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(framed(b"%b%.6f%b" % (BEFORE, time.monotonic(), AFTER)))
        if left > 1:
            self.later(hold_s, self.pace, hold_s, left - 1, usage)
        else:
            self.transport.write(ending(usage))


async def main(servers: int) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = asyncio.get_running_loop()
    listening = [await loop.create_server(Server, "127.0.0.1", 0, backlog=4096) for _ in range(servers)]
    print("ready", *(server.sockets[0].getsockname()[1] for server in listening), flush=True)
    await asyncio.gather(*(server.serve_forever() for server in listening))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
