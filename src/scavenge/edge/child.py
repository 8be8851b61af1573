"""Runs a command in the foreground, as a shell would: with our streams, and in our process group.

It has the terminal as we have it: what the terminal sends to the whole group reaches both. It inherits what we
inherited, descriptors included; signals that we were started to ignore stay ignored there, all others are at their
defaults. Knows nothing of what is run.

Invariant: a child is reaped before its block is left, unless it hangs in a system call even after SIGKILL; no signal
goes to its number after it was reaped.

Limit: what the child started and left behind lives on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import trio

GRACE_S = 5.0
"""How long a child has after SIGTERM."""

REAPED_WITHIN_S = 2.0
"""How long a killed child may take to be gone; one that hangs in a system call is left to the system."""

KILLED_BY = 128
"""What shells add to the number of the signal that ended a command."""


class Child:
    """A command that runs."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing when it is gone, or is another user's by now. Never waits."""
        with suppress(PermissionError):
            self._process.send_signal(number)

    def has_heard_terminal(self) -> bool:
        """Whether a key that the terminal turns into a signal has reached it, if it has reached us."""
        try:
            terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError:  # none controls us
            return False
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp() == os.getpgid(self.pid)
        except OSError:  # the terminal hung up, or the child is gone
            return False
        finally:
            os.close(terminal)

    async def wait(self) -> int:
        """Wait for its end and return its exit status as shells tell it: above 128 where a signal ended it."""
        code = await self._process.wait()
        return code if code >= 0 else KILLED_BY - code


@asynccontextmanager
async def open_child(command: Sequence[str], environ: Mapping[str, str]) -> AsyncIterator[Child]:
    """A command that runs while the block does, with the environment *environ*; the command is looked up there, too.

    Raises :class:`OSError` on entering, when it cannot be started. A child that still runs when the block is left, by
    cancellation or else, is asked by SIGTERM to end, and killed after :data:`GRACE_S`.
    """
    process = await trio.lowlevel.open_process(
        list(command),
        env=dict(environ),
        close_fds=False,  # ours close by themselves; those that we inherited are meant for it
    )
    child = Child(process)
    try:
        yield child
    finally:
        child.signal(signal.SIGTERM)
        with trio.move_on_after(GRACE_S, shield=True):
            await child.wait()
        child.signal(signal.SIGKILL)
        with trio.move_on_after(REAPED_WITHIN_S, shield=True):
            await child.wait()
