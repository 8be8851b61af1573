"""Container images in memory: an engine, sources that do as the test says, and a ledger; on the test's clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import attrs
import trio
from in_place import InPlace

from scavenge.core.images.plan import PlanSettings
from scavenge.errors import EngineError
from scavenge.events import Event
from scavenge.images import (
    Delivered,
    DeliveryEnd,
    DiskRoom,
    EngineInfo,
    ImageFacts,
    InUse,
    LocalImage,
    Platform,
    RemovalEnd,
    Removed,
)
from scavenge.runtime.imageerrands import ImagePorts
from scavenge.runtime.imagepool import ImagePool, open_images
from scavenge.runtime.ports import Report, Threads

AMD64 = Platform("linux", "amd64")
GB = 10**9
Script = Callable[["FakeEngine", str, Report], Awaitable[DeliveryEnd]]


def image(number: int | str) -> str:
    """A canonical name."""
    return f"docker.io/library/i{number}:latest"


@attrs.define(eq=False)
class FakeEngine:
    """Has images, and room for some of 1 GB each."""

    images: set[str] = attrs.field(factory=set)
    room: int | None = None
    silent: bool = False
    in_use: set[str] = attrs.field(factory=set)
    calls: Counter[str] = attrs.field(factory=Counter)
    removed: list[str] = attrs.field(factory=list)
    slow_removal_s: float = 0.0
    engine_id: str = "an-engine"

    async def _call(self, name: str) -> None:
        self.calls[name] += 1
        await trio.sleep(0.01)
        if self.silent:
            raise EngineError("the engine does not answer", silent=True)

    async def info(self) -> EngineInfo:
        await self._call("info")
        return EngineInfo("docker", "1", self.engine_id, AMD64, "/var/lib/docker")

    async def list_images(self) -> Sequence[LocalImage]:
        await self._call("list")
        return [LocalImage(name, (name,), GB) for name in sorted(self.images)]

    async def inspect(self, image: str) -> ImageFacts | None:
        await self._call("inspect")
        return ImageFacts(image, AMD64, (), (), GB) if image in self.images else None

    async def pull(self, image: str, platform: Platform, report: Report) -> DeliveryEnd:
        raise AssertionError("the sources of these tests bring images themselves")

    async def load(self, archive: AsyncIterator[bytes], platform: Platform) -> DeliveryEnd:
        raise AssertionError("the sources of these tests bring images themselves")

    async def tag(self, image: str, name: str) -> None:
        raise AssertionError("nobody tags here")

    async def remove(self, image: str) -> RemovalEnd:
        await self._call("remove")
        await trio.sleep(self.slow_removal_s)
        if image in self.in_use:
            return InUse("a container has it")
        self.images.discard(image)
        self.removed.append(image)
        return Removed()

    @asynccontextmanager
    async def save(self, image: str) -> AsyncIterator[AsyncIterator[bytes]]:
        raise AssertionError("nobody saves here")
        yield

    def disk(self) -> DiskRoom | None:
        """Room for so many images."""
        return None if self.room is None else DiskRoom((self.room - len(self.images)) * GB, 100 * GB)


@attrs.define(eq=False)
class FakeSource:
    """Brings images in ``seconds``, or does what ``script`` says."""

    engine: FakeEngine
    label: str = "registry"
    seconds: float = 10.0
    script: Script | None = None
    asked: list[str] = attrs.field(factory=list)
    under_way: int = 0
    most_at_once: int = 0

    def lane(self, image: str) -> str:
        return self.label

    async def deliver(self, image: str, report: Report) -> DeliveryEnd:
        self.asked.append(image)
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            if self.script is not None:
                return await self.script(self.engine, image, report)
            await trio.sleep(self.seconds)
            self.engine.images.add(image)
            return Delivered(GB)
        finally:
            self.under_way -= 1


@attrs.define(eq=False)
class FakeLedger:
    """What is noted, in order; ``elsewhere`` is needed by another process, ``left`` is what dead ones left."""

    notes: list[tuple[str, str]] = attrs.field(factory=list)
    elsewhere: set[str] = attrs.field(factory=set)
    left: list[str] = attrs.field(factory=list)
    opened: int = 0

    def open(self, engine: EngineInfo) -> FakeLedger:
        self.opened += 1
        return self

    def take_over(self, engine: EngineInfo) -> Sequence[str]:
        self.notes.extend(("bring", image) for image in self.left)
        return self.left

    def need(self, images: Sequence[str]) -> None:
        self.notes.extend(("need", image) for image in images)

    def bring(self, image: str) -> None:
        self.notes.append(("bring", image))

    def let_go(self, image: str) -> None:
        self.notes.append(("let go", image))

    def is_needed_elsewhere(self, image: str) -> bool:
        return image in self.elsewhere

    @property
    def owned(self) -> set[str]:
        """What was brought and not let go."""
        owned: set[str] = set()
        for kind, one in self.notes:
            if kind == "bring":
                owned.add(one)
            elif kind == "let go":
                owned.discard(one)
        return owned


@attrs.define(eq=False)
class ImageStage:
    """A pool with all that it talks to."""

    engine: FakeEngine
    ledger: FakeLedger
    sources: list[FakeSource]
    events: list[Event]
    pool: ImagePool

    def told(self, kind: type[Event]) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


def make_images(
    engine: FakeEngine | None = None,
    *scripts: Script | None,
    ledger: FakeLedger | None = None,
    events: list[Event] | None = None,
    looking: Threads | None = None,
    **settings: object,
) -> ImageStage:
    """A pool that is not at work yet, with one source a script (one that works when there is none)."""
    engine, ledger = engine or FakeEngine(), ledger or FakeLedger()
    events = [] if events is None else events
    sources = [FakeSource(engine, f"lane{index}", script=script) for index, script in enumerate(scripts or [None])]
    ports = ImagePorts(engine, tuple(sources), ledger, InPlace(), looking or InPlace(), events.append, Random(5))
    return ImageStage(engine, ledger, sources, events, ImagePool(ports, PlanSettings(**settings)))  # type: ignore[arg-type]


@asynccontextmanager
async def open_stage(*arguments: object, **settings: object) -> AsyncIterator[ImageStage]:
    """A pool at work, made as :func:`make_images` makes it."""
    stage = make_images(*arguments, **settings)  # type: ignore[arg-type]
    async with open_images(stage.pool):
        yield stage
