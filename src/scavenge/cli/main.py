"""The ``scavenge`` program: its commands, and what becomes of an error that none of them expected.

Invariant: results go to standard output, all else to standard error; only a bug of ours shows a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from scavenge.cli.check import check
from scavenge.cli.endpoints import endpoints
from scavenge.cli.exec import exec_
from scavenge.cli.failures import INTERRUPTED, USAGE, tell_failure
from scavenge.cli.images import images
from scavenge.cli.output import make_outputs_safe
from scavenge.cli.plugins import plugins
from scavenge.cli.report import report
from scavenge.cli.run import run
from scavenge.cli.serve import serve


@click.group(
    commands={
        "run": run,
        "check": check,
        "endpoints": endpoints,
        "serve": serve,
        "exec": exec_,
        "images": images,
        "report": report,
        "plugins": plugins,
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="scavenge", message="%(prog)s %(version)s")
def scavenge() -> None:
    """LLM evaluations on whatever inference servers happen to be alive.

    `scavenge COMMAND --help` has an example of each command.
    """


def main() -> None:
    """Run the program with the arguments of this process, and exit with its status."""
    sys.exit(exit_status(sys.argv[1:]))


def exit_status(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status. Never raises, but lets ``SystemExit`` through."""
    make_outputs_safe()
    try:
        status = scavenge.main(list(arguments), prog_name="scavenge", standalone_mode=False)
    except click.Abort as exc:
        return INTERRUPTED if exc.__cause__ is None else tell_failure(exc.__cause__)
    except click.ClickException as exc:
        exc.show()
        return USAGE
    except SystemExit:
        raise
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as exc:
        return tell_failure(exc)
    return status if isinstance(status, int) else 0
