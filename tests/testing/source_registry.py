"""A registry in memory, and right sources of it: what the tests of the kit for sources make wrong ones from."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from scavenge.plugin import EndpointSpec, Listing, SourceError
from scavenge.testing import SourceFault, check_endpoint_source

Rows = list[EndpointSpec]


class Registry:
    """Knows servers. Its ``moved`` event is set, and replaced, whenever its ``version`` grows."""

    def __init__(self) -> None:
        self.version = 0
        self.down = False
        self.moved = trio.Event()

    def urls(self, ago: int = 0) -> list[str]:
        """Two servers, one of which is another one in each odd version."""
        return ["http://10.0.0.1:8000/v1", f"http://10.0.0.{2 + (self.version - ago) % 2}:8000/v1"]

    def rows(self, ago: int = 0) -> Rows:
        return [EndpointSpec(endpoint_id="pool", model="m", url=url) for url in self.urls(ago)]

    def wake(self) -> None:
        self.moved.set()
        self.moved = trio.Event()

    async def move(self) -> None:
        self.version += 1
        self.wake()

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self.down = True
        self.wake()
        yield
        self.down = False
        self.wake()


class Plain:
    """Asks the registry each time."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    async def list_endpoints(self) -> Listing:
        await trio.sleep(0.01)
        if self.registry.down:
            raise SourceError("the registry does not answer; start it")
        return Listing(self.registry.rows())


class Polling(Plain):
    """Holds its answer until the registry has moved."""

    long_poll = True

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.seen: float = -math.inf

    async def list_endpoints(self) -> Listing:
        while self.seen == self.registry.version and not self.registry.down:
            await self.registry.moved.wait()
        version = self.registry.version
        listing = await super().list_endpoints()
        self.seen = version
        return listing


class Watching(Polling):
    """Follows the registry with a task of its own, which dies in an outage, and the source with it."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.heard = trio.Event()
        self.told: float = -math.inf
        self.latest: Rows = []

    async def watch(self) -> None:
        while True:
            moved = self.registry.moved
            listing = await Plain.list_endpoints(self)
            self.latest, self.seen = list(listing.endpoints), self.seen + 1 if self.latest else 0
            self.heard.set()
            self.heard = trio.Event()
            await moved.wait()

    async def list_endpoints(self) -> Listing:
        while self.told >= self.seen:
            await self.heard.wait()
        await trio.lowlevel.checkpoint()
        self.told = self.seen
        return Listing(self.latest)


def opener(make: Callable[[], Any]) -> Callable[[], Any]:
    """Opens what *make* makes, with nothing around it."""

    @asynccontextmanager
    async def open_source() -> AsyncIterator[Any]:
        await trio.lowlevel.checkpoint()
        yield make()
        await trio.lowlevel.checkpoint()

    return open_source


def watcher(registry: Registry, kind: type[Watching] = Watching) -> Callable[[], Any]:
    """Opens a source with a task beside it."""

    @asynccontextmanager
    async def open_source() -> AsyncIterator[Watching]:
        source = kind(registry)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.watch)
            yield source
            nursery.cancel_scope.cancel()

    return open_source


async def check(registry: Registry, open_source: Callable[[], Any], **options: Any) -> None:
    """Run the kit with all that the registry can do."""
    outage = SourceFault("outage", registry.outage)
    options = {"change": registry.move, "faults": [outage], "answers_within_s": 3.0} | options
    await check_endpoint_source(open_source, expect=registry.urls, **options)


@attrs.frozen
class Wrong:
    """A source that is wrong in one way, how it is checked, and what the kit says of it."""

    says: str
    way: Callable[[Registry], Callable[[], Any]]
    """Gives what opens it."""
    options: dict[str, Any]


@attrs.define
class WrongOnes:
    """Sources that are wrong, each by its name."""

    found: dict[str, Wrong] = attrs.field(factory=dict)

    def kind(self, says: str, **options: Any) -> Callable[[type[Plain]], type[Plain]]:
        """Notes a class of sources, which are opened with nothing around them."""

        def note(kind: type[Plain]) -> type[Plain]:
            self.found[kind.__name__] = Wrong(says, lambda registry: opener(lambda: kind(registry)), options)
            return kind

        return note

    def way(self, says: str, **options: Any) -> Callable[[Any], Any]:
        """Notes a way of opening."""

        def note(way: Any) -> Any:
            self.found[way.__name__] = Wrong(says, way, options)
            return way

        return note

    def names(self) -> list[str]:
        return [*self.found]

    async def check(self, registry: Registry, name: str) -> None:
        """The kit says of that one what it has to, on one line."""
        wrong = self.found[name]
        with pytest.raises(AssertionError, match=wrong.says) as caught:
            await check(registry, wrong.way(registry), **wrong.options)
        assert "\n" not in str(caught.value)
