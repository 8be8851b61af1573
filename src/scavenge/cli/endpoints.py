"""``scavenge endpoints``."""

from __future__ import annotations

from pathlib import Path

import click

from scavenge.cli.output import StandardOutput

EXAMPLE = """\b
Examples:
  scavenge endpoints eval.toml
  scavenge endpoints endpoints.toml --once
  scavenge endpoints eval.toml --json --pool my-model"""


@click.command(epilog=EXAMPLE, short_help="Show how the endpoints are that a file leads to.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Wait until every endpoint has been probed, show the table and exit.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON: one document with --once, else a line a change.")
@click.option("--pool", "pools", metavar="ID", multiple=True, help="Only this pool; may be given more than once.")
def endpoints(file: Path, once: bool, as_json: bool, pools: tuple[str, ...]) -> int:
    """Show how the endpoints are that the evaluation or endpoints FILE leads to, until Ctrl-C.

    The sources are asked and the endpoints probed, as in a run; no request is sent to a model. What a run beside it
    does is not seen: its requests and its speed are not shown, and the limit in the JSON is the one a run begins with.

    With --once, exits with 0 when every pool has an endpoint that takes work, with 2 when the file is wrong, with 4
    when an endpoint is missing.
    """
    from scavenge.app.endpoints import View, show_endpoints

    return show_endpoints(file, View(pools, once, as_json), StandardOutput())
