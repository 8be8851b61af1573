"""Image archives at an HTTP server: read with GET, stored with PUT. S3 with a proxy, WebDAV, nginx, an artefact store.

Decides when a transfer that was cut goes on, and where: a download where it stopped, as long as the server still has
the same file; an upload from its beginning. Knows nothing of images.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import attrs
import trio

from scavenge.core.backoff import equal_jitter_s
from scavenge.edge.images.http_config import HttpStoreConfig
from scavenge.edge.images.http_way import Cut, Reply, Way, open_way
from scavenge.edge.images.pieces import local_pieces
from scavenge.edge.threads import LimitedThreads
from scavenge.runtime.ports import Report

CUTS = 5
"""How often in a row a download may be cut without a byte between."""
UPLOADS = 3
"""How often a file is sent from its beginning."""
PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 15.0

_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_EVERYTHING = 2**63
_ABSENT = frozenset({404, 410})
_STORED = frozenset({200, 201, 202, 204})


class HttpFiles:
    """The files below a URL, by their names."""

    def __init__(self, way: Way, upload: str, random: Random) -> None:
        self._way = way
        self._upload = upload
        self._random = random
        self._threads = LimitedThreads(2)

    @asynccontextmanager
    async def open_file(self, name: str, start: int = 0) -> AsyncIterator[AsyncIterator[bytes]]:
        """A file's bytes from *start* on, which goes on where a connection broke.

        Raises ``FileNotFoundError`` where the server does not have it, and :class:`scavenge.errors.StoreError`.
        """
        async with AsyncExitStack() as stack:
            download = _Download(self._way, name, start, self._pause, stack)
            await download.connect()
            yield download

    async def put_file(self, name: str, file: str, report: Report) -> None:
        """Store the file at the path *file* under a name. A server may keep what came of one that is cut.

        Raises :class:`scavenge.errors.StoreError`.
        """
        path = Path(file)
        size_bytes = (await self._threads.run(path.stat)).st_size
        headers = {"content-length": str(size_bytes), "content-type": "application/octet-stream"}
        content = partial(local_pieces, path, size_bytes, self._threads, report)
        for tries in range(1, UPLOADS + 1):
            try:
                async with self._way.reply(self._upload, name, headers, content) as reply:
                    if reply.status in _STORED:
                        return
                    raise self._way.refusal(name, reply)
            except Cut as exc:
                if tries == UPLOADS:
                    raise self._way.error(name, f"not stored after {tries} tries: {exc}") from None
            await self._pause(tries)

    async def _pause(self, tries: int) -> None:
        await trio.sleep(equal_jitter_s(tries - 1, PAUSE_FIRST_S, PAUSE_MAX_S, self._random))


@attrs.define(eq=False)
class _Download:
    """The bytes of a file, over as many connections as it takes.

    Invariant: ``at`` is how much of the file is behind what was given out; ``_skip`` bytes of the body come before it.
    """

    way: Way
    name: str
    at: int
    pause: Callable[[int], Awaitable[None]]
    connection: AsyncExitStack
    """Has what is open of the present connection, if any."""
    _reply: Reply | None = attrs.field(default=None, init=False)
    _skip: int = attrs.field(default=0, init=False)
    _begun: bool = attrs.field(default=False, init=False)
    """Whether the file was there."""
    _etag: str = attrs.field(default="", init=False)
    _total: int | None = attrs.field(default=None, init=False)
    _cuts: int = attrs.field(default=0, init=False)
    """How often in a row nothing came."""

    def __aiter__(self) -> _Download:
        return self

    async def __anext__(self) -> bytes:
        while True:
            reply = self._reply or await self.connect()
            try:
                if (piece := await reply.read()) is None:
                    self._check_end()
                    raise StopAsyncIteration
            except Cut as exc:
                await self._recover(exc)
                continue
            if fresh := piece[self._skip :]:
                self._skip, self._cuts = 0, 0
                self.at += len(fresh)
                return fresh
            self._skip -= len(piece)

    async def connect(self) -> Reply:
        """Make a connection, and have the reply's body begin in the right place."""
        while True:
            try:
                self._reply = await self._connect()
            except Cut as exc:
                await self._recover(exc)
            else:
                return self._reply

    async def _connect(self) -> Reply:
        headers = {"range": f"bytes={self.at}-"} if self.at else {}
        if self.at and self._etag.startswith('"'):  # a weak one tells of no bytes (RFC 9110, 13.1.5)
            headers["if-range"] = self._etag
        reply = await self.connection.enter_async_context(self.way.reply("GET", self.name, headers))
        self._skip, total = self._place(reply)
        self._check_same(reply.headers.get("etag", ""), total)
        self._begun = True
        return reply

    def _place(self, reply: Reply) -> tuple[int, int | None]:
        """How much of the body was given out before, and how long the file is."""
        status, length = reply.status, reply.headers.get("content-length", "")
        if status == 200:
            return self.at, int(length) if length.isdecimal() else None
        if status in _ABSENT and not self._begun:
            raise FileNotFoundError(self.name)
        if status in _ABSENT:
            raise self.way.error(self.name, "it was taken away while it was read")
        part = reply.headers.get("content-range", "")
        if status == 416 and part == f"bytes */{self.at}":
            return _EVERYTHING, self.at  # there is no more
        place = _RANGE.fullmatch(part)
        if status == 206 and place is not None and int(place[1]) == self.at:
            return 0, int(place[2]) if place[2] != "*" else None
        if status in (206, 416):
            raise self.way.error(self.name, f"HTTP {status}: not the part that was asked for, from byte {self.at} on")
        raise self.way.refusal(self.name, reply)

    def _check_same(self, etag: str, total: int | None) -> None:
        for known, now in ((self._etag, etag), (self._total, total)):
            if known and now and known != now:
                raise self.way.error(self.name, "it was replaced while it was read")
        self._etag, self._total = self._etag or etag, total if self._total is None else self._total

    def _check_end(self) -> None:
        if self._total is not None and self.at < self._total:
            raise Cut(f"it ended after {self.at} of {self._total} bytes")

    async def _recover(self, cut: Cut) -> None:
        self._cuts += 1
        self._reply = None
        await self.connection.aclose()
        if self._cuts > (CUTS if self._begun else 1):
            raise self.way.error(self.name, f"{cut}; tried {self._cuts} times") from None
        await self.pause(self._cuts)


@asynccontextmanager
async def open_http_files(config: HttpStoreConfig) -> AsyncIterator[HttpFiles]:
    """The files below the configured URL. Nothing is asked yet.

    Raises :class:`scavenge.errors.StoreError` for a token that is not there.
    """
    async with open_way(config.url, config.own_headers()) as way:
        yield HttpFiles(way, config.upload, Random())  # noqa: S311 - jitter, not a secret
