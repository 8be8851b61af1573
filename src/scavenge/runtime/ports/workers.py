"""Worker processes, and what starts them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from scavenge.core.worker_messages import FromWorker, ToWorker


class WorkerProcess(Protocol):
    """One worker process, from its start to its end. What it says is untrusted: it runs foreign code."""

    @property
    def pid(self) -> int:
        """The number of the process."""
        ...

    @property
    def log_file(self) -> str:
        """The file with what it prints, relative to the run's folder."""
        ...

    async def send(self, message: ToWorker) -> None:
        """Send a message; one at a time. To a process that is gone it goes nowhere, without an error."""
        ...

    async def receive(self) -> FromWorker | None:
        """The next message; ``None`` after the last: the process is gone, and all that it had written has been read.

        Raises :class:`scavenge.core.frames.BadFrame` for what is no message, after which nothing more is read.
        Cancelled, it has lost nothing: the next call goes on.
        """
        ...

    async def wait_end(self) -> str:
        """Wait until the process is gone, and say how in a few words: ``exit code 3``, ``SIGSEGV``."""
        ...

    def kill(self) -> None:
        """Kill it and its process group at once. Never waits."""
        ...

    def cpu_s(self) -> float | None:
        """How much processor time it has used; ``None`` where the system does not tell."""
        ...

    def log_tail(self) -> str:
        """The end of what it has printed, a few lines, read within bounds; empty when there is nothing."""
        ...


class WorkerLauncher(Protocol):
    """Starts worker processes."""

    def open_worker(self, name: str) -> AbstractAsyncContextManager[WorkerProcess]:
        """A process while the block runs; *name* tells it from others in the names of its files.

        Entering raises :class:`scavenge.errors.CannotSpawn`. Leaving, however, kills what is left of its group.
        """
        ...
