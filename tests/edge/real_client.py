"""Our client of a real engine, and what tests of it need: images of their own, and few words."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio
from real_engine import RealEngine
from real_images import Image, Pusher, own_architecture
from real_registry import RealRegistry

from scavenge.edge.images.engine import open_engine
from scavenge.images import DeliveryEnd, Platform, Transferred
from scavenge.runtime.ports import ImageEngine

PIECE_BYTES = 50_000
HERE = Platform("linux", own_architecture())
_numbers = itertools.count()


class NoAuths:
    """Knows no credentials."""

    async def find(self, image: str) -> None:
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_client(engine: RealEngine) -> AsyncIterator[ImageEngine]:
    """Our client."""
    async with open_engine(engine.address, {}, NoAuths()) as client:
        yield client


def ignore(_: Transferred) -> None:
    """Nobody asks how far it is."""


async def pull(client: ImageEngine, image: str) -> DeliveryEnd:
    """Have it pulled."""
    return await client.pull(image, HERE, ignore)


async def save(client: ImageEngine, image: str) -> bytes:
    """The image as an archive."""
    async with client.save(image) as archive:
        return b"".join([piece async for piece in archive])


async def load(client: ImageEngine, archive: bytes, failure: Exception | None = None) -> DeliveryEnd:
    """Have an archive loaded, which comes in pieces; after all of it comes the *failure*."""
    return await client.load(_Pieces(io.BytesIO(archive), failure), HERE)


@attrs.frozen
class _Pieces:
    """Data as it comes from a file."""

    data: io.BytesIO
    failure: Exception | None

    def __aiter__(self) -> _Pieces:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if piece := self.data.read(PIECE_BYTES):
            return piece
        raise StopAsyncIteration if self.failure is None else self.failure


def new_path() -> str:
    """A path in a registry that no other test has, in no other process either."""
    return f"tests/{os.getpid()}-{next(_numbers)}"


@attrs.frozen
class Pushed:
    """An image in a registry: ``path:tag`` and what it is made of."""

    name: str
    image: Image

    def at(self, address: str) -> str:
        """What it is called at an address: the registry's, or a proxy's."""
        return f"{address}/{self.name}"


def push(registry: RealRegistry, **options: object) -> Pushed:
    """Push an image that nobody else has; *options* are those of :func:`real_images.make_image`."""
    name = f"{new_path()}:1"
    (image,) = Pusher(registry.address).push([name], **options).values()
    return Pushed(name, image)
