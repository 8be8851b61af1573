"""``scavenge exec``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from scavenge.cli.run import LEVELS

EXAMPLE = """\b
Examples:
  scavenge exec eval.toml -- python my_eval.py --samples 500
  scavenge exec endpoints.toml --log-level info -- inspect eval task.py --model openai-api/openai/my-model"""

END = "--"


class BeforeCommand(click.Command):
    """A command whose options end where the command that it runs begins: at ``--``, or at the second plain word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, all options of the other command left as they are."""
        own = self._own(ctx, args)
        return super().parse_args(ctx, [*args[:own], END, *args[own + (args[own : own + 1] == [END]) :]])

    def _own(self, ctx: click.Context, args: Sequence[str]) -> int:
        """How many of the arguments are ours."""
        with_value = {name for option in self._options_with_value(ctx) for name in option.opts}
        words = index = 0
        while index < len(args) and args[index] != END:
            word = args[index]
            if not word.startswith("-") or word == "-":
                words += 1
                if words > 1:
                    break
            index += 2 if word in with_value else 1
        if not words and index < len(args):
            raise click.UsageError("name FILE before --, and the command behind it", ctx)
        return min(index, len(args))

    def _options_with_value(self, ctx: click.Context) -> list[click.Option]:
        return [one for one in self.get_params(ctx) if isinstance(one, click.Option) and not one.is_flag]


@click.command(
    "exec", cls=BeforeCommand, epilog=EXAMPLE, short_help="Run a command whose OpenAI clients use the pools."
)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("command", metavar="-- CMD ...", nargs=-1, type=click.UNPROCESSED)
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Set a key, as in gateway.max_retries=5.")
@click.option("--log-level", type=LEVELS, help="What to log; by default warnings.")
def exec_(file: Path, command: tuple[str, ...], overrides: tuple[str, ...], log_level: str | None) -> int:
    """Run CMD beside a gateway to the pools that the evaluation or endpoints FILE leads to.

    CMD finds the gateway by OPENAI_BASE_URL, OPENAI_API_BASE and OPENAI_API_KEY. It has the terminal, and its output is
    left as it is; signals are handed on to it. What scavenge says goes to standard error. When CMD ends, so does the
    gateway.

    Exits with CMD's status: 128 and the signal's number if a signal ended it, 127 if CMD is not found, 126 if it cannot
    be started. Without `--`, CMD begins at the second word that is no option.
    """
    if not any(command[:1]):  # none, or the empty word that a variable came to
        raise click.UsageError("name a command to run, as in: scavenge exec FILE -- CMD ...")
    from scavenge.app.exec import exec_in_console

    return exec_in_console(file, command, overrides, log_level)
