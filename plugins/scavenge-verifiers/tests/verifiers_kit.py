"""What the tests share: a double of the gateway in a thread, and environments that are made as scavenge makes them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest
import scavenge_verifiers

from scavenge.plugin import Environment, Example, Rollout

SITE = Path(__file__).parent / "site"
"""A folder of installed packages."""
KEY = "the-key-of-the-gateway"
LOCAL = {"runtime": {"type": "subprocess"}, "harness": {"id": "plus-one-tasks"}}
"""An agent of ``verifiers.v1`` on this machine."""
HANG = (0, {})
"""The answer that never comes."""

Answer = tuple[int, Mapping[str, object]]


def has_classic() -> bool:
    """Whether the installed verifiers has the classic API."""
    return importlib.util.find_spec("verifiers.legacy") is not None


needs_classic = pytest.mark.skipif(not has_classic(), reason="verifiers has no classic API from 0.4 on")


def reply(text: str | None, **message: object) -> Answer:
    """A completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    document = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return 200, document


def refusal(status: int, outcome: str, message: str, **more: object) -> Answer:
    """An error reply as the gateway gives it, after two attempts."""
    attempt = {"endpoint": "http://ep1/v1", "outcome": outcome, "http_status": status, "message": message}
    attempts = [{**attempt, "started_time": 1.0, "duration_s": 0.5}] * 2
    error = {"message": f"{outcome} (HTTP {status}): {message}", "type": "server_error", "code": outcome}
    ours = {"outcome": outcome, "message": message, "http_status": status, "attempts": attempts, **more}
    return status, {"error": error, "scavenge": ours}


TOO_LONG = refusal(400, "rejected", "This model's maximum context length is 8 tokens", context_length=True)


@attrs.define
class Asked:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def last(self) -> str:
        """The text of the last message."""
        return str(self.body["messages"][-1]["content"])


@attrs.define
class Door:
    """A double of the gateway: it answers what ``answer`` says, and notes who hangs up on :data:`HANG`."""

    answer: Callable[[Asked], Answer]
    asked: list[Asked] = attrs.field(factory=list)
    waiting: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    gone: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    base_url: str = ""
    api_key: str = KEY


@contextmanager
def open_door(answer: Callable[[Asked], Answer]) -> Iterator[Door]:
    """A double on a free port."""
    door = Door(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            door.asked.append(asked)
            status, document = answer(asked)
            if not status:
                door.waiting.release()
                self.rfile.read(1)
                door.gone.release()
                self.close_connection = True
                return
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    door.base_url = f"http://127.0.0.1:{server.server_port}/session/s1/v1"
    try:
        yield door
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make(name: str, **arguments: object) -> Environment:
    """The environment, made as scavenge makes it, but for the checks of its configuration's form."""
    kinds = {kind.name: kind for kind in scavenge_verifiers.scavenge_environments()}
    kind = kinds[name]
    return kind.create(kind.config(arguments))


@asynccontextmanager
async def opened(name: str, **arguments: object) -> AsyncIterator[Environment]:
    """The environment while it is open."""
    environment = make(name, **arguments)
    await environment.open()
    try:
        yield environment
    finally:
        await environment.close()


def rows_of(name: str, **arguments: object) -> list[Example]:
    """The examples of an environment."""

    async def read() -> list[Example]:
        async with opened(name, **arguments) as environment:
            return await asyncio.to_thread(lambda: list(environment.examples()))

    return asyncio.run(read())


def played(name: str, door: Any, **arguments: object) -> Rollout:
    """The rollout of an environment's first example."""

    async def play() -> Rollout:
        async with opened(name, **arguments) as environment:
            return await environment.play(next(iter(environment.examples())), door)

    return asyncio.run(play())
