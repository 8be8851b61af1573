"""Runs one command to its end: output bounded, a group of processes of its own, nothing left behind when cancelled."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE
from typing import cast

import attrs
import trio

MOST_ERROR_BYTES = 16 * 1024
"""How much of the standard error is kept; the rest is read and dropped."""

END_OF_OUTPUT_WITHIN_S = 1.0
"""How long the output may stay open after the command's end, as it does when it left a process in the background."""

TERMINATED_WITHIN_S = 0.5
"""How long a command that is given up has between SIGTERM and SIGKILL."""

CLEANED_UP_WITHIN_S = 1.5
"""How long a command that is given up is waited for; one that hangs in the kernel ends when the kernel lets it."""


@attrs.frozen
class Ended:
    """How a command ended; ``code`` is ``None`` where it was given up for printing too much."""

    code: int | None
    output: bytes
    error: bytes


@attrs.define(eq=False)
class _Kept:
    """What of a stream is kept."""

    most: int
    data: bytearray = attrs.field(factory=bytearray)
    is_over: bool = False
    """There was more."""
    is_whole: bool = False
    """The stream has come to its end."""

    async def read(self, stream: trio.abc.ReceiveStream, when_over: trio.CancelScope | None = None) -> None:
        """Read to the end; with *when_over*, to the first byte too many, which cancels it."""
        async with stream:
            while chunk := await stream.receive_some(65536):
                self.is_over = self.is_over or len(self.data) + len(chunk) > self.most
                self.data += chunk[: self.most - len(self.data)]
                if self.is_over and when_over is not None:
                    when_over.cancel()
        self.is_whole = True


async def run_command(command: Sequence[str], environ: Mapping[str, str], most_bytes: int) -> Ended:
    """Run a command without input, until it ends or has printed more than *most_bytes*.

    Raises ``OSError`` when it cannot be started. Cancelled, it ends the command and all processes of its group, which
    takes :data:`TERMINATED_WITHIN_S` at most.
    """
    process = await trio.lowlevel.open_process(
        list(command), stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environ, start_new_session=True
    )
    output, error = _Kept(most_bytes), _Kept(MOST_ERROR_BYTES)
    try:
        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            nursery.start_soon(output.read, cast("trio.abc.ReceiveStream", process.stdout), scope)
            nursery.start_soon(error.read, cast("trio.abc.ReceiveStream", process.stderr))
            await process.wait()
            scope.deadline = trio.current_time() + END_OF_OUTPUT_WITHIN_S
    finally:
        if process.returncode is None or not (output.is_whole and error.is_whole):
            with trio.move_on_after(CLEANED_UP_WITHIN_S, shield=True):
                await _end_group(process)
    return Ended(None if output.is_over else process.returncode, bytes(output.data), bytes(error.data))


async def _end_group(process: trio.Process) -> None:
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        with trio.move_on_after(TERMINATED_WITHIN_S):
            await process.wait()
    _signal_group(process.pid, signal.SIGKILL)  # what is left of the group, which has the leader's number
    await process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
