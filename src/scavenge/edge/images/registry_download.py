"""A blob of a registry as a stream that goes on after a cut, and ends only when it is whole.

Decides what of a reply is that blob, and where its redirects lead.

Invariant: the bytes given out are those of the blob from its beginning on, each once, whatever was cut in between. One
that is read from the start ends without an error only if it has the digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from scavenge.core.images.distribution import begins_at
from scavenge.core.images.manifests import Blob
from scavenge.edge.images.registry_auth import Scope
from scavenge.edge.images.registry_requests import Requests
from scavenge.edge.images.registry_retries import Retries
from scavenge.edge.images.registry_wire import CLOSE_S, RegistryFault, Reply, closing
from scavenge.images import Broken, Unfit

REDIRECTS_MOST = 5

_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@asynccontextmanager
async def open_blob(
    requests: Requests, path: str, digest: str, start: int = 0, size_bytes: int | None = None
) -> AsyncIterator[AsyncIterator[bytes]]:
    """The bytes of a blob from *start* on; nothing is asked until the first is read.

    Reading raises :class:`RegistryFault`: when it was cut too often, and at its end, when it does not have the digest;
    of one that is read from the middle, only its size can be checked. Leaving the block closes the connection.
    """
    download = Download(requests, path, digest, start, size_bytes)
    try:
        yield download
    finally:
        with trio.move_on_after(CLOSE_S, shield=True):
            await download.close()


async def read_blob(requests: Requests, path: str, blob: Blob, most: int) -> bytes:
    """A small blob as a whole. Raises :class:`RegistryFault`, also for one of more than *most* bytes."""
    if blob.size_bytes > most:
        raise RegistryFault(Unfit(f"{requests.host}: {path} {blob.digest} has more than {most} bytes"))
    data = bytearray()
    async with open_blob(requests, path, blob.digest, size_bytes=blob.size_bytes) as pieces:
        async for piece in pieces:
            data += piece
    return bytes(data)


@attrs.define(eq=False)
class Download:
    """The bytes of one blob. ``size_bytes`` is that of the whole, once it is known."""

    requests: Requests
    path: str
    digest: str
    at: int
    size_bytes: int | None
    _retries: Retries = attrs.field(init=False)
    _reply: Reply | None = None
    _skipped: int = 0
    """How many bytes of this reply come before those that are wanted: some servers know no ranges."""
    _hash: hashlib._Hash | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._retries = self.requests.retries()
        self._hash = None if self.at else hashlib.sha256()

    def __aiter__(self) -> Download:
        return self

    async def __anext__(self) -> bytes:
        while True:
            try:
                piece = await self._next()
            except RegistryFault as fault:
                await self.close()
                await self._retries.wait(fault)
            else:
                break
        if not piece:
            self._check()
            raise StopAsyncIteration
        self.at += len(piece)
        self._retries.brought(len(piece))
        if self._hash is not None:
            self._hash.update(piece)
        if self.size_bytes is not None and self.at > self.size_bytes:
            raise RegistryFault(Unfit(f"{self._name()} is longer than it should be"))
        return piece

    async def close(self) -> None:
        """Close the connection."""
        reply, self._reply = self._reply, None
        if reply is not None:
            await reply.hang_up()

    async def _next(self) -> bytes:
        """The next bytes; empty: the end. Raises :class:`RegistryFault` for a cut, too."""
        if self._reply is None:
            self._reply = await self._open()
            await self._accept(self._reply)
        while piece := await self._reply.piece():
            wanted = piece[self._skipped :]
            self._skipped = max(0, self._skipped - len(piece))
            if wanted:
                return wanted
        if self.size_bytes is not None and self.at < self.size_bytes:
            raise RegistryFault(Broken(f"{self._name()} was cut off after {self.at} of {self.size_bytes} bytes"))
        return b""

    async def _open(self) -> Reply:
        """The reply with the blob, behind whatever redirects there are."""
        scope = Scope(self.path)
        headers = {"range": f"bytes={self.at}-"} if self.at else {}
        url = await self.requests.url(f"{self.path}/blobs/{self.digest}")
        for _ in range(REDIRECTS_MOST + 1):
            reply = await self.requests.open_reply("GET", url, scope, headers)
            if reply.status not in _REDIRECTS:
                return reply
            location = reply.headers.get("location", "")
            async with closing(reply):
                url = await self.requests.moved(url, location)
        raise RegistryFault(Broken(f"{self._name()} is redirected more than {REDIRECTS_MOST} times"))

    async def _accept(self, reply: Reply) -> None:
        """Note what a reply holds. Raises :class:`RegistryFault` where it is not what was asked for."""
        begins = 0 if reply.status == 200 else None
        if reply.status == 206:
            begins = begins_at(reply.headers.get("content-range", ""))
        if begins is None:
            raise await reply.fault()
        if begins > self.at:
            raise RegistryFault(Broken(f"{self._name()}: it gives other bytes than those that were asked for"))
        self._skipped = self.at - begins
        length = reply.headers.get("content-length", "")
        if self.size_bytes is None and length.isascii() and length.isdigit() and len(length) < 19:
            self.size_bytes = begins + int(length)

    def _check(self) -> None:
        """Raise :class:`RegistryFault` where what came is not the blob."""
        if self._hash is not None and f"sha256:{self._hash.hexdigest()}" != self.digest:
            raise RegistryFault(Unfit(f"{self._name()} has another digest: it was changed, or broke on the way"))

    def _name(self) -> str:
        return f"{self.requests.host}: {self.path} {self.digest}"
