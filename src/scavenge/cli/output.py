"""Standard output and standard error as they must be for results: a reader that went away is no error of ours."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from scavenge.errors import ResultsError


def make_outputs_safe() -> None:
    """Let characters that a stream cannot encode be written as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def write_out(text: str) -> None:
    """Write a result to standard output; when nobody reads it any more, drop it.

    Raises :class:`ResultsError` when it cannot be written for another reason.
    """
    try:
        print(text, flush=True)  # noqa: T201  # this is where results are written
    except BrokenPipeError:
        _give_up_output()
    except OSError as exc:
        _give_up_output()
        raise ResultsError("standard output", f"cannot be written: {exc.strerror}") from exc


def _give_up_output() -> None:
    """Let what is left go nowhere: Python writes it once more when it exits, and would complain then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
