"""An OpenAI-compatible server for tests that says what a function tells it to say, well-formed or not."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import attrs

BOUND_S = 30.0
"""How long a wait may take before the test fails."""


@attrs.frozen
class Ask:
    """One request that a server got; ``number`` counts from 1."""

    number: int
    text: str
    body: Mapping[str, object]
    headers: Mapping[str, str]


@attrs.frozen
class Raw:
    """A reply byte for byte, after which the connection is closed; with ``reset`` by a reset."""

    data: bytes
    reset: bool = False


@attrs.frozen
class Says:
    """A reply with a status of its own and a body."""

    status: int
    body: bytes
    headers: Mapping[str, str] = attrs.field(factory=dict)


Reply = str | Raw | Says
"""A string is what the model says."""


def answered(ask: Ask) -> Reply:
    """Tell the sum that was asked for."""
    return str(sum(int(word) for word in ask.text.split() if word.isdigit()))


class Server:
    """An OpenAI-compatible server on a loopback port, whose replies are decided by a function.

    The function runs in a thread of its own for each request, and may wait.
    """

    def __init__(self, answer: Callable[[Ask], Reply] = answered, *, model: str = "m", probe: Reply | None = None):
        self.answer, self.model, self.probe_reply = answer, model, probe
        self.asks: list[Ask] = []
        self.probes: list[Mapping[str, str]] = []
        self.in_flight = self.peak = 0
        self._changed = threading.Condition()
        self._http = _Listener(("127.0.0.1", 0), _handler_of(self))
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def wait_asked(self, count: int) -> None:
        """Wait until so many requests have come."""
        self._wait(lambda: len(self.asks) >= count, f"{count} requests; {len(self.asks)} came")

    def wait_probed(self, count: int = 1) -> None:
        """Wait until so many probes have come."""
        self._wait(lambda: len(self.probes) >= count, f"{count} probes; {len(self.probes)} came")

    def wait_more(self, count: int) -> None:
        """Wait until so many requests more than now have come."""
        self.wait_asked(len(self.asks) + count)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, BOUND_S), f"waited in vain for {what}"

    def probed(self, headers: Mapping[str, str]) -> Reply:
        with self._changed:
            self.probes.append(headers)
            self._changed.notify_all()
        listed = json.dumps({"data": [{"id": self.model}]}).encode()
        return self.probe_reply or Says(200, listed)

    def asked(self, body: Mapping[str, object], headers: Mapping[str, str]) -> Reply:
        with self._changed:
            ask = Ask(len(self.asks) + 1, body["messages"][-1]["content"], body, headers)  # type: ignore[index]
            self.asks.append(ask)
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            self._changed.notify_all()
        try:
            return self.answer(ask)
        finally:
            with self._changed:
                self.in_flight -= 1


class _Listener(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what these tests are about."""


def _handler_of(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self._send(server.probed(dict(self.headers)), stream=False)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._send(server.asked(body, dict(self.headers)), stream=body.get("stream", False))

        def _send(self, reply: Reply, *, stream: bool) -> None:
            if isinstance(reply, Raw):
                self.wfile.write(reply.data)
                self.close_connection = True
                if reply.reset:
                    self.wfile.flush()
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                return
            if isinstance(reply, str):
                kind = "text/event-stream" if stream else "application/json"
                reply = Says(200, (streamed if stream else whole)(reply), {"content-type": kind})
            self.send_response(reply.status)
            for name, value in {"content-length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

    return Handler


USAGE = {"prompt_tokens": 3, "completion_tokens": 2}


def streamed(text: str, finish: str | None = "stop") -> bytes:
    """The body of a streaming reply; without *finish* it is cut."""
    first = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]}
    if finish is None:
        return _event(first)
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": USAGE}
    return _event(first) + _event(last) + b"data: [DONE]\n\n"


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def whole(text: str) -> bytes:
    """The body of a reply in one piece."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": USAGE}).encode()
