"""``scavenge report``: a run's folder -> one HTML page. Reads while the run may go on, and writes the page only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson

from scavenge.core.report.contents import make_report
from scavenge.core.report.history import History
from scavenge.edge.event_lines import read_events
from scavenge.edge.report_page import need_plotly, render
from scavenge.edge.run_folder import CONFIG, EVENTS, SUMMARY, write_whole
from scavenge.errors import ResultsError, UsageError

PAGE = "report.html"
PAGE_ENDS = (".html", ".htm")
"""So that no file of a run is ever replaced."""
SUMMARY_LARGEST_BYTES = 64 * 1024 * 1024


def write_report(run_dir: Path, output: Path | None) -> Path:
    """Write the report of the run in *run_dir*, to ``report.html`` there or to *output*; returns where.

    Raises :class:`UsageError` when there is no run, nothing to tell of it, or no plotly, and
    :class:`ResultsError` when a file cannot be read or written.
    """
    need_plotly()
    check_run_folder(run_dir)
    page = run_dir / PAGE if output is None else output
    check_output(page)
    history = History()
    read = read_events(run_dir / EVENTS, history.observe)
    if not history.times.begins:
        raise UsageError(f"{run_dir / EVENTS}: has no event that can be used; wait until the run has begun")
    report = make_report(run_dir.absolute().name or str(run_dir), history, read, read_summary(run_dir / SUMMARY))
    try:
        write_whole(page.resolve(), render(report))
    except ResultsError as exc:
        exc.add_note("name another place for the page with --output")
        raise
    return page


def check_run_folder(run_dir: Path) -> None:
    """Raise :class:`UsageError` for what is no run's folder, or has no events."""
    if not run_dir.is_dir():
        what = "not a folder" if run_dir.exists() else "no such folder"
        raise UsageError(f"{run_dir}: {what}; name the folder of a run, such as runs/NAME-20300101T120000Z-ab12")
    if (run_dir / EVENTS).exists():
        return
    if (run_dir / CONFIG).is_file():
        raise UsageError(f"{run_dir}: has no {EVENTS} yet; wait until the run has begun")
    raise UsageError(f"{run_dir}: has no {EVENTS}: not a run folder; name one of those in the run's output_dir")


def check_output(page: Path) -> None:
    """Raise :class:`UsageError` for a place where a page cannot be, or where it would replace what is no page."""
    target = page.resolve()
    if target.suffix.lower() not in PAGE_ENDS:
        beyond = "" if target == page.absolute() else f", which leads to {target}"
        raise UsageError(f"{page}{beyond}: a page's name ends in .html; name another one with --output")
    if target.exists() and not target.is_file():
        raise UsageError(f"{page}: is not a file; name another page with --output")
    if not target.parent.is_dir():
        raise UsageError(f"{page}: there is no folder {target.parent}; make it first")


def read_summary(path: Path) -> Mapping[str, object] | None:
    """What the run wrote at its end, if it is there and can be read."""
    try:
        if not path.is_file() or path.stat().st_size > SUMMARY_LARGEST_BYTES:
            return None
        found = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
