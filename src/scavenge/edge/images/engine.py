"""A container engine by the Docker Engine API, which Podman speaks too. Decides nothing about what is fetched, or when.

Nothing is connected to before the first call, and nothing stays connected between calls. An engine that is not there
fails the call, not the opening: it may start later.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

import trio

from scavenge.core.images.reference import BadReference, canonical, parts
from scavenge.edge.images import engine_streams
from scavenge.edge.images.engine_answers import About, BadAnswer, about_of, facts_of, images_of
from scavenge.edge.images.engine_calls import EngineCalls, Peer, refusal
from scavenge.edge.images.engine_streams import FindsAuth
from scavenge.edge.images.engine_wire import LOG, Answer, engine_error
from scavenge.errors import EngineError
from scavenge.images import (
    Delivered,
    DeliveryEnd,
    DiskRoom,
    EngineInfo,
    ImageFacts,
    InUse,
    LocalImage,
    NotRemoved,
    Platform,
    RemovalEnd,
    Removed,
)
from scavenge.runtime.ports import Report

T = TypeVar("T")

LIST_S = 60.0
"""How long a listing may take: an engine with thousands of images reads a file for each."""

REMOVE_S = 60.0
"""How long a removal may take: files are deleted meanwhile."""

_PODMANS_OWN = "localhost/"
"""What Podman puts before names that have no registry for it."""


class HttpEngine:
    """Implements :class:`scavenge.runtime.ports.ImageEngine`."""

    def __init__(self, calls: EngineCalls, auths: FindsAuth) -> None:
        self._calls = calls
        self._auths = auths
        self._about: tuple[Peer, About] | None = None
        """What the engine said of itself, and who that was."""
        self._disk: str | None = None
        """The folder with its images, where that is one of this machine's."""

    async def info(self) -> EngineInfo:
        """What it is; asked once, and anew after a call that was not answered."""
        peer = await self._calls.find()
        if self._about is None or self._about[0] is not peer:
            answer = self._good(await self._calls.ask("GET", "info"), "say what it is")
            about = self._read(answer, lambda body: about_of(body, is_podman=peer.is_podman))
            # another kernel is that of a virtual machine
            is_here = peer.address.is_here and about.kernel in ("", os.uname().release)
            self._about, self._disk = (peer, about), about.info.root_dir if is_here else None
        return self._about[1].info

    async def list_images(self) -> Sequence[LocalImage]:
        """All images that it has, with their names and digests."""
        answer = await self._calls.ask("GET", "images/json", within_s=LIST_S)
        return self._read(self._good(answer, "list its images"), images_of)

    async def inspect(self, image: str) -> ImageFacts | None:
        """One image; ``None``: it is not there."""
        answer = await self._calls.ask("GET", f"images/{image}/json")
        return None if answer.status == 404 else self._read(self._good(answer, f"tell of {image}"), facts_of)

    async def pull(self, image: str, platform: Platform, report: Report) -> DeliveryEnd:
        """Have the engine fetch *image*; it ends by silence, however long it takes."""
        return await engine_streams.pull(self._calls, self._auths, image, platform, report)

    async def load(self, archive: AsyncIterator[bytes], platform: Platform) -> DeliveryEnd:
        """Have the engine take in an archive, and see to it that its image has the name that the archive says."""
        end, names = await engine_streams.load(self._calls, archive, platform)
        if isinstance(end, Delivered):
            try:
                for name in names:
                    await self._straighten(name)
            except EngineError as exc:
                return engine_streams.ended_by(exc)
        return end

    async def _straighten(self, name: str) -> None:
        """Take away what Podman put before a whole name."""
        meant = name.removeprefix(_PODMANS_OWN)
        try:
            is_odd = meant != name and canonical(meant) == meant
        except BadReference:
            return
        if is_odd:
            await self.tag(name, meant)
            await self.remove(name)

    async def tag(self, image: str, name: str) -> None:
        """Give an image another name, which has a tag. Raises :class:`EngineError`, also when it is not there."""
        new = parts(name)
        query = {"repo": new.repository, "tag": new.tag}
        self._good(await self._calls.ask("POST", f"images/{image}/tag", query), f"name {image} {name}")

    async def remove(self, image: str) -> RemovalEnd:
        """Take a name away, and with its last name the image. Never forced."""
        answer = await self._calls.ask("DELETE", f"images/{image}", within_s=REMOVE_S)
        if answer.status < 300 or answer.status == 404:
            return Removed()
        return InUse(answer.message) if answer.status == 409 else NotRemoved(answer.message)

    def save(self, image: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The image as a Docker archive. Entering raises :class:`EngineError` when it is not there."""
        return engine_streams.save(self._calls, image)

    def disk(self) -> DiskRoom | None:
        """The disk of its images, with the room that is for everybody; ``None``: it is not seen from here. Blocks."""
        if self._disk is None:
            return None
        try:
            found = os.statvfs(self._disk)
        except (OSError, ValueError):
            return None
        return DiskRoom(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    @staticmethod
    def _good(answer: Answer, doing: str) -> Answer:
        if answer.status >= 300:
            raise refusal(answer, doing)
        return answer

    @staticmethod
    def _read(answer: Answer, reading: Callable[[bytes], T]) -> T:
        try:
            return reading(answer.body)
        except BadAnswer as exc:
            raise engine_error(answer.address, f"answers with {exc}", LOG) from None


@asynccontextmanager
async def open_engine(named: str | None, environ: Mapping[str, str], auths: FindsAuth) -> AsyncIterator[HttpEngine]:
    """The engine that *named* is the address of (``[images] engine``), else the one that is found at each call.

    Ownership: nothing is held open. Raises nothing: an engine that is not there fails the calls, until it is.
    """
    await trio.lowlevel.checkpoint()
    yield HttpEngine(EngineCalls(named, environ), auths)
