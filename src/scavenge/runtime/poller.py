"""Takes what the endpoint sources say and hands what changed to the fleet. Knows neither slots nor health.

Data flow: report → listing → checked rows with their source's name → roster → changes. A source that fails, hangs or
is dead keeps its last good listing. Each change of a source's or a row's state is told once, as one event. The sources
live in tasks of their own, see :mod:`scavenge.runtime.sources`; listings are taken outside of them, so that an error
of ours is never taken for a source's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from random import Random
from typing import TypeAlias

import attrs
import trio

from scavenge.core.figures import duration, without_numbers
from scavenge.core.roster import Change, Roster
from scavenge.errors import ConfigError, PluginError, Problem
from scavenge.events import Observer, SourceChanged
from scavenge.listings import CheckedListing, Listing, placed
from scavenge.runtime.sources import ANSWER_WITHIN_S, NamedSource, Report, SourceKeeper, Troubled, told
from scavenge.status import SourceStatus
from scavenge.types import Endpoint

CheckListing: TypeAlias = Callable[[Listing, Sequence[Endpoint]], CheckedListing]
"""Checks the rows of a listing, given the endpoints that are present. May raise :class:`SourceError`."""

FIRST_ANSWER_WITHIN_S = 5.0
"""How long the start of an elastic run waits for a source before it goes on without."""

ROWS_TOLD = 20
"""How many rows of a source are told of at a time: thousands may go wrong at once, and again and again."""


def _kind(trouble: str | None) -> str | None:
    """What makes a trouble another one: a broken file that grows is broken elsewhere each time, and told once."""
    return None if trouble is None else without_numbers(trouble)


@attrs.define(eq=False)
class _Sourced:
    """One source and what it last said of itself."""

    keeper: SourceKeeper
    first: Report | None = None
    """What it said before the start was over."""
    trouble: str | None = None
    troubled_at: float = 0.0
    listed: int = 0
    """Endpoints in its last good listing."""
    listed_at: float | None = None
    row_troubles: Mapping[object, str] = attrs.field(factory=dict)
    """What is wrong with rows now, by whom they speak of and the kind of trouble."""

    @property
    def source(self) -> NamedSource:
        return self.keeper.source

    @property
    def stands(self) -> str:
        """What holds of its endpoints while it cannot say."""
        if self.listed_at is None:
            return "it has listed nothing yet"
        return f"the last good listing, {self.listed} endpoint{'s' * (self.listed != 1)}, stands"


@attrs.define(eq=False)
class Poller:
    """Keeps a roster up to date with its sources.

    ``on_changes`` is called with the changes of one listing at a time and never waits.
    """

    sources: Sequence[NamedSource]
    check: CheckListing
    on_changes: Callable[[Sequence[Change]], None]
    emit: Observer
    interval_s: float
    elastic: bool
    random: Random
    roster: Roster = attrs.field(init=False)
    _sourced: list[_Sourced] = attrs.field(init=False)
    _answered: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Every source has said something, or one cannot be opened."""
    _started: trio.Event = attrs.field(factory=trio.Event, init=False)
    """The first answers have been taken."""

    def __attrs_post_init__(self) -> None:
        self.roster = Roster.of(len(self.sources))
        self._sourced = [
            _Sourced(SourceKeeper(source, self.interval_s, self.elastic, self.random)) for source in self.sources
        ]
        if not self.sources:
            self._answered.set()

    async def run_poller(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open and ask the sources side by side, and take what they list; started when the first answers are taken.

        Raises, before it is started, :class:`ConfigError` with every wrong row of every source and, unless the run is
        elastic, with every source that could not answer, and :class:`PluginError` when one cannot be opened.
        Cancelled, it closes every source, for two seconds at most; the roster stays as it is.
        """
        with ExitStack() as ends:  # closed when nobody sends any more, or a source would see that nobody listens
            async with trio.open_nursery() as lives:
                for index, sourced in enumerate(self._sourced):
                    send, receive = trio.open_memory_channel[Report](0)
                    ends.enter_context(receive)
                    lives.start_soon(sourced.keeper.run_source, send, name=f"keep source {sourced.source.name}")
                    lives.start_soon(self._follow, index, receive, name=f"follow source {sourced.source.name}")
                await self._take_first_answers()
                task_status.started()

    def status(self, now: float) -> tuple[SourceStatus, ...]:
        """How the sources are doing."""
        return tuple(
            SourceStatus(
                sourced.source.name,
                sourced.listed,
                None if sourced.listed_at is None else now - sourced.listed_at,
                sourced.trouble,
                sourced.keeper.restarts,
            )
            for sourced in self._sourced
        )

    # --- the start

    async def _take_first_answers(self) -> None:
        patience_s = FIRST_ANSWER_WITHIN_S if self.elastic else ANSWER_WITHIN_S
        with trio.move_on_after(patience_s):
            await self._answered.wait()
        for sourced in self._sourced:
            if isinstance(sourced.first, Troubled) and not sourced.first.opened:
                name = sourced.source.name
                raise PluginError(sourced.source.owner or name, f"{name} {_without(name, sourced.first.why)}")
        problems = [
            problem
            for index, sourced in enumerate(self._sourced)
            for problem in self._take_first(index, sourced.first or Troubled(f"no answer within {patience_s:g} s"))
        ]
        if problems:
            raise ConfigError(sorted(problems, key=str))
        self._started.set()

    def _take_first(self, index: int, report: Report) -> list[Problem]:
        sourced = self._sourced[index]
        checked = self._read(sourced, report)
        if checked is None:
            if self.elastic:
                return []
            name = sourced.source.name
            return [Problem(name, _without(name, sourced.trouble or ""))]
        wrong = [row for row in checked.bad if not (self.elastic and row.incomplete)]
        if not wrong:
            self._take(index, checked)
        return [problem for row in wrong for problem in row.problems]

    # --- a source speaks

    async def _follow(self, index: int, reports: trio.MemoryReceiveChannel[Report]) -> None:
        async for report in reports:
            if self._started.is_set():
                self._hear(index, report)
            else:
                await self._keep_first(index, report)

    async def _keep_first(self, index: int, report: Report) -> None:
        """Put a first answer where the start finds it, and let the source wait until it was taken."""
        self._sourced[index].first = report
        unopened = isinstance(report, Troubled) and not report.opened
        if unopened or all(sourced.first is not None for sourced in self._sourced):
            self._answered.set()
        await self._started.wait()

    def _hear(self, index: int, report: Report) -> None:
        checked = self._read(self._sourced[index], report)
        if checked is not None:
            self._take(index, checked)

    def _read(self, sourced: _Sourced, report: Report) -> CheckedListing | None:
        """The rows of a report, with their source's name, or ``None`` where it has none; its state is told."""
        if isinstance(report, Troubled):
            self._tell(sourced, report.why)
            return None
        try:
            checked = self.check(placed(report.listing, sourced.source.name), tuple(self.roster))
        except Exception as exc:  # a listing may be of the plugin's making all through
            self._tell(sourced, told(exc))
            return None
        self._tell(sourced, None)
        name = sourced.source.name
        return attrs.evolve(checked, endpoints=tuple(attrs.evolve(one, source=name) for one in checked.endpoints))

    def _tell(self, sourced: _Sourced, trouble: str | None) -> None:
        before, sourced.trouble = sourced.trouble, trouble
        now = trio.current_time()
        if before is None:
            sourced.troubled_at = now
        if _kind(before) == _kind(trouble):
            return
        ok = trouble is None
        if ok:
            sourced.row_troubles = {}  # the rows that are still wrong are told of anew
        cured = f"readable again after {duration(now - sourced.troubled_at)}"
        self.emit(SourceChanged(sourced.source.name, ok, cured if ok else f"{trouble}; {sourced.stands}"))

    def _take(self, index: int, checked: CheckedListing) -> None:
        sourced = self._sourced[index]
        sourced.listed, sourced.listed_at = len(checked.endpoints), trio.current_time()
        before, sourced.row_troubles = sourced.row_troubles, self._row_troubles(checked)
        self._tell_rows(sourced.source.name, before, sourced.row_troubles)
        if changes := self.roster.update(index, checked):
            self.on_changes(changes)

    def _tell_rows(self, name: str, before: Mapping[object, str], troubles: Mapping[object, str]) -> None:
        news = [trouble for key, trouble in troubles.items() if key not in before]
        for trouble in _first(news):
            self.emit(SourceChanged(name, False, trouble))
        cured = [trouble for key, trouble in before.items() if key not in troubles]
        if cured and not troubles:
            self.emit(SourceChanged(name, True, "every row is right again"))
        elif cured:
            still = f"still: {'; '.join(_first(troubles.values()))}; no longer so: {'; '.join(_first(cured))}"
            self.emit(SourceChanged(name, False, still))

    def _row_troubles(self, checked: CheckedListing) -> dict[object, str]:
        troubles: dict[object, str] = {}
        standing = _names(self.roster) - _names(checked.endpoints) if checked.bad else frozenset()
        for row in checked.bad:
            known = (row.endpoint_id, row.url) in standing
            stands = "its last good settings stand" if known else "this row is left out"
            for problem in row.problems:
                trouble = f"{problem}; {stands}"
                troubles.setdefault((row.endpoint_id, row.url, _kind(trouble)), trouble)
        return troubles


def _first(troubles: Collection[str]) -> list[str]:
    """The first troubles, and how many there are beside them."""
    more = len(troubles) - ROWS_TOLD
    return [*islice(troubles, ROWS_TOLD), *([f"{more} more of its rows"] if more > 0 else [])]


def _names(endpoints: Iterable[Endpoint]) -> frozenset[tuple[object, object]]:
    return frozenset((one.endpoint_id, one.url) for one in endpoints)


def _without(name: str, why: str) -> str:
    """A trouble without the name of its source, which stands beside it."""
    return why.removeprefix(f"{name}: ")
