"""Keeps endpoint sources open and asked: one life after the other, each in a task of its own.

Data flow: source → report, in a channel. Decides when a source is dead and when it is opened again; knows neither what
a right row is nor who is told. A source is foreign code that may raise anything, cancel itself, hang, or leave tasks
in disorder, so it runs behind a shield: the run's cancellation reaches it as the end of its use, then it has a bounded
time for its closing.

Invariant: a source is open in at most one life at a time, and a life is over only when its closing is.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from random import Random
from typing import TypeAlias

import attrs
import trio

from scavenge.core.backoff import equal_jitter_s
from scavenge.core.codeplace import error_text, raised_at
from scavenge.core.naming import one_line
from scavenge.errors import SourceError, leaves
from scavenge.listings import Listing
from scavenge.runtime.ports import EndpointSource

OPEN_WITHIN_S = 60.0
"""How long a source may take to open."""

ANSWER_WITHIN_S = 60.0
"""How long a source may take for one listing; one that polls long, only for the first of each life."""

CLOSED_WITHIN_S = 2.0
"""How long a source may take to close."""

TOLD_CHARACTERS = 500
"""How much of what a source raised is told."""

BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 60.0


@attrs.frozen(eq=False)
class NamedSource:
    """A source that can be opened, again and again: its name in messages, and the plugin that it comes from."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[EndpointSource]]
    owner: str = ""
    """The plugin's name; empty for a source that comes from none."""
    code: object = attrs.field(default=attrs.Factory(lambda self: self.open, takes_self=True))
    """Whose lines are told as the place of an error: ``open``, unless that is ours."""


def lent(name: str, source: EndpointSource, code: object = None) -> NamedSource:
    """A source that is open already and that is not ours to close; *code* is what it asks, if it asks another one."""
    return NamedSource(name, lambda: nullcontext(source), code=source if code is None else code)


@attrs.frozen
class Listed:
    """The source answered."""

    listing: Listing


@attrs.frozen
class Troubled:
    """The source cannot say; ``opened`` is false where it could not even be opened."""

    why: str
    opened: bool = True


Report: TypeAlias = "Listed | Troubled"


def told(error: BaseException, code: object = None) -> str:
    """What a source raised, on one line, and where in its *code*; a group is told by the errors in it."""
    return one_line("; ".join(dict.fromkeys(_told(leaf, code) for leaf in leaves(error))), TOLD_CHARACTERS)


def _told(leaf: BaseException, code: object) -> str:
    text = error_text(leaf)
    if not (text and isinstance(leaf, SourceError)):
        text = f"{type(leaf).__name__}: {text}".removesuffix(": ")
    place = raised_at(leaf, code)
    return f"{one_line(text, TOLD_CHARACTERS - len(place))}{place}"


def check_source(opened: object) -> None:
    """Raise :class:`SourceError` when what an ``open`` gave is no source."""
    if opened is None:
        raise SourceError("its open() yielded None; yield the source")
    if not callable(getattr(opened, "list_endpoints", None)):
        kind = type(opened).__name__
        raise SourceError(f"its open() yielded {kind}, which has no list_endpoints(); yield the source")


@attrs.define(eq=False)
class _Life:
    """One opening of a source, what is done with it, and its closing."""

    source: NamedSource
    use: Callable[[EndpointSource], Awaitable[None]]
    end: Troubled = Troubled("not opened", opened=False)
    """How it ended."""
    over: trio.Event = attrs.field(factory=trio.Event)
    _opened: bool = False
    _whole: trio.CancelScope = attrs.field(factory=lambda: trio.CancelScope(shield=True))
    _using: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    async def run_life(self) -> None:
        """Live, from the opening to the end of the closing."""
        try:
            self.end = Troubled(await self._died_of(), self._opened)
        finally:
            self.over.set()

    def stop(self) -> None:
        """End the opening at once, or the use, after which there is a little time to close."""
        (self._using if self._opened else self._whole).cancel()

    async def _died_of(self) -> str:
        try:
            await self._live()
        except BaseException as exc:  # whatever a source raises is its own; Cancelled stays in _live
            if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves(exc)):
                raise
            why = told(exc, self.source.code)
            return f"died: {why}" if self._opened else f"cannot be opened: {why}"
        if self._opened:
            return "died: it cancelled itself"
        slow = trio.current_time() >= self._whole.deadline
        return f"cannot be opened: {f'not open within {OPEN_WITHIN_S:g} s' if slow else 'it cancelled itself'}"

    async def _live(self) -> None:
        self._whole.deadline = trio.current_time() + OPEN_WITHIN_S
        with self._whole:
            try:
                async with self.source.open() as source:
                    try:
                        check_source(source)
                        self._opened = True
                        self._whole.deadline = math.inf
                        with self._using:
                            await self.use(source)
                    finally:
                        self._whole.deadline = trio.current_time() + CLOSED_WITHIN_S
            finally:
                self._whole.cancel()  # takes in a Cancelled of a scope of the source's that has leaked


async def use_source(source: NamedSource, use: Callable[[EndpointSource], Awaitable[None]]) -> Troubled:
    """Open a source and *use* it, until it dies; how it died. *use* never returns by itself.

    What the source raises, wherever, is the answer, not an exception; so is what *use* raises, which must therefore be
    the source's. Cancelled, it closes the source, for :data:`CLOSED_WITHIN_S` at most.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    life = _Life(source, use)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(life.run_life, name=f"source {source.name}")
        try:
            await life.over.wait()
        finally:
            life.stop()
    return life.end


@attrs.define(eq=False)
class SourceKeeper:
    """Opens a source, asks it, and opens it again when it dies; tells what comes of it in a channel.

    Unless it is *elastic*, the source is asked once, stays open, since what it lists may need it, and is not opened
    again.
    """

    source: NamedSource
    interval_s: float
    elastic: bool
    random: Random
    restarts: int = 0
    """How often it was opened again."""
    _deaths: int = 0
    """How often it died since it last gave a listing."""

    async def run_source(self, reports: trio.MemorySendChannel[Report]) -> None:
        """Keep the source for ever, or until its death where it is not elastic. Cancelled, it closes the source.

        Ownership: closes *reports*.
        """

        async def ask_on(source: EndpointSource) -> None:
            await self._ask_on(source, reports)

        with reports:
            while True:
                end = await use_source(self.source, ask_on)
                await reports.send(end)
                if not self.elastic:
                    return
                self._deaths += 1
                await trio.sleep(equal_jitter_s(self._deaths, BACKOFF_FIRST_S, BACKOFF_MAX_S, self.random))
                self.restarts += 1

    async def _ask_on(self, source: EndpointSource, reports: trio.MemorySendChannel[Report]) -> None:
        long_poll, patience_s = bool(getattr(source, "long_poll", False)), ANSWER_WITHIN_S
        while True:
            report = await self._ask(source, patience_s)
            if isinstance(report, Listed):
                self._deaths = 0
                patience_s = math.inf if long_poll else ANSWER_WITHIN_S
            await reports.send(report)
            await trio.sleep(self.interval_s if self.elastic else math.inf)

    async def _ask(self, source: EndpointSource, patience_s: float) -> Report:
        """The source's answer, or why there is none."""
        with trio.move_on_after(patience_s):
            try:
                listing: object = await source.list_endpoints()
            except Exception as exc:  # a plugin's bug costs its listing, not the run
                return Troubled(told(exc, self.source.code))
            if isinstance(listing, Listing):
                return Listed(listing)
            return Troubled(f"list_endpoints() returned {type(listing).__name__}, not a Listing")
        return Troubled(f"no answer within {patience_s:g} s")
