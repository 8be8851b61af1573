"""What all checks of a source share: lives that are opened and closed with nothing left behind, and right answers.

Decides when an answer is right: as the author expects it, or else as the same life answered before. Each check that
fails raises :class:`AssertionError`, which says what was done, what came, and what to do.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, assert_never

import attrs
import trio

from scavenge.core.naming import listed
from scavenge.errors import leaves
from scavenge.testing.source_answers import (
    CLOSED_WITHIN_S,
    Answer,
    Held,
    Outcome,
    Raised,
    differing,
    normal_urls,
    told,
    unhurried,
)
from scavenge.testing.source_leftovers import Belongings, belongings
from scavenge.testing.source_life import Asking, Died, Life, OpenSource, first_of
from scavenge.testing.source_probe import Probe

PAUSE_S = 0.02
"""Between two looks at what takes its time."""

HOLD_S = 0.25
"""How long a source that polls long is seen to hold its answer."""


Never: TypeAlias = "Callable[[Outcome | Died], None]"


def _anything(outcome: Outcome | Died) -> None:
    """Nothing is refused."""


@attrs.define(eq=False)
class Trial:
    """A source under test, and what its author says of it."""

    open_source: OpenSource
    expect: Callable[[], Collection[str]] | None
    change: Callable[[], Awaitable[object]] | None
    secrets: Collection[str]
    answers_within_s: float
    max_steps: int
    lives_nursery: trio.Nursery
    probe: Probe
    _living: int = 0
    _warm: bool = False
    """Whether a life is behind us: what a library makes once and for all is no leftover."""

    # --- lives

    async def start(self, doing: str, **cuts: float) -> Life:
        """A life that is open, or over already."""
        life = Life(self.open_source, self.probe, doing, self.answers_within_s, **cuts)
        self.lives_nursery.start_soon(life.run_life, name="a source under test")
        await first_of(life.opened, life.over)
        return life

    @asynccontextmanager
    async def opened(self, doing: str, *, mortal: bool = False, alone: bool = True) -> AsyncIterator[Life]:
        """A life that has to open, and to close in time with nothing left behind; only a *mortal* one may die.

        In one that is not *alone* code of the author's runs, so that of what is left only its tasks are the source's.
        """
        before = belongings(self.probe.tasks)
        life = await self.start(doing)
        if not life.opened.is_set():
            raise self._not_opened(life)
        self._living += 1
        yield life
        self._living -= 1
        await self.close(life, mortal=mortal)
        await self.nothing_left(before, doing, alone=alone)

    def _not_opened(self, life: Life) -> AssertionError:
        if life.wrong is not None:
            return life.wrong
        if life.end is None:
            what = f"not open within {self.answers_within_s:g} s, or cancelled itself"
            return AssertionError(f"{life.doing}: {what}; open without waiting for what may be down{unhurried()}")
        self.check_text(life.end, life.doing)
        return AssertionError(f"{life.doing}: opening raised {told(life.end)}; open also when nothing can be said yet")

    async def close(self, life: Life, *, mortal: bool = False) -> None:
        """Close a life, which has to end well, or at least to have died with a word."""
        life.dismiss()
        await life.over.wait()
        if life.wrong is not None:
            raise life.wrong
        if life.end is not None:
            self.check_text(life.end, life.doing)
            if not (mortal and life.died):
                came = "it died of" if life.died else "closing raised"
                raise AssertionError(f"{life.doing}: {came} {told(life.end)}") from life.end
        elif life.died and not mortal:
            raise AssertionError(f"{life.doing}: it ended by itself; stay open until you are closed")
        elif life.whole.cancelled_caught and not life.died:
            raise AssertionError(
                f"{life.doing}: not closed within {CLOSED_WITHIN_S:g} s; close without waiting for a peer"
            )

    async def nothing_left(self, before: Belongings, doing: str, *, alone: bool = True) -> None:
        """Wait a little until nothing is left that was not there before."""
        if self._living:
            return
        if not (self._warm and alone):
            self._warm, before = True, belongings(()).of_tasks(before.tasks)
        with trio.move_on_after(min(CLOSED_WITHIN_S, self.answers_within_s)):
            while belongings(self.probe.tasks).beyond(before):  # noqa: ASYNC110 - nothing tells that these have gone
                await trio.sleep(PAUSE_S)
            return
        gc.collect()  # what only a reference cycle holds is not held for long
        if left := belongings(self.probe.tasks).beyond(before):
            remedy = "end and close what you opened, also when you are cancelled: a nursery, `async with`, `finally`"
            raise AssertionError(f"{doing}: left behind after closing: {listed(left)}; {remedy}")

    # --- answers

    async def shows(
        self, life: Life, wanted: frozenset[str], when: str, *, never: Never = _anything, mortal: bool = False
    ) -> None:
        """Ask until the *wanted* URLs are listed, or a *mortal* life ends; *never* raises for what may not come."""
        doing = f"{life.doing}, {when}"
        ends_at = trio.current_time() + self.answers_within_s
        came: Outcome | Died = Held()
        while (left_s := ends_at - trio.current_time()) > 0 and not isinstance(came, Died):
            outcome = await self.ask(life, doing, left_s)
            if isinstance(outcome, Answer) and outcome.urls == wanted:
                return
            never(outcome)
            came = came if isinstance(outcome, Held) else outcome
            await trio.sleep(PAUSE_S)
        if not (mortal and isinstance(came, Died)):
            raise self.still(came, wanted, doing)

    def still(self, came: Outcome | Died, wanted: frozenset[str], doing: str) -> AssertionError:
        """The *wanted* URLs did not come in time."""
        what = self._came(came, wanted)
        return AssertionError(f"{doing}: {what}, {self.answers_within_s:g} s later still; say what there is now")

    def _came(self, outcome: Outcome | Died, wanted: frozenset[str]) -> str:
        match outcome:
            case Answer(urls=urls):
                return f"the listing came {differing(urls, wanted)}"
            case Raised(error):
                return f"list_endpoints() raised {told(error)}"
            case Died(why):
                return f"the source died: {why}"
            case Held():
                return "the answer is held back"
            case _:
                assert_never(outcome)

    async def ask(self, life: Life, doing: str, within_s: float | None = None, **options: Any) -> Outcome | Died:
        """Ask once, for *within_s* at most."""
        patience_s = self.answers_within_s if within_s is None else within_s
        return await self.heard(life, life.begin(Asking(doing, patience_s, **options)))

    async def heard(self, life: Life, asking: Asking) -> Outcome | Died:
        """What came of a listing that was asked for; an error's text is looked at."""
        outcome = await life.finish(asking)
        if isinstance(outcome, Raised):
            self.check_text(outcome.error, asking.doing)
        return outcome

    async def first(self, life: Life, doing: str = "the first listing after opening") -> Answer:
        """An answer that may not wait, and is as the author expects it."""
        where = f"{life.doing}, {doing}"
        answer = self.answered(await self.ask(life, where), where)
        self.check_expected(answer, where)
        return answer

    def answered(self, outcome: Outcome | Died, doing: str) -> Answer:
        """The answer, where nothing else will do."""
        match outcome:
            case Answer():
                return outcome
            case Raised(error):
                raise AssertionError(f"{doing}: list_endpoints() raised {told(error)}") from error
            case Held():
                what = f"no answer within {self.answers_within_s:g} s"
                raise AssertionError(f"{doing}: {what}; say what there is without waiting{unhurried()}")
            case Died(why):
                raise AssertionError(f"{doing}: the source died: {why}")
            case _:
                assert_never(outcome)

    def wanted(self) -> frozenset[str]:
        """The URLs that have to be listed now, for checks that the author has to say them for."""
        assert self.expect is not None, "expect= is missing"
        return normal_urls(self.expect())

    def expected(self) -> frozenset[str] | None:
        """The URLs that have to be listed now, if the author says."""
        return None if self.expect is None else normal_urls(self.expect())

    def check_expected(self, answer: Answer, doing: str) -> None:
        """Compare with what the author expects now."""
        wanted = self.expected()
        if wanted is not None and (wrong := differing(answer.urls, wanted)):
            raise AssertionError(f"{doing}: the listing came {wrong}; list all that there is, and nothing else")

    def check_text(self, error: BaseException, doing: str) -> None:
        """What a source raises is told in one line, and holds no secret."""
        for leaf in leaves(error):
            text = str(leaf)
            if any(secret and secret in part for secret in self.secrets for part in (text, repr(leaf))):
                raise AssertionError(
                    f"{doing}: {type(leaf).__name__} was raised with a secret in its text; leave it out"
                )
            if len(text.splitlines()) != 1 or not text.strip():
                what = f"{type(leaf).__name__} was raised with the text {text!r}"
                raise AssertionError(f"{doing}: {what}; say in one line what could not be read, where, and what to do")
