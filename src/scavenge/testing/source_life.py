"""One life of a source under test: opened, asked and closed in a task of its own, as scavenge does it.

Decides when a life ends and what its end means; must not know which listings are wanted. A source is foreign code that
may raise anything, so what it raises is kept until somebody asks for it, and never reaches the kit's tasks by itself.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import attrs
import trio

from scavenge.core.naming import shown
from scavenge.errors import leaves
from scavenge.testing.source_answers import (
    CLOSED_WITHIN_S,
    MOST_MOMENTS,
    Answer,
    Held,
    Outcome,
    ask,
    is_sources_own,
    swallowed,
    told,
    unhurried,
    went_on,
)
from scavenge.testing.source_probe import Knife, Probe, WentOn

T = TypeVar("T")

OpenSource: TypeAlias = "Callable[[], Any]"
"""Gives an async context manager of the source; what it really gives is looked at."""


@attrs.frozen
class Died:
    """The source ended while it was asked, or before."""

    why: str


@attrs.define(eq=False)
class Asking:
    """One listing that was asked for: what came of it, once ``done`` is set."""

    doing: str
    within_s: float
    at: float = math.inf
    """The moment at which it is cancelled."""
    most_moments: int = MOST_MOMENTS
    done: trio.Event = attrs.field(factory=trio.Event, init=False)
    outcome: Outcome | None = attrs.field(default=None, init=False)
    wrong: AssertionError | None = attrs.field(default=None, init=False)
    knife: Knife = attrs.field(init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self.knife = Knife(self._scope.cancel, min(self.at, self.most_moments))

    async def run(self, source: Any, probe: Probe) -> None:
        """Ask, in the task that the source was opened in."""
        self._scope.deadline = trio.current_time() + self.within_s
        try:
            self.outcome = await ask(source, probe, self.knife, self._scope, self.doing)
            self._check_the_end()
        except AssertionError as exc:
            self.wrong = exc
        finally:
            self.done.set()

    def _check_the_end(self) -> None:
        knife = self.knife
        cut_at = knife.cut_at if knife.cut_at is not None else self._scope.deadline
        late_s = trio.current_time() - cut_at
        if late_s > CLOSED_WITHIN_S:
            remedy = "use abandon_on_cancel=True for threads, and shield nothing that may take long"
            what = f"it went on for {late_s:.1f} s after it was cancelled"
            raise AssertionError(f"{self.doing}: {what}; {remedy}{unhurried()}")
        if knife.fell and self.at > self.most_moments:
            remedy = "let it wait (for an event, with trio.sleep) before it looks again"
            raise AssertionError(f"{self.doing}: it ran hot, {knife.at:g} steps without an answer; {remedy}")
        if knife.given and not isinstance(self.outcome, Held):
            raise AssertionError(swallowed(self.doing))


@attrs.define(eq=False)
class Life:
    """A source from its opening to the end of its closing."""

    open_source: OpenSource
    probe: Probe
    doing: str
    open_within_s: float
    opening_at: float = math.inf
    closing_at: float = math.inf
    """The moments at which the opening and the closing are cancelled."""
    opened: trio.Event = attrs.field(factory=trio.Event, init=False)
    over: trio.Event = attrs.field(factory=trio.Event, init=False)
    source: Any = attrs.field(default=None, init=False)
    end: BaseException | None = attrs.field(default=None, init=False)
    """What came out of it."""
    wrong: AssertionError | None = attrs.field(default=None, init=False)
    """What it did that no source may do."""
    ended_at: float = attrs.field(default=math.inf, init=False)
    opening: Knife = attrs.field(init=False)
    closing: Knife = attrs.field(init=False)
    whole: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    died: bool = attrs.field(default=False, init=False)
    """Whether it ended before it was told to."""
    answered: bool = attrs.field(default=False, init=False)
    """Whether it has listed anything yet."""
    _dismissed: bool = attrs.field(default=False, init=False)
    _asks: trio.MemorySendChannel[Asking] = attrs.field(init=False)
    _asked: trio.MemoryReceiveChannel[Asking] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.opening = Knife(self.whole.cancel, min(self.opening_at, MOST_MOMENTS))
        self.closing = Knife(self.whole.cancel, min(self.closing_at, MOST_MOMENTS))
        self._asks, self._asked = trio.open_memory_channel(1)

    # --- for the kit

    @property
    def long_poll(self) -> bool:
        """Whether the source may hold its answers."""
        return bool(getattr(self.source, "long_poll", False))

    def begin(self, asking: Asking) -> Asking:
        """Have the source asked, in the task that it lives in."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # it is over: see finish
            self._asks.send_nowait(asking)
        return asking

    async def finish(self, asking: Asking) -> Outcome | Died:
        """What came of it. Raises :class:`AssertionError` when it is wrong by itself."""
        await first_of(asking.done, self.over)
        if asking.wrong is not None:
            raise asking.wrong
        if asking.outcome is not None:
            self.answered |= isinstance(asking.outcome, Answer)
            return asking.outcome
        await self.over.wait()
        return Died("it cancelled itself" if self.end is None else told(self.end))

    def dismiss(self) -> None:
        """Let it close, in its own time."""
        self._dismissed = True
        self._asks.close()

    # --- the task of the source

    async def run_life(self) -> None:
        """Live. What the source raises is kept; only what comes from outside comes out."""
        try:
            with self.whole:
                await self._live()
        except BaseException as exc:
            if not is_sources_own(exc):
                raise
            self.end = exc
        finally:
            self._asks.close()
            self._asked.close()
            self.ended_at, self.died = trio.current_time(), not self._dismissed
            self.over.set()

    async def _live(self) -> None:
        self.whole.deadline = trio.current_time() + self.open_within_s
        async with _Watched(self._manager(), self) as source:
            self.whole.deadline = math.inf
            if not callable(getattr(source, "list_endpoints", None)):
                what = f"what open_source() opened is {shown(source)}, which has no list_endpoints()"
                self.wrong = AssertionError(f"{self.doing}: {what}; yield the source")
                return
            self.source = source
            self.opened.set()
            async for asking in self._asked:
                await asking.run(source, self.probe)

    def _manager(self) -> AbstractAsyncContextManager[object]:
        manager = self.open_source()
        if hasattr(manager, "__aenter__") and hasattr(manager, "__aexit__"):
            return manager  # type: ignore[no-any-return]  # it was looked at
        if inspect.iscoroutine(manager):
            manager.close()
        what = f"open_source() gave {shown(manager)}, which is no async context manager"
        self.wrong = AssertionError(f"{self.doing}: {what}; decorate an async generator with asynccontextmanager")
        raise self.wrong


