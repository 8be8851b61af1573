"""A worker process that runs: spoken with, watched and ended. Decides nothing about it, and knows no environment.

Its death is noticed by the kernel's notice. While the dead process still holds its number the rest of its group is
killed, then it is reaped, and then what it had written is read to the end.

Invariant: the group is never signalled after the step in which its leader was reaped, for its number may be another's
by then. Where the system gives no notice of a death, the leader is reaped first, and its group, whose number the guard
keeps taken, is killed in the same step.

Limit: a process that has left the group (``setsid``) lives on. It may hold the worker's end of the socket, so after the
worker's death nothing is read but what was there by then.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import termios
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import trio

from scavenge.core.frames import BadFrame, encode, reader_from_worker
from scavenge.core.worker_messages import FromWorker, ToWorker
from scavenge.edge.worker_log import WorkerLog

GRACE_S = 5.0
"""How long a process may live that has closed its socket, as one does that ends in good order."""

REAPED_WITHIN_S = 2.0
"""How long a killed process may take to be gone; one that hangs in a system call is left to the system."""

_READ_BYTES = 2**18


class RunningWorker:
    """A worker process; see :class:`scavenge.runtime.ports.WorkerProcess`."""

    def __init__(self, process: trio.Process, socket: socket.socket, log: WorkerLog) -> None:
        self._process = process
        self._socket = socket
        self._log = log
        self._death_notice = _open_death_notice(process.pid)
        self._how_it_ended: str | None = None  # set as soon as it is reaped, in the same step
        self._gone = trio.Event()
        self._unread_bytes = 0  # of what it had written by its death
        self._waits: set[trio.CancelScope] = set()  # for the socket; its death ends them
        self._reader = reader_from_worker()
        self._heard: deque[FromWorker] = deque()
        self._heard_all = False
        self._killed_at: float | None = None  # unless it is gone by then
        self._speaking = trio.StrictFIFOLock()
        self._deaf = False  # it has closed its end

    @property
    def pid(self) -> int:
        """The number of the process, and of its group."""
        return self._process.pid

    @property
    def log_file(self) -> str:
        """The file with what it prints, from the folder above that of the logs."""
        return f"{self._log.path.parent.name}/{self._log.path.name}"

    # --- speaking and hearing

    async def send(self, message: ToWorker) -> None:
        """Send one message; others wait for their turn. To a process that is gone it goes nowhere, without an error.

        A worker that reads nothing blocks this. *Cancellation* after a part of the message was written kills the
        worker, for nothing that came after it could be understood.

        Raises :class:`scavenge.core.frames.FrameTooLong` before anything is written.
        """
        left = memoryview(encode(message))
        whole_bytes = len(left)
        async with self._speaking:
            try:
                while left and not self._deaf and self._how_it_ended is None:
                    if sent_bytes := self._send_nowait(left):
                        left = left[sent_bytes:]
                    else:
                        await self._wait(trio.lowlevel.wait_writable)
            except BaseException:
                if len(left) < whole_bytes:
                    self.kill()
                raise

    def _send_nowait(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._deaf = True
            return 0

    async def receive(self) -> FromWorker | None:
        """The next message; ``None`` after the last: the process is gone, and all that it had written has been read.

        A process that closes its socket and lives on is killed after :data:`GRACE_S`. Raises :class:`BadFrame` for what
        is no message, after which nothing more is read. Cancelled, it has lost nothing: the next call goes on.
        """
        while True:
            await trio.lowlevel.checkpoint()  # also between the pieces of a long message
            if self._heard:
                return self._heard.popleft()
            if self._heard_all:
                await self._wait_gone_or_kill()
                return None
            if not self._hear_nowait():
                await self._wait(trio.lowlevel.wait_readable)

    def _hear_nowait(self) -> bool:
        """Take in what there is to read, the end included; whether there was anything."""
        self._take_in(b"")  # what was wrong behind the last whole message
        gone = self._how_it_ended is not None
        room = min(_READ_BYTES, self._unread_bytes) if gone else _READ_BYTES
        try:
            piece = self._socket.recv(room) if room else b""
        except BlockingIOError:
            self._heard_all = gone
            return gone
        except OSError:  # reset: it has closed its end without having read all
            piece = b""
        self._unread_bytes -= len(piece) if gone else 0
        self._heard_all = not piece
        self._take_in(piece)
        return True

    def _take_in(self, piece: bytes) -> None:
        try:
            self._heard.extend(self._reader.feed(piece))
        except BadFrame:
            self._heard_all = True
            raise

    async def _wait(self, ready: Callable[[socket.socket], Awaitable[None]]) -> None:
        """Wait for the socket, or for the death of the process."""
        with trio.CancelScope() as scope:
            self._waits.add(scope)
            try:
                await ready(self._socket)
            finally:
                self._waits.discard(scope)

    # --- life and death

    async def wait_end(self) -> str:
        """Wait until the process is gone, and say how in a few words: ``exit code 3``, ``SIGSEGV``."""
        await self._gone.wait()
        assert self._how_it_ended is not None  # noqa: S101 - set in the same step
        return self._how_it_ended

    def kill(self) -> None:
        """Kill it and its process group at once; nothing when it is gone. Never waits."""
        if self._how_it_ended is None:
            with suppress(ProcessLookupError, PermissionError):  # all that is left of it has another user
                os.killpg(self.pid, signal.SIGKILL)

    async def mind(self) -> None:
        """Wait for its death, and bury it with its group. Cancelled, it has done nothing; the launcher's to call."""
        await trio.lowlevel.checkpoint()
        if self._how_it_ended is None:
            if self._death_notice is None:
                await self._process.wait()
            else:
                await trio.lowlevel.wait_readable(self._death_notice)
            self._bury()

    def _bury(self) -> None:
        self.kill()
        code = self._process.poll()
        assert code is not None  # noqa: S101 - it was told of
        self._how_it_ended = _ending(code)
        self._unread_bytes = _unread_bytes(self._socket)
        self._gone.set()
        for scope in self._waits:
            scope.cancel()

    async def end(self) -> None:
        """Kill it, and wait within bounds until it is gone; the launcher's to call."""
        self.kill()
        with trio.move_on_after(REAPED_WITHIN_S, shield=True):
            await self.mind()
        if self._death_notice is not None:
            os.close(self._death_notice)

    async def _wait_gone_or_kill(self) -> None:
        if self._killed_at is None:
            self._killed_at = trio.current_time() + GRACE_S
        with trio.move_on_at(self._killed_at):
            await self._gone.wait()
        self.kill()
        await self._gone.wait()

    # --- what the system tells of it

    def cpu_s(self) -> float | None:
        """How much processor time it has used, without what it started; ``None`` where the system does not tell."""
        if self._how_it_ended is not None:
            return None
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_bytes()
            user, system = stat.rpartition(b")")[2].split()[11:13]  # the name before it may hold anything
        except (OSError, ValueError):
            return None
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def log_tail(self) -> str:
        """The end of what it has printed, a few lines, read within bounds; empty when there is nothing."""
        return self._log.tail()


def _open_death_notice(pid: int) -> int | None:
    """What becomes readable when the process dies; ``None`` where the system has no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _unread_bytes(ours: socket.socket) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(ours, termios.FIONREAD, bytes(struct.calcsize("i"))))
    return int(count)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
