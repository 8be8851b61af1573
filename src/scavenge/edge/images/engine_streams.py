"""Pulls, loads and saves: calls of a container engine that take as long as they take.

They end by silence, not by their length: an engine that downloads, or takes an archive, says or takes something every
few seconds. Where it has all that it needs and unpacks it, some versions say nothing until that is done, so it has the
longer for it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeAlias

import attrs

from scavenge.core.images.reference import parts
from scavenge.core.images.said import end_of
from scavenge.core.images.stream import PullStream
from scavenge.edge.images.engine_calls import EngineCalls, refusal
from scavenge.edge.images.engine_wire import BrokenOff, Feed, Reply
from scavenge.errors import EngineError
from scavenge.images import Broken, Delivered, DeliveryEnd, EngineSilent, Platform, Transferred
from scavenge.runtime.ports import Report

IDLE_S = 120.0
"""How long an engine may say nothing, and take nothing."""

UNPACK_S = 900.0
"""How long it may say nothing once all has been downloaded, and before the first byte of a save."""

UNPACKED_BYTES_A_SECOND = 4 * 2**20
"""How fast it unpacks an archive at least: a slow disk with others on it."""

LOAD_PLATFORM = (1, 48)
"""The first version of the API whose loads take a platform."""

Names: TypeAlias = "tuple[str, ...]"


class Auth(Protocol):
    """Credentials for a registry."""

    def header(self) -> str:
        """The value of ``X-Registry-Auth``."""
        ...


class FindsAuth(Protocol):
    """Knows credentials. ``find`` takes an image's canonical name; ``None``: there are none for it."""

    async def find(self, image: str, /) -> Auth | None:
        """What the engine is to show the registry of *image*."""
        ...


def ended_by(error: EngineError) -> DeliveryEnd:
    """How a delivery ended that the engine did not carry out: an answer that breaks off is worth another attempt."""
    silent = error.silent and not isinstance(error, BrokenOff)
    return EngineSilent(str(error)) if silent else Broken(str(error))


async def pull(calls: EngineCalls, auths: FindsAuth, image: str, platform: Platform, report: Report) -> DeliveryEnd:
    """See :meth:`scavenge.runtime.ports.ImageEngine.pull`."""
    name = parts(image)
    query = {"fromImage": name.repository, "tag": name.reference, "platform": str(platform)}  # no tag: all of them
    auth = await auths.find(image)
    headers = {} if auth is None else {"X-Registry-Auth": auth.header()}
    try:
        async with calls.open("POST", "images/create", query, headers=headers, idle_s=IDLE_S) as reply:
            return await _followed(reply, report)
    except EngineError as exc:
        return ended_by(exc)


async def _followed(reply: Reply, report: Report) -> DeliveryEnd:
    """Read the answer to a pull."""
    if reply.status >= 400:
        answer = await reply.whole(IDLE_S)
        return end_of(reply.status, answer.message)
    said = PullStream()
    try:
        while piece := await reply.piece(_patience_s(said.transferred)):
            said.feed(piece)
            report(said.transferred)
    except BrokenOff:
        if said.error is None:  # else that says more
            raise
    error = said.end()
    return Delivered() if error is None else end_of(None, error)


def _patience_s(transferred: Transferred) -> float:
    has_all = transferred.total_bytes is not None and transferred.done_bytes >= transferred.total_bytes
    return UNPACK_S if has_all else IDLE_S


async def load(calls: EngineCalls, archive: AsyncIterator[bytes], platform: Platform) -> tuple[DeliveryEnd, Names]:
    """Have the engine take an archive in: how that ended, and what the engine calls what it took.

    Raises what *archive* raises; the engine then has its beginning only, and sees no end of it.
    """
    feed = Feed(archive, IDLE_S, UNPACKED_BYTES_A_SECOND)
    try:
        query = {"quiet": "1"}
        if (await calls.find()).version >= LOAD_PLATFORM:
            query["platform"] = json.dumps(attrs.asdict(platform, filter=lambda _, value: bool(value)))
        async with calls.open("POST", "images/load", query, feed=feed) as reply:
            return await _taken(reply, feed)
    except EngineError as exc:
        if feed.failure is None:
            return ended_by(exc), ()
    raise feed.failure


async def _taken(reply: Reply, feed: Feed) -> tuple[DeliveryEnd, Names]:
    """Read the answer to a load."""
    if reply.status >= 400:
        return end_of(reply.status, (await reply.whole(feed.patience_s)).message), ()
    said = PullStream()
    while piece := await reply.piece(feed.patience_s):
        said.feed(piece)
    error = said.end()
    return (Delivered() if error is None else end_of(None, error)), said.loaded


class Saved:
    """The bytes of an archive. Raises :class:`EngineError` where they break off."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __aiter__(self) -> Saved:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._reply.piece(IDLE_S)
        if not piece:
            raise StopAsyncIteration
        return piece


@asynccontextmanager
async def save(calls: EngineCalls, image: str) -> AsyncIterator[AsyncIterator[bytes]]:
    """See :meth:`scavenge.runtime.ports.ImageEngine.save`."""
    async with calls.open("GET", f"images/{image}/get", idle_s=UNPACK_S) as reply:
        if reply.status >= 400:
            raise refusal(await reply.whole(IDLE_S), f"save {image}")
        yield Saved(reply)
