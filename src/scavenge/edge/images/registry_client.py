"""A client of registries by the distribution API of OCI: what one has under a name, and what is put there.

Decides which requests are made for that. How they are let in is decided in :mod:`registry_auth`, how a blob comes and
goes whole in :mod:`registry_download` and :mod:`registry_upload`. Every call raises
:class:`~scavenge.edge.images.registry_wire.RegistryFault`, whose ``end`` says what it means for a delivery; cancelled,
it has closed what it opened.

Names are canonical; a *path* is that of a repository at this registry, such as ``library/python``. What comes is
checked against the digest that it was asked by.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from random import Random

import attrs
import trio

from scavenge.core.images.distribution import next_page, parse_tags
from scavenge.core.images.manifests import (
    ACCEPTED,
    BadManifest,
    Blob,
    Index,
    Manifest,
    digest_of,
    is_digest,
    parse_manifest,
)
from scavenge.core.images.reference import parts
from scavenge.edge.images.registry_auth import Credentials, Door, Scope
from scavenge.edge.images.registry_download import read_blob
from scavenge.edge.images.registry_requests import Requests
from scavenge.edge.images.registry_retries import PAUSE_FIRST_S
from scavenge.edge.images.registry_upload import ReadAt, put_blob
from scavenge.edge.images.registry_wire import RegistryFault, open_wire
from scavenge.images import Broken, Unfit
from scavenge.runtime.ports import Report

TAGS_PAGES = 10
TAGS_A_PAGE = 1000
CONFIG_MOST_BYTES = 16 * 2**20

_ACCEPT = {"accept": ACCEPTED}


@attrs.frozen
class Head:
    """What a registry says of a manifest without giving it."""

    digest: str
    media_type: str
    headers: Mapping[str, str]


@attrs.frozen(eq=False)
class Registry:
    """One registry."""

    requests: Requests

    @property
    def host(self) -> str:
        """The registry as it is called in the names of images."""
        return self.requests.host

    # --- manifests

    async def document(self, path: str, reference: str) -> Manifest | Index:
        """What a repository has under a tag or digest."""
        reply = await self.requests.answer("GET", f"{path}/manifests/{reference}", Scope(path), _ACCEPT)
        wanted = reference if is_digest(reference) else reply.headers.get("docker-content-digest", "")
        with self._unfit():
            if is_digest(wanted) and digest_of(reply.data) != wanted:
                raise BadManifest(f"the manifest of {path} has another digest than {wanted}")
            return parse_manifest(reply.data, reply.headers.get("content-type", ""))

    async def head(self, name: str) -> Head:
        """What it says of an image. At Docker Hub that does not count as a pull."""
        place = parts(name)
        url = f"{place.path}/manifests/{place.reference}"
        headers = (await self.requests.answer("HEAD", url, Scope(place.path), _ACCEPT)).headers
        return Head(headers.get("docker-content-digest", ""), headers.get("content-type", ""), headers)

    async def put_manifest(self, path: str, reference: str, data: bytes, media_type: str) -> None:
        """Put a manifest under a tag or under its own digest; the blobs that it names have to be there."""
        kind = {"content-type": media_type}
        url = f"{path}/manifests/{reference}"
        reply = await self.requests.answer("PUT", url, Scope(path, "pull,push"), kind, data)
        digest = reply.headers.get("docker-content-digest", "")
        if is_digest(digest) and digest != digest_of(data):
            raise RegistryFault(Broken(f"{self.host}: it took the manifest of {path} for another one"))

    async def tags(self, path: str) -> list[str]:
        """The tags of a repository; of very many only the first ones."""
        found: list[str] = []
        what = f"{path}/tags/list?n={TAGS_A_PAGE}"
        for _ in range(TAGS_PAGES):
            reply = await self.requests.answer("GET", what, Scope(path))
            found += parse_tags(reply.data)
            link = next_page(reply.headers.get("link", ""))
            if link is None:
                break
            with self.requests.wire.faults():
                what = reply.url.join(link).raw_path.decode("ascii").removeprefix("/v2/")
        return found

    # --- blobs

    async def read_blob(self, path: str, blob: Blob, most: int = CONFIG_MOST_BYTES) -> bytes:
        """A small blob as a whole, such as a config."""
        return await read_blob(self.requests, path, blob, most)

    async def put_blob(self, path: str, blob: Blob, read_at: ReadAt, report: Report, source: str = "") -> None:
        """Have a repository hold a blob; see :func:`registry_upload.put_blob`."""
        await put_blob(self.requests, path, blob, read_at, report, source)

    @contextmanager
    def _unfit(self) -> Iterator[None]:
        """Tell what is no image for us as :class:`RegistryFault`."""
        try:
            yield
        except BadManifest as exc:
            raise RegistryFault(Unfit(f"{self.host}: {exc}")) from None


@attrs.define(eq=False)
class Registries:
    """The registries that were asked so far, each with its connections."""

    credentials: Credentials
    random: Random
    pause_first_s: float
    _stack: AsyncExitStack
    _open: dict[str, Registry] = attrs.field(factory=dict)
    _opening: trio.Lock = attrs.field(factory=trio.Lock)

    async def of(self, host: str) -> Registry:
        """The registry that is called *host* in the names of images. Raises :class:`RegistryFault`."""
        async with self._opening:
            if host not in self._open:
                wire = await self._stack.enter_async_context(open_wire(host))
                door = Door(wire, self.credentials)
                self._open[host] = Registry(Requests(wire, door, self.random, self.pause_first_s))
            return self._open[host]


@asynccontextmanager
async def open_registries(
    credentials: Credentials, random: Random, pause_first_s: float = PAUSE_FIRST_S
) -> AsyncIterator[Registries]:
    """Clients of registries while the block runs, each opened when it is first asked for."""
    async with AsyncExitStack() as stack:
        yield Registries(credentials, random, pause_first_s, stack)
