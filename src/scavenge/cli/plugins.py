"""``scavenge plugins``."""

from __future__ import annotations

import click

from scavenge.cli.output import write_out

EXAMPLE = """\b
Examples:
  scavenge plugins
  scavenge plugins --json"""


@click.command(epilog=EXAMPLE, short_help="List the plugins, what they add, and why one failed.")
@click.option("--json", "as_json", is_flag=True, help="Write the list as JSON.")
def plugins(as_json: bool) -> int:
    """List every plugin: its distribution and version, what it adds, and why it failed if it did."""
    from scavenge.app.plugin_list import plugins_text

    write_out(plugins_text(as_json=as_json))
    return 0
