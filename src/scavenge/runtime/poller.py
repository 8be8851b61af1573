"""Asks the endpoint sources and hands what changed to the fleet. One task a source; knows neither slots nor health.

Data flow: source → listing → checked rows → roster → changes. A source that fails or hangs keeps its last good listing.
Each change of a source's or a row's state is told once, as one event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs
import trio

from scavenge.core.roster import Change, Roster
from scavenge.errors import ConfigError, Problem, SourceError
from scavenge.events import Observer, SourceChanged
from scavenge.runtime.ports import EndpointSource
from scavenge.types import BadRow, CheckedListing, Endpoint, Listing

CheckListing: TypeAlias = Callable[[Listing, Sequence[Endpoint]], CheckedListing]
"""Checks the rows of a listing, given the endpoints that are present. May raise :class:`SourceError`."""

ANSWER_WITHIN_S = 60.0
"""How long a source may take for one listing, unless it holds its answer until something changes."""

FIRST_ANSWER_WITHIN_S = 5.0
"""How long the start of an elastic run waits for a source before it goes on without."""


def _kind(trouble: str | None) -> str | None:
    """A trouble without its numbers: a broken file that grows is broken in another line each time, and told of once."""
    return None if trouble is None else re.sub(r"\d+", "#", trouble)


@attrs.define
class _Sourced:
    """One source and what it last said of itself."""

    name: str
    source: EndpointSource
    trouble: str | None = None
    row_troubles: Mapping[object, str] = attrs.field(factory=dict)
    """What is wrong with rows now, by whom they speak of and the kind of trouble."""


@attrs.define
class Poller:
    """Keeps a roster up to date with its sources.

    ``on_changes`` is called with the changes of one listing at a time and never waits.
    """

    sources: Sequence[tuple[str, EndpointSource]]
    check: CheckListing
    on_changes: Callable[[Sequence[Change]], None]
    emit: Observer
    interval_s: float
    elastic: bool
    roster: Roster = attrs.field(init=False)
    _sourced: list[_Sourced] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.roster = Roster.of(len(self.sources))
        self._sourced = [_Sourced(name, source) for name, source in self.sources]

    async def ask_first(self) -> None:
        """Ask every source once, side by side, before the run starts.

        Raises :class:`ConfigError` with every wrong row of every source, and, unless the run is elastic, with every
        source that could not answer. Cancelled, it leaves the roster with the sources that had answered.
        """
        problems: list[Problem] = []
        async with trio.open_nursery() as nursery:
            for index in range(len(self._sourced)):
                nursery.start_soon(self._ask_first, index, problems)
        if problems:
            raise ConfigError(sorted(problems, key=str))

    async def _ask_first(self, index: int, problems: list[Problem]) -> None:
        patience_s = FIRST_ANSWER_WITHIN_S if self.elastic else ANSWER_WITHIN_S
        checked = await self._ask(index, patience_s)
        sourced = self._sourced[index]
        if checked is None:
            if not self.elastic:
                trouble = (sourced.trouble or "no answer").removeprefix(f"{sourced.name}: ")
                problems.append(Problem(sourced.name, trouble))
        elif checked.bad:
            problems.extend(problem for row in checked.bad for problem in row.problems)
        else:
            self._take(index, checked)

    async def run_source(self, index: int) -> None:
        """Ask one source for ever."""
        long_poll = getattr(self._sourced[index].source, "long_poll", False)
        while True:
            await trio.sleep(self.interval_s)
            checked = await self._ask(index, float("inf") if long_poll else ANSWER_WITHIN_S)
            if checked is not None:
                self._take(index, checked)

    async def _ask(self, index: int, patience_s: float) -> CheckedListing | None:
        """The source's listing, or ``None`` when it cannot say; the change of its state is told."""
        sourced = self._sourced[index]
        try:
            with trio.fail_after(patience_s):
                listing = await sourced.source.list_endpoints()
            if not isinstance(listing, Listing):
                raise SourceError(f"list_endpoints() returned {type(listing).__name__}, not a Listing")
            checked = self.check(listing, tuple(self.roster))
        except trio.TooSlowError:
            self._tell(sourced, f"no answer within {patience_s:g} s")
        except SourceError as exc:
            self._tell(sourced, str(exc))
        except Exception as exc:  # a plugin's bug costs its listing, not the run
            self._tell(sourced, f"{type(exc).__name__}: {exc}")
        else:
            self._tell(sourced, None)
            return checked
        return None

    def _tell(self, sourced: _Sourced, trouble: str | None) -> None:
        before, sourced.trouble = sourced.trouble, trouble
        if _kind(before) == _kind(trouble):
            return
        message = "readable again" if trouble is None else f"{trouble}; the last good listing stands"
        self.emit(SourceChanged(sourced.name, trouble is None, message))

    def _take(self, index: int, checked: CheckedListing) -> None:
        sourced = self._sourced[index]
        before, troubles = sourced.row_troubles, self._row_troubles(checked)
        sourced.row_troubles = troubles
        for key, trouble in troubles.items():
            if key not in before:
                self.emit(SourceChanged(sourced.name, False, trouble))
        cured = [trouble for key, trouble in before.items() if key not in troubles]
        if cured and not troubles:
            self.emit(SourceChanged(sourced.name, True, "every row is right again"))
        elif cured:
            self.emit(SourceChanged(sourced.name, True, f"no longer so: {'; '.join(cured)}"))
        if changes := self.roster.update(index, checked):
            self.on_changes(changes)

    def _row_troubles(self, checked: CheckedListing) -> dict[object, str]:
        troubles: dict[object, str] = {}
        for row in checked.bad:
            for problem in row.problems:
                trouble = self._trouble(row, problem, checked)
                troubles.setdefault((row.endpoint_id, row.url, _kind(trouble)), trouble)
        return troubles

    def _trouble(self, row: BadRow, problem: Problem, checked: CheckedListing) -> str:
        name = (row.endpoint_id, row.url)
        listed_well = name in [(one.endpoint_id, one.url) for one in checked.endpoints]
        known = not listed_well and name in [(one.endpoint_id, one.url) for one in self.roster]
        return f"{problem}; {'its last good settings stand' if known else 'this row is left out'}"
