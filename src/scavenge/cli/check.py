"""``scavenge check``."""

from __future__ import annotations

from pathlib import Path

import click

from scavenge.cli.output import write_out

EXAMPLE = """\b
Examples:
  scavenge check eval.toml
  scavenge check endpoints.toml --json"""


@click.command(epilog=EXAMPLE, short_help="Look at a file and every endpoint it leads to.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Write what was found as JSON.")
def check(file: Path, as_json: bool) -> int:
    """Look whether the evaluation or endpoints FILE is right, and at every endpoint it leads to.

    Exits with 0 when the file is right and at least one endpoint of every pool can be given work, with 2 when the file
    is wrong, with 4 when an endpoint is missing.
    """
    from scavenge.app.check import check_in_console

    status, output = check_in_console(file, as_json=as_json)
    write_out(output)
    return status
