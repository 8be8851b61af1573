"""What stories of ``scavenge serve`` and ``scavenge exec`` are made of: a plain client, and processes that serve."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import attrs
from run_kit import Folder, Running, started
from told_server import BOUND_S, Ask, Reply, answered

GATEWAY = """
endpoints_path = "endpoints.toml"
elastic = true
elastic_poll_interval = 0.1
[gateway]
port = 0
"""


def gateway_file(folder: Folder, more: str = "") -> None:
    """Write ``gateway.toml``, which has no eval."""
    (folder.path / "gateway.toml").write_text(GATEWAY + more)


class Holding:
    """Answers the first few requests, and holds the others until it is let go."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.go = threading.Event()

    def __call__(self, ask: Ask) -> Reply:
        if ask.number > self.first:
            self.go.wait(BOUND_S)
        return answered(ask)


@attrs.frozen
class Said:
    """What a client got."""

    status: int
    body: str

    @property
    def text(self) -> str:
        """What the model says in it."""
        return json.loads(self.body)["choices"][0]["message"]["content"]


@attrs.frozen
class Client:
    """An OpenAI client as small as can be."""

    base_url: str
    token: str | None = None

    def get(self, path: str) -> Said:
        return self._send("GET", path, None)

    def ask(self, question: str = "What is 1 + 1 ?", *, stream: bool = False, model: str = "pool") -> Said:
        """Ask, and read the whole reply. Raises :class:`OSError` or an error of :mod:`http.client` for less."""
        messages = [{"role": "user", "content": question}]
        return self._send("POST", "/chat/completions", {"model": model, "messages": messages, "stream": stream})

    def _send(self, method: str, path: str, document: object) -> Said:
        url = urlsplit(self.base_url)
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=BOUND_S)
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        try:
            connection.request(method, url.path + path, None if document is None else json.dumps(document), headers)
            response = connection.getresponse()
            return Said(response.status, response.read().decode())
        finally:
            connection.close()

    @contextmanager
    def asking(self, **more: object) -> Iterator[Pending]:
        """Ask in a thread of its own while the block runs."""
        pending = Pending()
        thread = threading.Thread(target=pending.run, args=(self, more), daemon=True)
        thread.start()
        yield pending
        thread.join(BOUND_S)
        assert not thread.is_alive()


@attrs.define
class Pending:
    """What becomes of a request under way: known when its block was left."""

    said: Said | None = None
    error: Exception | None = None

    def run(self, client: Client, more: dict[str, object]) -> None:
        try:
            self.said = client.ask(**more)  # type: ignore[arg-type]
        except (OSError, http.client.HTTPException) as exc:
            self.error = exc


@contextmanager
def serving(
    folder: Folder, *arguments: str, token: str | None = None, **more: object
) -> Iterator[tuple[Running, Client]]:
    """A ``scavenge serve`` that listens, and a client of it."""
    with started(folder, "serve", *arguments, **more) as running:  # type: ignore[arg-type]
        running.wait_out("/v1\n")
        yield running, Client(running.out.strip(), token)


def last_line(told: str) -> str:
    """What was said at the end."""
    return told.splitlines()[-1]
