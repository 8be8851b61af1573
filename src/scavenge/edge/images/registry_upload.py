"""Puts a blob into a registry: by another repository's that has it, in one piece, or in several.

Decides in which pieces it goes, and where an upload that was cut goes on.

Invariant: what is sent next begins where the registry says that its upload ends. Only the last request, with the
digest, makes it a blob, and the registry checks that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import attrs
import httpx

from scavenge.core.images.distribution import received_bytes
from scavenge.core.images.manifests import Blob
from scavenge.edge.images.registry_auth import Scope
from scavenge.edge.images.registry_requests import Requests
from scavenge.edge.images.registry_retries import Retries
from scavenge.edge.images.registry_wire import IDLE_S, RegistryFault
from scavenge.images import Broken, Denied, Missing, Transferred
from scavenge.runtime.ports import Report

ReadAt: TypeAlias = Callable[[int, int], Awaitable[bytes]]
"""Reads so many bytes from a place on; fewer only at the end."""

PIECE_BYTES = 16 * 2**20
"""Larger blobs go in pieces of that size; what is sent is held in memory."""
PIECE_MOST_BYTES = 64 * 2**20
"""The largest piece that a registry may ask for."""
COMMIT_S = 900.0
"""How long a registry may be silent when a blob is complete: many copy the whole of it then."""

_BYTES = {"content-type": "application/octet-stream"}


async def has_blob(requests: Requests, path: str, digest: str) -> bool:
    """Whether a repository has a blob. Raises :class:`RegistryFault`."""
    try:
        await requests.answer("HEAD", f"{path}/blobs/{digest}", Scope(path))
    except RegistryFault as fault:
        if isinstance(fault.end, Missing):
            return False
        raise
    return True


async def put_blob(
    requests: Requests, path: str, blob: Blob, read_at: ReadAt, report: Report, source: str = ""
) -> None:
    """Have a repository hold a blob; where it has it already, nothing is sent.

    *source* is another repository of the same registry that may have it. *report* hears how much was taken. Raises
    :class:`RegistryFault`. Cancelled, it leaves at most an upload that is not finished, which the registry drops.
    """
    upload = _Upload(requests, path, blob, read_at, report, source)
    await upload.run()
    report(Transferred(blob.size_bytes, blob.size_bytes))


@attrs.define(eq=False)
class _Upload:
    requests: Requests
    path: str
    blob: Blob
    read_at: ReadAt
    report: Report
    source: str
    _retries: Retries = attrs.field(init=False)
    _url: httpx.URL | None = None
    """Where it is under way."""
    _at: int = 0
    """How much of it the registry has."""
    _furthest: int = 0
    """How much of it the registry has had: an upload that it lost and gets again is no progress."""
    _piece_bytes: int = attrs.field(factory=lambda: PIECE_BYTES)

    def __attrs_post_init__(self) -> None:
        self._retries = self.requests.retries()

    async def run(self) -> None:
        """Send the blob, and again what was lost."""
        while True:
            try:
                if self._url is None and await self._is_there():
                    return
                await self._send()
            except RegistryFault as fault:
                await self._retries.wait(fault)
                await self._look()
            else:
                return

    async def _is_there(self) -> bool:
        """Whether the repository has the blob, of old or by a mount; else an upload is begun."""
        if await has_blob(self.requests, self.path, self.blob.digest):
            return True
        if self.source:
            source, self.source = self.source, ""
            query = f"?mount={self.blob.digest}&from={source}"
            try:
                if await self._begin(query, Scope(self.path, "pull,push", source)) == 201:
                    return True
            except RegistryFault as fault:
                if not isinstance(fault.end, Denied):
                    raise
        if self._url is None:
            await self._begin("", self._scope())
        return False

    async def _begin(self, query: str, scope: Scope) -> int:
        reply = await self.requests.answer("POST", f"{self.path}/blobs/uploads/{query}", scope, content=b"")
        if reply.status != 201:
            self._at = 0
            least = reply.headers.get("oci-chunk-min-length", "")
            if least.isascii() and least.isdigit() and len(least) < 10:
                self._piece_bytes = min(max(PIECE_BYTES, int(least)), PIECE_MOST_BYTES)
            await self._follow(reply.url, reply.headers)
        return reply.status

    async def _send(self) -> None:
        if self.blob.size_bytes > self._piece_bytes:
            while self._at < self.blob.size_bytes:
                await self._send_piece()
        data = await self.read_at(self._at, self.blob.size_bytes - self._at)
        url = self._address().copy_merge_params({"digest": self.blob.digest})
        async with self.requests.reply("PUT", url, self._scope(), _BYTES, data, COMMIT_S) as reply:
            if reply.status not in (201, 204):
                raise await reply.fault()

    async def _send_piece(self) -> None:
        data = await self.read_at(self._at, min(self._piece_bytes, self.blob.size_bytes - self._at))
        last = self._at + len(data) - 1
        headers = {**_BYTES, "content-range": f"{self._at}-{last}"}
        async with self.requests.reply("PATCH", self._address(), self._scope(), headers, data, IDLE_S) as reply:
            if not reply.is_success:
                raise await reply.fault()
            before = self._at
            self._take(reply.headers, last + 1)
            await self._follow(self._address(), reply.headers)
        if self._at <= before:
            raise RegistryFault(Broken(f"{self.requests.host}: it takes nothing of an upload"))
        if self._at > self._furthest:
            self._retries.brought(self._at - max(before, self._furthest))
            self._furthest = self._at
        self.report(Transferred(self._at, self.blob.size_bytes))

    async def _look(self) -> None:
        """Find out what the registry has of an upload that went wrong; one that it has lost begins anew."""
        if self._url is None:
            return
        try:
            async with self.requests.reply("GET", self._url, self._scope(), {}) as reply:
                if not reply.is_success:
                    raise await reply.fault()
                self._take(reply.headers, None)
                await self._follow(self._url, reply.headers)
        except RegistryFault:
            self._url = None

    def _take(self, headers: Mapping[str, str], otherwise: int | None) -> None:
        """Note how much the registry has. Raises :class:`RegistryFault` where that cannot be."""
        said = headers.get("range", "")
        has = received_bytes(said) if said else otherwise
        if has is None or has > self.blob.size_bytes:
            self._url = None
            raise RegistryFault(Broken(f"{self.requests.host}: it does not say how much it has of an upload"))
        self._at = has

    async def _follow(self, url: httpx.URL, headers: Mapping[str, str]) -> None:
        if location := headers.get("location", ""):
            self._url = await self.requests.moved(url, location)

    def _address(self) -> httpx.URL:
        if self._url is None:
            raise RegistryFault(Broken(f"{self.requests.host}: it does not say where to upload to; is it a registry?"))
        return self._url

    def _scope(self) -> Scope:
        return Scope(self.path, "pull,push")
