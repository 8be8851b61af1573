"""From ``[images]`` to a pool of images at work: the engine, the sources in their order, the ledger.

Nothing is asked before the first rollout needs an image; a run that needs none pays next to nothing for what is opened.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import attrs
import trio

from scavenge.app.parts import Parts, StorePart
from scavenge.config.schema import ImageSettings
from scavenge.core.images.plan import PlanSettings
from scavenge.core.images.reference import BadReference, canonical
from scavenge.core.redaction import Redactor
from scavenge.edge.images.credentials import Credentials
from scavenge.edge.images.engine import HttpEngine, open_engine
from scavenge.edge.images.ledger import dead_ledgers, default_folder, open_ledger
from scavenge.edge.images.registry_advice import Advice
from scavenge.edge.images.registry_client import open_registries
from scavenge.edge.images.registry_source import MirrorSource, OriginSource
from scavenge.edge.images.shipments import ShipmentSource
from scavenge.edge.images.store_source import StoreSource
from scavenge.edge.images.tar_cache import cache_folder
from scavenge.edge.images.tar_index import TarIndex
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import UsageError, single_error
from scavenge.events import Observer, Warned
from scavenge.images import EngineInfo
from scavenge.runtime.imageerrands import ImagePorts
from scavenge.runtime.imagepool import ImagePool, open_images
from scavenge.runtime.ports import ImageLedger, ImageSource, Threads

ARCHIVE_THREADS = 4
"""How many threads read, hash and inflate archives."""


@attrs.define(eq=False)
class Ledgers:
    """The ledgers of this machine, for one process; closed with *stack*."""

    folder: Path
    owner: str
    stack: ExitStack
    threads: Threads
    """One at a time: a ledger is no place for two."""
    warn: Callable[[str], None]
    """Called in the thread in which the ledger is used."""
    _own: ImageLedger | None = None

    def open(self, engine: EngineInfo) -> ImageLedger:
        """This process's own ledger for an engine."""
        self._own = self.stack.enter_context(open_ledger(self.folder, engine.engine_id, self.owner, warn=self.warn))
        return self._own

    async def bring(self, image: str) -> None:
        """Note a name that is in the engine for a while only."""
        if self._own is not None:
            await self.threads.run(partial(self._own.bring, image))

    async def let_go(self, image: str) -> None:
        """Note that it is gone again."""
        if self._own is not None:
            await self.threads.run(partial(self._own.let_go, image))

    def take_over(self, engine: EngineInfo) -> Sequence[str]:
        """The images that dead processes brought and left, noted in our own ledger.

        What is no canonical name is forgotten: an engine might take it for an image of somebody else's.
        """
        found: list[str] = []
        for dead in dead_ledgers(self.folder, engine.engine_id):
            with dead:
                for image in dead.images:
                    if _is_canonical(image):
                        if self._own is not None:
                            self._own.bring(image)
                        found.append(image)
                    dead.let_go(image)
        return found


def _is_canonical(name: str) -> bool:
    try:
        return canonical(name) == name
    except BadReference:
        return False


@attrs.frozen(eq=False)
class ImageOpening:
    """What a pool of images is made of."""

    settings: ImageSettings
    stores: tuple[StorePart, ...]
    owner: str
    """The run's name, for the ledger."""
    emit: Observer
    redact: Redactor
    random: Random

    @classmethod
    def of(cls, parts: Parts, emit: Observer, redact: Redactor, random: Random) -> ImageOpening:
        """As a run has it."""
        return cls(parts.settings.images, parts.stores, parts.settings.name, emit, redact, random)

    def warn(self, message: str) -> None:
        """Tell what is wrong and ends nothing."""
        self.emit(Warned(message))

    def credentials(self) -> Credentials:
        """Who we are to registries."""
        return Credentials(os.environ, warn=self.warn, hide=lambda secret: self.redact.hide_keys([secret]))


@asynccontextmanager
async def open_image_pool(opening: ImageOpening) -> AsyncIterator[ImagePool]:
    """A pool of images that is at work while the block runs; leaving it removes what it brought, as configured."""
    settings, credentials = opening.settings, opening.credentials()
    with single_error(), ExitStack() as closing:
        async with AsyncExitStack() as stack:
            engine = await stack.enter_async_context(open_engine(settings.engine, os.environ, credentials))
            token = trio.lowlevel.current_trio_token()

            def warn(message: str) -> None:
                token.run_sync_soon(opening.warn, message)

            ledgers = Ledgers(default_folder(os.environ), opening.owner, closing, LimitedThreads(1), warn)
            sources = await _open_sources(opening, engine, credentials, ledgers, stack)
            ports = ImagePorts(
                engine, tuple(sources), ledgers, ledgers.threads, LimitedThreads(1), opening.emit, opening.random
            )
            yield await stack.enter_async_context(open_images(ImagePool(ports, plan_settings(settings))))


async def _open_sources(
    opening: ImageOpening, engine: HttpEngine, credentials: Credentials, ledgers: Ledgers, stack: AsyncExitStack
) -> list[ImageSource]:
    """The sources in the order in which they are tried."""
    settings, threads = opening.settings, LimitedThreads(ARCHIVE_THREADS)
    sources: list[ImageSource] = []
    if settings.shipments:
        globs = [str(pattern) for pattern in settings.shipments]
        index = TarIndex(globs, cache_folder(os.environ), opening.warn, threads)
        sources.append(ShipmentSource(engine, index, threads))
    for part in opening.stores:
        store = await stack.enter_async_context(part.kind.open(part.config))
        sources.append(StoreSource(part.label, store, engine, threads))
    advice = Advice(await stack.enter_async_context(open_registries(credentials, opening.random)))
    sources += [MirrorSource(prefix, engine, advice, ledgers) for prefix in settings.mirrors]
    return [*sources, OriginSource(engine, advice)]


def plan_settings(settings: ImageSettings) -> PlanSettings:
    """``[images]`` as the plan takes it."""
    return PlanSettings(
        workers=settings.workers,
        list_ttl_s=settings.list_ttl,
        wait_timeout_s=settings.wait_timeout,
        keep=settings.keep,
        min_free_bytes=settings.min_free_disk,
    )


def with_engine(settings: ImageSettings, engine: str | None) -> ImageSettings:
    """The settings with the engine that a command names."""
    if engine == "":
        raise UsageError("--engine: expected an address, such as unix:///run/docker.sock")
    return settings if engine is None else attrs.evolve(settings, engine=engine)
