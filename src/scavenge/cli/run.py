"""``scavenge run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from scavenge.cli.output import write_out

if TYPE_CHECKING:
    from scavenge.app.options import RunOptions

EXAMPLE = """\b
Examples:
  scavenge run eval.toml
  scavenge run eval.toml --limit 20 --set eval.sampling_args.temperature=0
  scavenge run --resume runs/eval-20300101T120000Z-ab12"""


FOLDER = click.Path(path_type=Path)
LEVELS = click.Choice(["debug", "info", "warning", "error"], case_sensitive=False)


@click.command(epilog=EXAMPLE, short_help="Run an evaluation, or go on with one.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--output-dir", metavar="DIR", type=FOLDER, help="Parent of the run's folder.")
@click.option("--name", metavar="NAME", help="First part of the name of the run's folder.")
@click.option("--resume", metavar="RUN_DIR", type=FOLDER, help="Go on with this run, instead of starting FILE.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N examples of each eval.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Set a key, as in eval[0].max_retries=5.")
@click.option("--allow-empty", is_flag=True, help="A run without a single sample is no error.")
@click.option("--dry-run", is_flag=True, help="Print the resolved plan as TOML; start and create nothing.")
@click.option("--no-progress", is_flag=True, help="Show log lines only.")
@click.option("--log-level", type=LEVELS, help="What to log; by default warnings, and what happens to endpoints.")
@click.option("--json", "as_json", is_flag=True, help="Write the summary as JSON to standard output.")
def run(
    file: Path | None,
    resume: Path | None,
    output_dir: Path | None,
    name: str | None,
    limit: int | None,
    overrides: tuple[str, ...],
    allow_empty: bool,
    dry_run: bool,
    no_progress: bool,
    log_level: str | None,
    as_json: bool,
) -> int:
    """Run the evaluation FILE.

    Progress and log lines go to standard error, the closing table goes to standard output (with --json, the summary
    goes there and the table to standard error).
    """
    _check_usage(file, resume, output_dir, name)
    from scavenge.app.options import RunOptions

    options = RunOptions(
        overrides=overrides, output_dir=output_dir, name=name, resume=resume, limit=limit, allow_empty=allow_empty
    )
    if dry_run:
        return _print_plan(file, options)
    from scavenge.app.terminal import Display, run_in_console

    return run_in_console(file, options, Display(not no_progress, log_level, as_json), write_out)


def _check_usage(file: Path | None, resume: Path | None, output_dir: Path | None, name: str | None) -> None:
    if file is None and resume is None:
        raise click.UsageError("name an evaluation FILE, or a run to go on with by --resume RUN_DIR")
    if resume is not None and file is not None:
        raise click.UsageError("--resume takes the place of FILE: the run folder has its own configuration")
    if resume is not None and (output_dir is not None or name is not None):
        raise click.UsageError("--output-dir and --name are for a new run folder; --resume goes on in its own")


def _print_plan(file: Path | None, options: RunOptions) -> int:
    from scavenge.app.plan_text import plan_text

    write_out(plan_text(file, options))
    return 0
