"""What a request and a streamed chunk cost in our HTTP layer, beside h11 on a Trio stream and httpx's own pool.

Run ``python benchmarks/http_layer.py``; it takes less than a minute. Prints CPU microseconds of the client process, the
best of a few rounds in turn; compare the ratios. The server is another process, so its time does not count. Goals: a
request at most 200 µs, at 2 000 in flight at most 1.5 times that at 32; a chunk at most 10 µs in bursts, 40 µs paced,
of which noting what flows is at most 1 µs; a chunk that is handed on to a client (who drops it here) at most 8 µs in
bursts.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import h11
import httpx
import trio

from scavenge.core.callbody import CallBody
from scavenge.core.flow import FlowMeter
from scavenge.edge.model_http import HttpModelTransport
from scavenge.runtime.ports import RelayRequest
from scavenge.types import ApiType, ChatRequest, Endpoint, EndpointId, Ok, Url

CHUNKS = 256
PACED_CHUNKS = 32
PACE_S = 0.02
HOLD_S = 0.5
PATH = "/v1/chat/completions"
WORDS = (" word", " an", ",", " other", " more", ".")

One: TypeAlias = Callable[[], Awaitable[object]]


def asking(kind: str) -> ChatRequest:
    """A request that the server answers as *kind* says: ``plain``, ``held``, ``burst`` or ``paced``."""
    stream = kind in ("burst", "paced")
    return ChatRequest([{"role": "user", "content": "x" * 200}], {"max_tokens": 64, "user": kind}, stream=stream)


def body_of(kind: str) -> bytes:
    request = asking(kind)
    return json.dumps({"model": "m", "messages": request.messages, **request.options}).encode()


# --- the server


def canned_replies() -> tuple[bytes, bytes, list[bytes]]:
    """The head of a streamed reply, a plain reply of 1.5 KB, and a stream's tokens, each in a chunk of its own."""
    message = {"role": "assistant", "content": "word " * 260}
    document = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    head = b"HTTP/1.1 200 OK\r\nserver: canned\r\n"
    plain = b"%scontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (head, len(document), document)
    base = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1, "model": "org/model"}
    choice = {"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": None}
    said = [{**choice, "delta": {"content": WORDS[number % len(WORDS)]}} for number in range(CHUNKS - 2)]
    choices = [*said, {**choice, "finish_reason": "stop"}]
    pieces = [b"data: " + json.dumps({**base, "choices": [one]}).encode() + b"\n\n" for one in choices]
    pieces.append(b"data: [DONE]\n\n")
    streamed = head + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return streamed, plain, [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]


class Server:
    """Answers every request with the canned reply that it asks for."""

    def __init__(self) -> None:
        self._head, self._plain, self._chunks = canned_replies()
        self._burst = self._head + b"".join(self._chunks) + b"0\r\n\r\n"

    async def answer(self, stream: trio.SocketStream) -> None:
        held = b""
        async for data in stream:
            held += data
            while (end := held.find(b"\r\n\r\n")) >= 0:
                lines = held[:end].lower().split(b"\r\n")
                length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
                if len(held) < end + 4 + length:
                    break
                await self._reply(stream, held[end : end + 4 + length])
                held = held[end + 4 + length :]

    async def _reply(self, stream: trio.SocketStream, asked: bytes) -> None:
        if b'"burst"' in asked:
            await stream.send_all(self._burst)
        elif b'"paced"' in asked:
            await stream.send_all(self._head)
            for piece in self._chunks[-PACED_CHUNKS:]:
                await stream.send_all(piece)
                await trio.sleep(PACE_S)
            await stream.send_all(b"0\r\n\r\n")
        else:
            await trio.sleep(HOLD_S if b'"held"' in asked else 0)
            await stream.send_all(self._plain)


async def serve(port: int) -> None:
    await trio.serve_tcp(Server().answer, port, host="127.0.0.1")


# --- the clients


@asynccontextmanager
async def ours(port: int, kind: str) -> AsyncIterator[One]:
    client = HttpModelTransport().open_client(Endpoint(EndpointId("p"), "m", Url(f"http://127.0.0.1:{port}/v1")))
    request = asking(kind)

    async def one() -> None:
        answer = await client.ask(request)
        assert isinstance(answer.outcome, Ok), answer

    try:
        yield one
    finally:
        client.close()


@asynccontextmanager
async def ours_noting(port: int, kind: str) -> AsyncIterator[One]:
    """As in a run: what flows is noted for the gate."""
    client = HttpModelTransport().open_client(Endpoint(EndpointId("p"), "m", Url(f"http://127.0.0.1:{port}/v1")))
    request, meter = asking(kind), FlowMeter(trio.current_time())

    async def one() -> None:
        stream = meter.begin(trio.current_time())
        answer = await client.ask(request, stream)
        assert isinstance(answer.outcome, Ok), answer
        assert stream.chunks > 1, stream
        meter.end(stream, trio.current_time(), float(stream.chunks))

    try:
        yield one
    finally:
        client.close()


