"""What a report has, from its head to its last table. Pure; whoever renders it escapes what is not in a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from scavenge.core.report import endpoint_plots, plots
from scavenge.core.report.closing import closing_tables
from scavenge.core.report.drawing import Plot, View, utc
from scavenge.core.report.history import History
from scavenge.core.report.noted import Moments
from scavenge.core.report.readings import BadReading
from scavenge.core.summary import Table

MISSING = "so the tables that it ends with are missing"


@attrs.frozen
class Read:
    """How reading the event log went: lines that are no JSON objects, and whether the last one is not whole yet."""

    unreadable: int = 0
    torn: bool = False


@attrs.frozen
class Report:
    """Everything on the page, in its order."""

    name: str
    facts: tuple[str, ...]
    """Sentences about the run."""
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...]
    moments: Table


def make_report(name: str, history: History, read: Read, summary: Mapping[str, object] | None) -> Report:
    """The report of a run: of its events, and of its summary, if there is one that could be read as JSON."""
    begin, end, far = history.times.view()
    view = View(begin, end, tuple(history.times.gaps()))
    tables, trouble = _tables(summary)
    drawn = (
        *plots.rollouts(history, view),
        *plots.pools(history, view),
        *endpoint_plots.limits(history, view),
        *endpoint_plots.sessions(history, view),
        *endpoint_plots.states(history, view),
        *plots.attempts(history, view),
        *plots.durations(history, view),
    )
    facts = (*_facts(history, view, far), *trouble, *_gone(history, read))
    return Report(name, facts, (*tables, *history.images.tables()), drawn, _moments(history.moments))


def _tables(summary: Mapping[str, object] | None) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    if summary is None:
        return (), (f"There is no summary.json that can be read: the run goes on, or was killed; {MISSING}.",)
    try:
        return closing_tables(summary), ()
    except BadReading as exc:
        return (), (f"summary.json cannot be used, its key {exc} is not as it should be; {MISSING}.",)


def _facts(history: History, view: View, far: int) -> Iterator[str]:
    yield f"From {utc(view.begin)} to {utc(view.end)} UTC, from the first event to the last."
    if history.parts > 1:
        times = "once" if history.parts == 2 else f"{history.parts - 1} times"
        yield f"The run was gone on with {times}; in between, lines have a gap."
    if history.stopped:
        yield f"It stopped early: {history.stopped}"
    if far:
        yield f"Events a month or more away from all others, as from a wrong clock: {far}; zoom out to see them."


def _gone(history: History, read: Read) -> Iterator[str]:
    yield f"Lines of events.jsonl that were read: {history.lines}."
    if bad := read.unreadable + history.spoilt:
        yield f"Lines that could not be used, and are left out: {bad}."
    if read.torn:
        yield "The last line is not whole: the run is writing it, or was killed when it did."
    if history.dropped:
        yield f"Events that the run could not write, and that are missing here: {history.dropped}."


def _moments(moments: Moments) -> Table:
    kept = [(utc(noted.time), noted.what, noted.text) for noted in (*moments.first, *moments.last)]
    if moments.others:
        kept.insert(len(moments.first), ("", "", f"{moments.others} more"))
    return Table("moments", ("UTC", "what", ""), tuple(kept))
