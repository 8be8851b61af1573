"""An OpenAI-compatible server in a process of its own, which fails or kills itself in the midst of its work.

``python mortal_server.py WORD ...`` serves on a free loopback port, which it writes as its first line. It ends with its
standard input, so that it does not outlive who started it. Each request gets the next of the words, and after the last
the first again, so that what happens depends on how many requests came and never on how fast anything is. It needs
nothing but Python, and starts in no time.

Words: ``ok``; a number is the status of an error; ``reset``, ``cut`` and ``abort`` break this one reply off midway;
``die``, ``die-begun`` and ``die-midway`` kill the process, and with it every other reply that is being made: before
anything was said, after the response's head, and between two tokens of it. What happens midway waits for a request for
``/v1/go-on`` where the word ends in ``-when-told``, so that whoever reads can have read what came before.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from typing import Any

TOKEN_S = 0.005
MODEL = "sum"
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def message_for(body: Mapping[str, Any]) -> dict[str, Any]:
    """The sum of the numbers in the last message, by a call of the first tool where there are tools to use."""
    last = body["messages"][-1]
    content = last["content"]
    text = content if isinstance(content, str) else " ".join(part["text"] for part in content)
    numbers = [int(number) for number in re.findall(r"[0-9]+", text)]
    if body.get("tools") and last["role"] == "user":
        name = body["tools"][0]["function"]["name"]
        arguments = json.dumps({"a": numbers[0], "b": numbers[1]})
        call = {"id": f"call-{numbers[0]}-{numbers[1]}", "type": "function"}
        return {"content": None, "tool_calls": [{**call, "function": {"name": name, "arguments": arguments}}]}
    return {"content": f"The answer is {sum(numbers)}"}


def deltas_of(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The same piece by piece."""
    for call in message.get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        yield {"tool_calls": [{**call, "index": 0, "function": {**call["function"], "arguments": ""}}]}
        for at in range(0, len(arguments), 4):
            yield {"tool_calls": [{"index": 0, "function": {"arguments": arguments[at : at + 4]}}]}
    for word in re.findall(r"\s*\S+", message["content"] or ""):
        yield {"content": word}


class Handler(BaseHTTPRequestHandler):
    """Answers one request after the other on a connection, each as its word says."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    words: Iterator[str]
    lock = threading.Lock()
    told = threading.Semaphore(0)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send_json(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        if self.path == "/v1/go-on":
            self.told.release()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/chat/completions":
            return self._send_json(404, {"error": {"message": f"{self.path} does not exist", "code": 404}})
        with self.lock:
            word = next(self.words)
        if word == "die":
            die()
        if word.isdigit():
            return self._send_json(int(word), {"error": {"message": f"told to answer {word}", "code": int(word)}})
        message = message_for(body)
        finish = "tool_calls" if "tool_calls" in message else "stop"
        if body.get("stream"):
            return self._stream(word, list(deltas_of(message)), finish)
        time.sleep(TOKEN_S)
        if word != "ok":
            return self._break(word)
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        document = {"object": "chat.completion", "choices": [choice], "usage": USAGE}
        return self._send_json(200, {**head(), **document})

    def _stream(self, word: str, deltas: Sequence[Mapping[str, Any]], finish: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._send_choice({"role": "assistant", "content": ""})
        if word == "die-begun":
            self._break(word)
        for number, delta in enumerate(deltas, 1):
            time.sleep(TOKEN_S)
            self._send_choice(delta)
            if word != "ok" and number == len(deltas) // 2:
                if word.endswith("-when-told"):
                    self.told.acquire()
                return self._break(word.removesuffix("-when-told"))
        self._send_choice({}, finish)
        self._send_event(json.dumps({**head(), "object": "chat.completion.chunk", "choices": [], "usage": USAGE}))
        self._send_event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _break(self, word: str) -> None:
        self.wfile.flush()
        self.close_connection = True
        if word.startswith("die"):
            die()
        if word == "abort":
            self._send_choice({}, "abort")
            self._send_event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        if word == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.connection.close()

    def _send_choice(self, delta: Mapping[str, Any], finish: str | None = None) -> None:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        self._send_event(json.dumps({**head(), "object": "chat.completion.chunk", "choices": choices}))

    def _send_event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        self.wfile.flush()

    def _send_json(self, status: int, document: Mapping[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def head() -> dict[str, Any]:
    """What every reply and every piece of one begins with."""
    return {"id": "chatcmpl-1", "created": 1, "model": MODEL}


def die() -> None:
    """End without a word to anybody."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def end_with_input() -> None:
    """End when nobody holds the other end of the standard input any more."""
    sys.stdin.read()
    os._exit(0)


class Listener(ThreadingHTTPServer):
    """Takes connections of clients, who may leave whenever they like."""

    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none."""


def main(words: Sequence[str]) -> None:
    """Serve until the end of the process."""
    Handler.words = cycle(words)
    with Listener(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=end_with_input, daemon=True).start()
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
