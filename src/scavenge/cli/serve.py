"""``scavenge serve``."""

from __future__ import annotations

from pathlib import Path

import click

from scavenge.cli.output import write_out
from scavenge.cli.run import LEVELS

EXAMPLE = """\b
Examples:
  scavenge serve eval.toml
  scavenge serve endpoints.toml --port 9000
  scavenge serve eval.toml --host 0.0.0.0 --token-var GATEWAY_TOKEN"""


@click.command(epilog=EXAMPLE, short_help="Serve the pools as one OpenAI-compatible server.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--host", metavar="HOST", help="Where to listen, instead of the file's host.")
@click.option("--port", metavar="PORT", type=click.IntRange(0, 65535), help="The port; 0 takes any that is free.")
@click.option("--token-var", metavar="NAME", help="The variable with the token that clients have to send.")
@click.option("--grace", metavar="SECONDS", type=float, help="How long requests may take to end after a signal.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Set a key, as in gateway.max_retries=5.")
@click.option("--log-level", type=LEVELS, help="What to log; by default warnings, and what happens to endpoints.")
def serve(
    file: Path,
    host: str | None,
    port: int | None,
    token_var: str | None,
    grace: float | None,
    overrides: tuple[str, ...],
    log_level: str | None,
) -> int:
    """Serve the pools that the evaluation or endpoints FILE leads to, as one OpenAI-compatible server.

    When it listens, its base URL is written to standard output, as one line. Log lines go to standard error.

    SIGINT, SIGTERM or SIGHUP ends it: it takes no more requests, and those under way have the grace to end; a second
    signal cuts them. Exits with 0 when nothing was cut, else with 128 and the number of the first signal.
    """
    from scavenge.app.gateway import GatewayOptions
    from scavenge.app.serve import serve_in_console

    options = GatewayOptions(overrides=overrides, host=host, port=port, token_var=token_var, grace=grace)
    return serve_in_console(file, options, log_level, write_out)
