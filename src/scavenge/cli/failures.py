"""What the user is told of an error that ends a command, and the exit status it comes to."""

from __future__ import annotations

import traceback

from scavenge.errors import ConfigError, ScavengeError, exit_code_of, leaves

USAGE = 2
BUG = 70
INTERRUPTED = 130

_REPORT = (
    "this is a bug in scavenge: please report it to the project with the traceback above and what you were running;"
    " secrets have been taken out of it, but look at it first"
)


def tell_failure(error: BaseException) -> int:
    """Say on standard error what ended the command, and return the exit status.

    A wrong file or option takes one line a problem, and no error but a bug shows a traceback.
    """
    from scavenge.app.console import screen_on_stderr

    status = exit_code_of(error)
    say = screen_on_stderr().say
    if status == BUG:
        say("".join(traceback.format_exception(error)).rstrip())
        say(_REPORT)
        return status
    if status == INTERRUPTED:
        say("interrupted")
    for leaf in leaves(error):
        if isinstance(leaf, ConfigError):
            say(str(leaf))
        elif isinstance(leaf, ScavengeError):
            say(f"scavenge: {leaf}")
    for note in getattr(error, "__notes__", ()):
        say(note)
    return status