class Drop:
    """A client that takes everything at once, and drops it."""

    begun = False

    async def take(self, events: bytes) -> None:
        self.begun = True
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def ours_relaying(port: int, kind: str) -> AsyncIterator[One]:
    """As in a gateway: the stream is noted and handed on."""
    client = HttpModelTransport().open_client(Endpoint(EndpointId("p"), "m", Url(f"http://127.0.0.1:{port}/v1")))
    body, meter = CallBody(body_of(kind)), FlowMeter(trio.current_time())

    async def one() -> None:
        stream, sink = meter.begin(trio.current_time()), Drop()
        answer = await client.ask(RelayRequest(ApiType.CHAT_COMPLETIONS, body, True, sink), stream)
        assert isinstance(answer.outcome, Ok), answer
        assert sink.begun
        meter.end(stream, trio.current_time(), float(stream.chunks))

    try:
        yield one
    finally:
        client.close()


@asynccontextmanager
async def ours_under_httpx(port: int, kind: str) -> AsyncIterator[One]:
    client = HttpModelTransport().open_client(Endpoint(EndpointId("p"), "m", Url(f"http://127.0.0.1:{port}/v1")))
    body = body_of(kind)

    async def one() -> None:
        (await client.http.post("chat/completions", content=body)).raise_for_status()

    try:
        yield one
    finally:
        client.close()


@asynccontextmanager
async def httpx_default(port: int, kind: str) -> AsyncIterator[One]:
    body = body_of(kind)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(trust_env=False, verify=False, limits=limits, timeout=None) as client:

        async def one() -> None:
            (await client.post(f"http://127.0.0.1:{port}{PATH}", content=body)).raise_for_status()

        yield one


@asynccontextmanager
async def bare_h11(port: int, kind: str) -> AsyncIterator[One]:
    idle: list[tuple[trio.SocketStream, h11.Connection]] = []
    body = body_of(kind)
    headers = [("host", "h"), ("content-type", "application/json"), ("content-length", str(len(body)))]

    async def one() -> None:
        stream, conn = (
            idle.pop() if idle else (await trio.open_tcp_stream("127.0.0.1", port), h11.Connection(h11.CLIENT))
        )
        parts = [h11.Request(method="POST", target=PATH, headers=headers), h11.Data(data=body), h11.EndOfMessage()]
        await stream.send_all(b"".join(conn.send(part) or b"" for part in parts))
        while not isinstance(event := conn.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                conn.receive_data(await stream.receive_some(65536))
        conn.start_next_cycle()
        idle.append((stream, conn))

    try:
        yield one
    finally:
        for stream, _ in idle:
            stream.socket.close()


# --- measuring


async def cost(way: Callable[..., object], port: int, kind: str, requests: int, workers: int) -> float:
    """CPU microseconds a request of *requests* sent by *workers* tasks, the making of connections left out."""
    async with way(port, kind) as one:  # type: ignore[attr-defined]

        async def work() -> None:
            for _ in range(requests // workers):
                await one()

        await together(one, workers)
        began = time.process_time()
        await together(work, workers)
        return (time.process_time() - began) / requests * 1e6


async def together(work: One, tasks: int) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(work)


def best(ways: list[Callable[..., object]], rounds: int, *given: object) -> list[float]:
    """The lowest cost of each way over some rounds, in which they take turns."""
    found = [[trio.run(cost, way, *given) for way in ways] for _ in range(rounds)]
    return [min(costs) for costs in zip(*found, strict=True)]


def report(port: int, requests: int, streams: int) -> None:
    print(f"µs a request {'ours':>8} {'under httpx':>12} {'bare h11':>9} {'httpx':>8}  ours/h11 ours/httpx")
    at_32 = 0.0
    for workers in (1, 32, 256):
        mine, under, bare = best([ours, ours_under_httpx, bare_h11], 3, port, "plain", requests, workers)
        (default,) = best([httpx_default], 1, port, "plain", 256, workers)
        at_32 = mine if workers == 32 else at_32
        print(f"{workers:>12} {mine:>8.0f} {under:>12.0f} {bare:>9.0f} {default:>8.0f}{mine / bare:>10.2f}", end="")
        print(f"{mine / default:>11.3f}")
    mine, under, bare = best([ours, ours_under_httpx, bare_h11], 1, port, "held", 4_000, 2_000)
    print(f"{2_000:>12} {mine:>8.0f} {under:>12.0f} {bare:>9.0f} {'-':>8}{mine / bare:>10.2f} {'-':>10}", end="")
    print(f"   {mine / at_32:.2f} times that at 32")
    for kind, chunks, workers in (("burst", CHUNKS, 8), ("paced", PACED_CHUNKS, streams)):
        found = best([ours, ours_noting, ours_relaying, bare_h11], 4, port, kind, streams, workers)
        mine, noting, relaying, bare = (cost / chunks for cost in found)
        print(f"µs a streamed chunk, {kind}: ours {noting:.1f} ({mine:.1f} without noting what flows), ", end="")
        print(f"bare h11 {bare:.1f}, {noting / bare:.2f} times")
        print(f"µs a relayed chunk, {kind}: ours {relaying:.1f}, bare h11 {bare:.1f}, {relaying / bare:.2f} times")


def wait_for(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options.add_argument("--requests", type=int, default=1024)
    options.add_argument("--streams", type=int, default=64)
    given = options.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # 2 000 connections need as many descriptors
    if given.serve:
        trio.run(serve, given.serve)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([sys.executable, __file__, "--serve", str(port)]) as server:
        try:
            wait_for(port)
            report(port, given.requests, given.streams)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
