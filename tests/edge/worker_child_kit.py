"""A worker process as a test drives it: frames over a socketpair, and a double of the run's gateway on loopback."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

from scavenge.calls import Relayed
from scavenge.core.doorwords import error_body, reply_body
from scavenge.core.frames import FrameReader, encode
from scavenge.core.message_shapes import FROM_WORKER
from scavenge.core.worker_messages import Beat, Broken, FromWorker, Load, Play, Ready, ToWorker
from scavenge.edge.worker_process import COMMAND
from scavenge.errors import PoisonRequest, UnknownSession
from scavenge.rollouts import Example
from scavenge.types import Attempt, Lost, ModelAddress, Rejected, Reply, RequestFailed, Url

FOLDER = Path(__file__).parent
PATIENCE_S = 60.0
"""How long a test waits for what must come."""
NOWHERE = ModelAddress("http://127.0.0.1:9/session/none/v1", "no key")
ATTEMPT = Attempt(Url("http://one/v1"), "ok", 1.5, 0.25, 200, 0.125, 10.0)
T = TypeVar("T", bound=FromWorker)


class Child:
    """A worker that was started, not loaded."""

    def __init__(self, log: Path) -> None:
        self.beats: list[Beat] = []
        self.log = log
        self.name = ""
        self._waiting: list[FromWorker] = []
        self._frames: FrameReader[FromWorker] = FrameReader(FROM_WORKER)
        self._socket, theirs = socket.socketpair()
        read_end, self._life = os.pipe()
        command = [*COMMAND, "--socket", str(theirs.fileno()), "--life", str(read_end)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(), read_end),
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        theirs.close()
        os.close(read_end)

    def load(self, name: str, env_args: str = "") -> Ready | Broken:
        """Have an environment of ``worker_child_envs`` loaded, or any with a colon or a plugin's."""
        self.name = name
        env_id = name if ":" in name or name.islower() else f"worker_child_envs:{name}"
        self.say(Load(env_id, env_args, str(FOLDER), "eval.toml: eval[0]"))
        answer = self.hear()
        assert isinstance(answer, Ready | Broken)
        return answer

    def play(self, rollout: int, model: ModelAddress = NOWHERE, /, **data: object) -> None:
        self.say(Play(rollout, Example(f"e{rollout}", data), model))

    def say(self, message: ToWorker) -> None:
        self._socket.sendall(encode(message))

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear(self) -> FromWorker:
        """The next message that is no :class:`Beat`."""
        message = self.hear_or_end()
        assert message is not None, self.printed()
        return message

    def hear_a(self, kind: type[T]) -> T:
        message = self.hear()
        assert isinstance(message, kind), message
        return message

    def hear_or_end(self) -> FromWorker | None:
        until = time.monotonic() + PATIENCE_S
        while not self._waiting:
            assert select.select([self._socket], [], [], max(0, until - time.monotonic()))[0], self.printed()
            if not self._more():
                return None
        return self._waiting.pop(0)

    def hear_beat(self) -> Beat:
        """The next beat; what else comes waits."""
        seen = len(self.beats)
        while len(self.beats) == seen:
            assert select.select([self._socket], [], [], PATIENCE_S)[0], self.printed()
            assert self._more(), self.printed()
        return self.beats[-1]

    def _more(self) -> bool:
        try:
            data = self._socket.recv(2**20)
        except ConnectionResetError:
            data = b""
        for message in self._frames.feed(data):
            if isinstance(message, Beat):
                self.beats.append(message)
            else:
                self._waiting.append(message)
        return bool(data)

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_printed(self, text: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while text not in self.printed():
            assert time.monotonic() < until, self.printed()
            time.sleep(0.02)

    def wait_end(self) -> int:
        """The exit status, once everything that it said has been heard."""
        while (message := self.hear_or_end()) is not None:
            raise AssertionError(f"it said more: {message}")
        return self.process.wait(PATIENCE_S)

    def hang_up(self) -> None:
        self._socket.close()

    def close(self) -> None:
        self._socket.close()
        os.close(self._life)  # the guard sees to the rest
        self.process.wait(PATIENCE_S)


@contextmanager
def open_child(folder: Path) -> Iterator[Child]:
    child = Child(folder / "worker.log")
    try:
        yield child
    finally:
        child.close()


class Gateway(ThreadingHTTPServer):
    """Answers by what the last message says; keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.hung = threading.Semaphore(0)  # how many requests have begun to hang
        self.gone = threading.Semaphore(0)  # how many of them were hung up
        self.connections = 0
        self.drop_next = threading.Event()  # whether to close the next connection that is used again

    def address(self, session: str = "s1") -> ModelAddress:
        return ModelAddress(f"http://127.0.0.1:{self.server_port}/session/{session}/v1", "the key")

    def answer(self, said: str) -> tuple[int, bytes]:
        match said:
            case "reject":
                return error_body(RequestFailed(Rejected("too long", 400, context_length=True), [ATTEMPT]))
            case "lose":
                return error_body(RequestFailed(Lost("gone"), [ATTEMPT, ATTEMPT]))
            case "poison":
                return error_body(PoisonRequest("lost 21 times"))
            case "unknown":
                return error_body(UnknownSession("the session is over"))
            case "unauthorized":
                return 401, b'{"error": {"message": "no such token", "type": "auth", "code": "token"}}'
            case "nonsense":
                return 200, b"<html>"
            case _:
                raw = {
                    "choices": [{"index": 0, "message": {"role": "assistant", "content": f"you said {said}"},
                                 "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
                }  # fmt: skip
                return 200, reply_body(Relayed(Reply("", "stop", raw=raw), (ATTEMPT,)))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Gateway

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1
        self.requests = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.requests += 1
        if self.requests > 1 and self.server.drop_next.is_set():
            self.server.drop_next.clear()
            self.close_connection = True
            return
        self.server.asked.append((self.path, self.headers["authorization"], body))
        said = body["messages"][-1]["content"] if body["messages"] else ""
        if said == "hang":
            self.server.hung.release()
            self.close_connection = self.rfile.read(1) == b""
            self.server.gone.release()
            return
        if said == "cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
            self.close_connection = True
            return
        status, reply = self.server.answer(said)
        self.send_response(status)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def open_gateway() -> Iterator[Gateway]:
    with Gateway() as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        serving.start()
        try:
            yield server
        finally:
            server.shutdown()
            serving.join()
