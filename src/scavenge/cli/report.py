"""``scavenge report``."""

from __future__ import annotations

from pathlib import Path

import click

from scavenge.cli.output import write_out

EXAMPLE = """\b
Examples:
  scavenge report runs/eval-20300101T120000Z-ab12
  scavenge report runs/eval-20300101T120000Z-ab12 --output eval.html"""

PATH = click.Path(path_type=Path)


@click.command(epilog=EXAMPLE, short_help="Make a page with plots of a run.")
@click.argument("run_dir", type=PATH)
@click.option("--output", metavar="FILE", type=PATH, help="The page to write, instead of RUN_DIR/report.html.")
def report(run_dir: Path, output: Path | None) -> int:
    """Make one HTML page with plots of the run in RUN_DIR, and print its path.

    The page needs no network and no other file. The run may still be going on. Needs the extra: pip install
    'scavenge[report]'.
    """
    from scavenge.app.report import write_report

    write_out(str(write_report(run_dir, output)))
    return 0
