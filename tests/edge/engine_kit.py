"""What the tests of the engine client share: a client of the fake engine, and archives in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from fake_engine import FakeEngine, open_fake_engine
from scavenge.edge.images.engine import HttpEngine, open_engine
from scavenge.errors import EngineError
from scavenge.images import Transferred

X = "docker.io/library/x:1"
Y = "registry.example:5000/team/y:2"
DIGEST = f"docker.io/library/x@sha256:{'0a' * 32}"


@attrs.frozen
class Header:
    """Credentials in the form of the header that shows them."""

    text: str

    def header(self) -> str:
        return self.text


@attrs.define
class Auths:
    """Credentials for some images."""

    known: dict[str, str] = attrs.field(factory=dict)

    async def find(self, image: str) -> Header | None:
        return Header(self.known[image]) if image in self.known else None


@asynccontextmanager
async def engine_and_client(
    auths: Auths | None = None, **settings: object
) -> AsyncIterator[tuple[FakeEngine, HttpEngine]]:
    """A fake engine and a client that was given its address."""
    async with open_fake_engine(**settings) as engine, open_engine(engine.address, {}, auths or Auths()) as client:
        yield engine, client


def ignore(_: Transferred) -> None:
    """Nobody asks how far it is."""


class Pieces:
    """Bytes as they come from a source, which may break down at their end, take its time, or stop for ever."""

    def __init__(
        self,
        pieces: Iterable[bytes],
        failure: BaseException | None = None,
        *,
        pause_s: float = 0.0,
        endless: bool = False,
    ) -> None:
        self._pieces = iter(pieces)
        self._failure = failure
        self._pause_s = pause_s
        self._endless = endless

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        await trio.sleep(self._pause_s)
        for piece in self._pieces:
            return piece
        if self._endless:
            await trio.sleep_forever()
        if self._failure is not None:
            raise self._failure
        raise StopAsyncIteration


def cut_up(data: bytes, size: int = 1000) -> list[bytes]:
    """The data in pieces."""
    return [data[start : start + size] for start in range(0, len(data), size)]


async def fails(call: Callable[..., Awaitable[object]], *arguments: object) -> EngineError:
    """The error that a call ends with."""
    with pytest.raises(EngineError) as caught:
        await call(*arguments)
    return caught.value


async def calls_all(client: HttpEngine) -> list[EngineError]:
    """The errors of all kinds of short calls."""
    calls = [(client.list_images,), (client.info,), (client.inspect, X), (client.tag, X, Y), (client.remove, X)]
    return [await fails(*call) for call in calls]
