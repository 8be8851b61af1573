"""The HTTP and the command source hold to what the kit for authors of sources asks of every one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from raw_server import Conn, raw_server

from scavenge.edge.sources.command import CommandSourceConfig, open_command
from scavenge.edge.sources.http import open_http
from scavenge.edge.sources.http_config import HttpSourceConfig
from scavenge.testing import SourceFault, check_endpoint_source

TOKEN = "opal-zebra-hunter2"


@attrs.define
class Servers:
    """Which model servers there are. Each change makes it others."""

    count: int = 2
    turn: int = 0

    def urls(self) -> list[str]:
        return [f"http://10.0.{self.turn}.{number}:8000/v1" for number in range(self.count)]

    async def change(self) -> None:
        await trio.lowlevel.checkpoint()
        self.turn, self.count = self.turn + 1, 1 + (self.count % 3)

    def document(self) -> str:
        rows = [{"endpoint_id": "a", "model": "m", "url": url, "key": "POOL_KEY"} for url in self.urls()]
        return json.dumps({"endpoint": rows})


# --- http


@attrs.define
class Page:
    """A page that lists the servers, with an ETag; ``fault`` answers in its place."""

    servers: Servers = attrs.field(factory=Servers)
    fault: Callable[[Conn], Awaitable[None]] | None = None
    unchanged: int = 0

    async def serve(self, conn: Conn) -> None:
        while True:
            head, _ = await conn.request()
            if self.fault is not None:
                await self.fault(conn)
                return
            body, etag = self.servers.document().encode(), f'"{self.servers.turn}"'
            if f"if-none-match: {etag}".encode() in head.lower():
                self.unchanged += 1
                await conn.send(f"HTTP/1.1 304 Not Modified\r\netag: {etag}\r\n\r\n".encode())
            else:
                await conn.send(
                    f"HTTP/1.1 200 OK\r\netag: {etag}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
                )

    @asynccontextmanager
    async def faulty(self, fault: Callable[[Conn], Awaitable[None]]) -> AsyncIterator[None]:
        self.fault = fault
        try:
            yield
        finally:
            self.fault = None


def saying(data: bytes) -> Callable[[Conn], Awaitable[None]]:
    async def fault(conn: Conn) -> None:
        await conn.send(data)

    return fault


async def silent(conn: Conn) -> None:
    await conn.until_gone()


def whole(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{more}content-length: {len(body)}\r\n\r\n".encode() + body


HTTP_FAULTS = {
    "it has a fault": saying(whole(b"", "503 Service Unavailable", "retry-after: 0\r\n")),
    "the token is refused": saying(whole(TOKEN.encode(), "401 Unauthorized")),
    "the page is gone": saying(whole(b"", "404 Not Found")),
    "it says nothing": silent,
    "it ends in the middle": saying(b'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"endpoint": []}'),
    "it closes": saying(b""),
    "it is a login page": saying(whole(b"<html>log in</html>")),
    "it is empty": saying(whole(b"")),
    "it is an error in JSON": saying(whole(b'[{"error": "not leader"}]')),
    "it redirects for ever": saying(whole(b"", "302 Found", f"location: /?token={TOKEN}\r\n")),
    "it is a comment": saying(whole(b"# no backend\n")),
}


async def test_the_http_source_is_one(monkeypatch):
    monkeypatch.setenv("LIST_TOKEN", TOKEN)
    page = Page()
    async with raw_server(page.serve) as server:
        config = HttpSourceConfig(f"http://127.0.0.1:{server.port}/list", token_var="LIST_TOKEN", timeout=1)
        await check_endpoint_source(
            lambda: open_http(config),
            expect=page.servers.urls,
            change=page.servers.change,
            faults=[SourceFault(name, partial(page.faulty, fault)) for name, fault in HTTP_FAULTS.items()],
            secrets=[TOKEN],
            max_steps=100,
        )
    assert page.unchanged > 0


# --- command


COMMAND_FAULTS = {
    "it fails": "exit 1",
    "it fails after a listing": "cat list; exit 1",
    "it is killed in the middle": "head -c 40 list; kill -KILL $$",
    "it hangs": "cat list; exec sleep 600",
    "it prints nothing": "true",
    "it prints half": "head -c 40 list",
    "it prints a comment": "echo '# no servers found'",
    "it prints an error in JSON": """echo '{"error": "not leader"}'""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").write_text("cat list")
    return tmp_path


async def test_the_command_source_is_one(folder):
    servers = Servers()

    def write(name: str, text: str) -> None:
        (folder / "new").write_text(text)
        (folder / "new").replace(folder / name)

    async def change() -> None:
        await servers.change()
        write("list", servers.document())

    @asynccontextmanager
    async def working(script: str) -> AsyncIterator[None]:
        write("work", script)
        try:
            yield
        finally:
            write("work", "cat list")

    write("list", servers.document())
    config = CommandSourceConfig(["/bin/sh", "./work"], timeout=1, cwd=folder)
    await check_endpoint_source(
        lambda: open_command(config),
        expect=servers.urls,
        change=change,
        faults=[SourceFault(name, partial(working, script)) for name, script in COMMAND_FAULTS.items()],
        max_steps=40,
    )
