"""Runs a program for what it prints, and leaves nothing of it behind. Knows nothing of what the output means.

The program leads a process group of its own, so that what it starts is ended with it and Ctrl-C does not reach it.
Whatever ends the run, the group is killed: after its leader's end too, when what is left of it can only hold the pipes.
A program that does not end in time is asked by SIGTERM first; a cancelled run kills at once.

Limit: a process that has left the group (``setsid``) lives on. One that holds the standard output is told of.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import trio

MOST_BYTES = 16 * 2**20
"""How much a program may print."""

COMPLAINT_BYTES = 4096
"""How much is kept of what it writes to its standard error: the end of it."""

GRACE_S = 1.0
"""How long a program has after SIGTERM, and its output after its end."""

REAPED_WITHIN_S = 1.0
"""How long a killed program may take to be gone; one that hangs in a system call is left to the system."""

_READ_BYTES = 65536


@attrs.define
class Ran:
    """What came of a run. ``exit_code`` is the signal's number, negative, where one ended it."""

    output: bytes = attrs.field(default=b"", repr=False)
    complaints: bytes = attrs.field(default=b"", repr=False)
    exit_code: int = 0
    too_long: bool = False
    hung: bool = False
    """It did not end in time."""
    whole: bool = False
    """The end of its standard output was seen."""

    @property
    def signal_name(self) -> str:
        """The name of the signal that ended it."""
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"


async def run_program(command: Sequence[str], cwd: Path, within_s: float, told: bytes = b"") -> Ran:
    """Run a program in *cwd* to its end. Its standard input is *told*, its environment this process's.

    *told* is at most what a pipe holds at once, 4096 bytes.

    Raises :class:`OSError` when it cannot be started. Cancelled, it kills the program and all of its group.
    """
    with _readable(told) as standard_input:
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=standard_input,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            start_new_session=True,
        )
    run = _Run(process)
    try:
        with trio.move_on_after(within_s) as hurry:
            await run.follow()
        if hurry.cancelled_caught:
            run.ran.hung = True
            await run.ask_to_end()
    finally:
        run.kill()
        with trio.move_on_after(REAPED_WITHIN_S, shield=True):
            await run.reap()
    return run.ran


@contextmanager
def _readable(told: bytes) -> Iterator[int]:
    """A descriptor that reads *told* and then ends."""
    reader, writer = os.pipe()
    try:
        try:
            os.write(writer, told)
        finally:
            os.close(writer)
        yield reader
    finally:
        os.close(reader)


class _Run:
    """A program under way, and what has come of it so far."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - opened with pipes
        self.ran = Ran()
        self._process = process
        self._streams = (process.stdout, process.stderr)
        self._group_is_gone = False  # its number may be another's by now

    async def follow(self) -> None:
        """Read what it writes, until its end or until that is too much."""
        output, complaints = self._streams
        async with trio.open_nursery() as reading:
            reading.start_soon(self._read_output, output, reading.cancel_scope)
            reading.start_soon(self._read_complaints, complaints)
            await self._process.wait()
            self.kill()
            reading.cancel_scope.deadline = trio.current_time() + GRACE_S

    async def ask_to_end(self) -> None:
        """Send SIGTERM, and wait a little for what comes of it."""
        self._signal(signal.SIGTERM)
        with trio.move_on_after(GRACE_S):
            await self._process.wait()

    def kill(self) -> None:
        """Kill all of its group; the first time after its own end is the last time."""
        if not self._group_is_gone:
            self._signal(signal.SIGKILL)
            self._group_is_gone = self._process.returncode is not None

    async def reap(self) -> None:
        """Close the pipes, and wait for its end."""
        for stream in self._streams:
            await stream.aclose()
        self.ran.exit_code = await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # it is gone; all that is left has another user
            os.killpg(self._process.pid, number)

    async def _read_output(self, output: trio.abc.ReceiveStream, reading: trio.CancelScope) -> None:
        held = bytearray()
        while piece := await output.receive_some(_READ_BYTES):
            held += piece
            if len(held) > MOST_BYTES:
                self.ran.too_long = True
                reading.cancel()
                return
        self.ran.output, self.ran.whole = bytes(held), True

    async def _read_complaints(self, complaints: trio.abc.ReceiveStream) -> None:
        while piece := await complaints.receive_some(_READ_BYTES):
            self.ran.complaints = (self.ran.complaints + piece)[-COMPLAINT_BYTES:]
