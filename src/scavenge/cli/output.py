"""Standard output and standard error as they must be for results: a reader that went away is no error of ours."""

from __future__ import annotations

import os
import select
import sys
from io import TextIOWrapper

import attrs

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
    StandardOutput().write(text)


@attrs.define
class StandardOutput:
    """Standard output for whoever writes more than once, and wants to end when nobody reads it any more."""

    _given_up: bool = False

    @property
    def is_terminal(self) -> bool:
        """Whether somebody sees it as it comes."""
        return sys.stdout is not None and sys.stdout.isatty()

    def write(self, text: str) -> None:
        """Write a result as :func:`write_out` does."""
        self._given_up = not _write(text)

    def is_read(self) -> bool:
        """Whether anybody can still read it. Never waits: the end of a pipe's reader is seen without writing."""
        return not self._given_up and not _has_lost_its_reader()


def _has_lost_its_reader() -> bool:
    if sys.stdout is None:
        return True
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return bool(poll.poll(0))
    except (OSError, ValueError):  # no stream of the system's, or one that was closed
        return False


def _write(text: str) -> bool:
    """Write a text; false when nobody reads it."""
    try:
        print(text, flush=True)  # noqa: T201  # this is where results are written
    except BrokenPipeError:
        _give_up_output()
        return False
    except OSError as exc:
        _give_up_output()
        raise ResultsError("standard output", f"cannot be written: {exc.strerror}") from exc
    return True


def _give_up_output() -> None:
    """Let what is left go nowhere: Python writes it once more when it exits, and would complain then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
