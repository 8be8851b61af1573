"""Runs an evaluation for somebody at a terminal: with progress, log lines, a closing table and the way to resume.

What is run, and how it ends, is :mod:`scavenge.app`'s; nothing here changes it.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import orjson
import trio

from scavenge.app.console import screen_on_stderr
from scavenge.app.evaluation import RunResult, run_evaluation
from scavenge.app.options import RunOptions
from scavenge.core.redaction import Redactor
from scavenge.core.summary import Summary, closing_table
from scavenge.edge.console import Screen
from scavenge.edge.console_table import table_text
from scavenge.edge.logs import LogEvents, set_up_logs
from scavenge.edge.progress import Progress, run_progress
from scavenge.errors import exit_code_of, single_error
from scavenge.events import Event, Observer, RunStarted

RESUMABLE = frozenset({1, 3, 4, 130, 143})
"""Exit codes after which something is owed."""


@attrs.frozen
class Display:
    """What of a run is shown, and how."""

    progress: bool = True
    log_level: str | None = None
    as_json: bool = False


@attrs.define(eq=False)
class Whereabouts:
    """An observer that remembers the run's folder, for when the run ends in an error."""

    run_dir: str | None = None

    def __call__(self, event: Event) -> None:
        """Hear of an event."""
        if isinstance(event, RunStarted):
            self.run_dir = event.run_dir


def run_in_console(path: Path | None, options: RunOptions, display: Display, write_out: Callable[[str], None]) -> int:
    """Run an evaluation, give what belongs on standard output to *write_out*, and return the exit code.

    Raises what :func:`scavenge.run_evaluation` raises, with a note that tells the run's folder or how to resume, as
    long as there is a folder: a run that was refused before it began leaves none.
    """
    screen = screen_on_stderr()
    set_up_logs(screen, display.log_level)
    progress = Progress(screen, time.time) if display.progress else None
    whereabouts = Whereabouts()
    observers: list[Observer] = [whereabouts, LogEvents(tell_waits=progress is None)]
    if progress is not None:
        observers.append(progress)
    try:
        result = trio.run(_play, path, options, observers, progress, screen.redact)
    except BaseException as exc:
        if whereabouts.run_dir is not None and Path(whereabouts.run_dir).exists():
            exc.add_note(_note(exit_code_of(exc), whereabouts.run_dir))
        raise
    _tell_end(result, screen, display, write_out)
    return result.exit_code


async def _play(
    path: Path | None,
    options: RunOptions,
    observers: Sequence[Observer],
    progress: Progress | None,
    redact: Redactor,
) -> RunResult:
    with single_error():
        async with trio.open_nursery() as showing:
            if progress is not None:
                showing.start_soon(run_progress, progress)
            result = await run_evaluation(path, options=options, observers=observers, redact=redact)
            showing.cancel_scope.cancel()
    return result


def _tell_end(result: RunResult, screen: Screen, display: Display, write_out: Callable[[str], None]) -> None:
    closing = closing_text(result.summary)
    if display.as_json:
        screen.say(closing)
        write_out(orjson.dumps(result.summary.as_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        write_out(screen.redact(closing))
    screen.say(f"results: {result.run_dir}")
    if result.why is not None:
        screen.say(f"scavenge: {result.why}")
    if result.exit_code in RESUMABLE:
        screen.say(_note(result.exit_code, str(result.run_dir)))


def _note(exit_code: int, run_dir: str) -> str:
    if exit_code in RESUMABLE:
        return f"resume with: scavenge run --resume {shlex.quote(run_dir)}"
    return f"run folder: {run_dir}"


def closing_text(summary: Summary) -> str:
    """The closing tables as text; one without rows is left out."""
    tables = (table for table in closing_table(summary) if table.rows)
    return "\n\n".join(f"{table.title}\n{table_text(table.head, table.rows)}" for table in tables)
