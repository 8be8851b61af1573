"""The command source: a listing in JSON or TOML that a program prints, run afresh each time it is asked.

Decides what of a program's end and of what it printed is a listing; how it is run and ended is told in
:mod:`scavenge.edge.program`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from scavenge.core.documents import DocumentError
from scavenge.core.listing_text import listing_tables
from scavenge.core.naming import one_line
from scavenge.edge.program import MOST_BYTES, Ran, run_program
from scavenge.edge.sources.http_config import check_timeout
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import SourceError
from scavenge.listings import Listing

SAID_CHARACTERS = 200
"""How much of what a program wrote to its standard error is told: the end of it."""


def _check_command(config: object, field: attrs.Attribute[Any], command: list[str]) -> None:
    if not command or not command[0]:
        raise ValueError('expected a program and its arguments, such as ["./list-servers", "--json"]')
    if any("\0" in word for word in command):
        raise ValueError("no argument of a program can have a NUL character in it")


@attrs.frozen
class CommandSourceConfig:
    """The keys of a ``[[source]]`` of type ``command``. ``cwd`` is where the program runs."""

    command: list[str] = attrs.field(validator=_check_command, repr=False)
    timeout: float = attrs.field(default=30.0, validator=check_timeout)
    cwd: Path = Path()


class CommandSource:
    """Lists the endpoints that a program prints."""

    def __init__(self, config: CommandSourceConfig) -> None:
        self._config = config
        self._where = one_line(config.command[0], 100)
        self._threads = LimitedThreads(1)  # a long text takes seconds to read; one that nobody waits for may be left

    async def list_endpoints(self) -> Listing:
        """The endpoints that the program prints now.

        Raises :class:`SourceError`. Cancelled, it kills the program, and leaves at most the reading of a text that has
        come, in a thread.
        """
        config = self._config
        try:
            ran = await run_program(config.command, config.cwd, config.timeout)
        except OSError as exc:
            raise SourceError(f"{self._where}: {_not_started(exc, config)}") from None
        if (trouble := _trouble(ran, config.timeout)) is not None:
            raise SourceError(f"{self._where}: {trouble}{_said(ran)}")
        try:
            tables = await self._threads.run(partial(listing_tables, ran.output), abandon_on_cancel=True)
        except DocumentError as exc:
            raise SourceError(f"{self._where}: what it prints is no listing: {exc}{_said(ran)}") from None
        return Listing(tables, where=self._where)


@asynccontextmanager
async def open_command(config: CommandSourceConfig) -> AsyncIterator[CommandSource]:
    """The source that runs the configured program. Nothing is held open."""
    yield CommandSource(config)


def _trouble(ran: Ran, timeout_s: float) -> str | None:
    """Why what a program printed is not to be looked at."""
    if ran.too_long:
        return f"it prints more than {MOST_BYTES // 2**20} MiB; it is to print a listing only"
    if ran.hung:
        return f"not done within {timeout_s:g} s, so it was killed; see `timeout`"
    if ran.exit_code < 0:
        return f"killed by {ran.signal_name}; run it by hand to see why"
    if ran.exit_code > 0:
        return f"exit code {ran.exit_code}; run it by hand to see why"
    if not ran.whole:
        return "it has ended, and a process that it left still holds its standard output; let it close that"
    return None


def _said(ran: Ran) -> str:
    text = one_line(ran.complaints.decode(errors="replace"), len(ran.complaints) + 1)
    if not text:
        return ""
    return f"; on standard error: {text if len(text) <= SAID_CHARACTERS else '…' + text[-SAID_CHARACTERS:]}"


def _not_started(error: OSError, config: CommandSourceConfig) -> str:
    if not config.cwd.is_dir():
        return f"the folder to run it in, {one_line(str(config.cwd))}, is not there; see `cwd`"
    if isinstance(error, FileNotFoundError):
        return "no such program, or the interpreter in its first line is missing; install it, or correct `command`"
    if isinstance(error, PermissionError):
        return "not executable for this user; make it so, or put its interpreter before it in `command`"
    return f"cannot be started: {one_line(error.strerror or str(error))}; see `command`"
