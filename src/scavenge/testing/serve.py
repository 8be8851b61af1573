"""``python -m scavenge.testing.serve``: simulated inference servers to try things on.

It reads the command line and keeps the endpoints file; what the servers do is decided elsewhere.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import click
import tomli_w
import trio

from scavenge.errors import UsageError
from scavenge.testing.faults import Hang, Outage, Step
from scavenge.testing.server import FleetPlan, HttpFleet, open_http_fleet
from scavenge.testing.source import SimulatedConfig

_HELP = """Run simulated inference servers on this machine until Ctrl-C.

They speak the OpenAI protocol (/v1/chat/completions, /v1/completions, /v1/models, /health, /metrics), solve small
arithmetic questions, and slow down under load as a batching server does: a token takes token-s + load-s * N seconds
with N running streams, and what does not fit the slots waits.

\b
Three servers, of which the second dies after 30 s and comes back after a minute:
    python -m scavenge.testing.serve --servers 3 --slots 8 --port 8001 \\
        --endpoints-file endpoints.toml --script "t=30 kill ep2; t=60 restart ep2"

\b
A script has statements "t=SECONDS WORD SERVER [OPTION=VALUE ...]", separated by ";" or on lines of their own:
    kill      connections are reset, the port is closed; it stays listed
    restart   killed, if it lives, and up again, healed
    join      listed and up; one that starts with this word is absent until then
    leave     vanishes from the listing, and lives on
    drain     listed as draining
    busy      429 to new requests [retry_after=S] [status=N] [for=S]
    freeze    sockets stay open, nothing is heard [for=S]
    slow      everything takes x times as long [x=2] [for=S]
    kv        the room of kv-tokens has x times its size [x=0.5] [for=S]
    error     new requests fail [status=500] [rate=1] [for=S]
    garbage   new requests get a page of HTML [for=S]
    abort     the replies in the making end with finish reason "abort"
    cap       the listed cap, the streams it runs, or both change [max_concurrent=N] [slots=N]
    notice    listed as draining with a deadline, and killed then [in=S]
    heal      busy, freeze, slow, kv, error and garbage are over
Words about the listing have "fleet" in the place of the server:
    outage    the endpoints file is not kept up to date; hang does the same [for=S]
    empty     it lists no endpoint [for=S]
    heal      that is over
Without for= a fault lasts until "heal" or "restart"; busy lasts retry_after seconds if that is given.
"""


_NOT_IN_FILES = {"source", "drain_deadline"}


@click.command(help=_HELP)
@click.option("--servers", default=3, show_default=True, help="How many, named ep1, ep2 ...")
@click.option("--slots", default=8, show_default=True, help="Streams that each runs at once.")
@click.option("--port", default=0, help="The first server's port, the others take the next ones. [default: free ones]")
@click.option("--script", default="", help="What happens to them, see above.")
@click.option("--endpoints-file", type=click.Path(path_type=Path), help="Keep an endpoints.toml here, as listed.")
@click.option("--endpoint-id", default="sim", show_default=True, help="Their endpoint_id in the listing.")
@click.option("--model", default="sim", show_default=True, help="The model that they serve.")
@click.option("--max-concurrent", type=int, help="The cap that they are listed with. [default: none]")
@click.option("--token-s", default=0.01, show_default=True, help="Seconds a token takes on an idle server ...")
@click.option("--load-s", default=0.001, show_default=True, help="... and that each running stream adds.")
@click.option("--kv-tokens", type=int, help="Room of each for contexts, in tokens. [default: they cost nothing]")
@click.option("--token-var", help="Ask for the bearer token that this environment variable holds.")
@click.option("--random-seed", default=0, show_default=True, help="Another seed, other replies.")
def main(port: int, endpoints_file: Path | None, token_var: str | None, **keys: object) -> None:
    """Check the options and serve."""
    try:
        config = SimulatedConfig(**keys)  # type: ignore[arg-type]  # click has checked the types
        plan = _with_token(config.plan(port), token_var)
    except (ValueError, UsageError) as error:
        raise click.UsageError(str(error)) from error
    try:
        trio.run(_serve, plan, endpoints_file)
    except (UsageError, OSError) as error:
        raise click.UsageError(str(error)) from error


def _with_token(plan: FleetPlan, token_var: str | None) -> FleetPlan:
    if token_var is None:
        return plan
    secret = os.environ.get(token_var)
    if not secret:
        raise UsageError(f"--token-var: the environment variable {token_var} is not set")
    servers = [attrs.evolve(server, secret=secret) for server in plan.servers]
    return attrs.evolve(plan, servers=servers, key=token_var)


async def _serve(plan: FleetPlan, endpoints_file: Path | None) -> None:
    def note(step: Step, fleet: HttpFleet) -> None:
        _write_listing(fleet, endpoints_file)
        click.echo(f"t={step.at_s:g} {type(step.fault).__name__.lower()} {step.server}", err=True)

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with open_http_fleet(plan, note) as fleet:
            for node in fleet.nodes.values():
                click.echo(f"{node.host.name} {node.url}{'' if node.host.listed else ' (joins later)'}")
            sys.stdout.flush()
            _write_listing(fleet, endpoints_file)
            async for _ in signals:
                break
    if endpoints_file is not None:
        _write_rows([], endpoints_file)  # the servers are gone, and the file says so


def _write_listing(fleet: HttpFleet, path: Path | None) -> None:
    if path is None or isinstance(fleet.lister.fault, Outage | Hang):
        return
    _write_rows([attrs.asdict(row, filter=_is_written) for row in fleet.rows()], path)


def _is_written(field: attrs.Attribute[object], value: object) -> bool:
    """Whether a field is one of the keys of an endpoints file that this row sets."""
    return value is not None and field.name not in _NOT_IN_FILES


def _write_rows(rows: Sequence[dict[str, object]], path: Path) -> None:
    """Replace the file in one step, so that nobody reads half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    text = "\n".join(f"[[endpoint]]\n{tomli_w.dumps(row)}" for row in rows) or "endpoint = []\n"
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


if __name__ == "__main__":
    main()