async def first_of(*events: trio.Event) -> None:
    """Wait until one of the events is set."""
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(wait, event)


@attrs.frozen
class _Watched:
    """A source's context manager, whose entering and leaving are watched."""

    manager: AbstractAsyncContextManager[object]
    life: Life

    async def __aenter__(self) -> Any:
        async def enter() -> object:
            return await self.manager.__aenter__()

        return await self._call(enter(), self.life.opening, "opening")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        async def leave() -> bool | None:
            return await self.manager.__aexit__(kind, error, trace)

        self.life.whole.deadline = trio.current_time() + CLOSED_WITHIN_S
        return await self._call(leave(), self.life.closing, "closing")

    async def _call(self, code: Coroutine[Any, Any, T], knife: Knife, what: str) -> T:
        doing = f"{self.life.doing}, {what}"
        try:
            result = await self.life.probe.call(code, knife)
        except WentOn:
            self.life.wrong = AssertionError(went_on(doing))
            raise
        except BaseException as exc:
            if knife.given and not any(isinstance(leaf, trio.Cancelled) for leaf in leaves(exc)):
                self.life.wrong = AssertionError(swallowed(doing, f" and raised {told(exc)}"))
            raise
        if knife.given:
            self.life.wrong = AssertionError(swallowed(doing))
        return result
