"""Starts worker processes, and leaves nothing of them behind. Knows no environment, and not what is said.

A worker leads a session and a process group of its own, so that Ctrl-C does not reach it and what it starts is ended
with it. It inherits two descriptors, whose numbers it is told: one end of a socket pair, over which frames go both
ways, and the reading end of its life pipe, whose other end is only ours: with us it ends, however we end
(:mod:`scavenge.worker.guard`). Its output goes to a log file (:mod:`scavenge.edge.worker_log`).

What is taken is registered for release before the next step, which may fail. A process that runs is
:mod:`scavenge.edge.running_worker`'s.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import trio

from scavenge.edge.no_proxy import past_proxies
from scavenge.edge.running_worker import RunningWorker
from scavenge.edge.worker_log import WorkerLog
from scavenge.errors import CannotSpawn, single_error

COMMAND = (sys.executable, "-P", "-m", "scavenge.worker")
"""A worker's program. ``-P``: files of the current folder are no modules, as they are none in ``scavenge run``."""

_FEWER = "lower [workers].max"
_REMEDIES = {
    errno.EMFILE: f"no file descriptors are left to this process: raise the limit (ulimit -n), or {_FEWER}",
    errno.ENFILE: f"no file descriptors are left on this machine: {_FEWER}",
    errno.ENOMEM: f"no memory is left: {_FEWER}",
    errno.EAGAIN: f"no more processes or threads are allowed: raise the limit (ulimit -u, pids.max), or {_FEWER}",
}


@attrs.frozen(kw_only=True)
class ProcessLauncher:
    """Starts worker processes: ``command`` and the options that tell a worker its descriptors.

    ``logs`` is the folder of their log files, ``environ`` the environment they are given.
    """

    logs: Path
    environ: Mapping[str, str] = attrs.field(repr=False)
    command: Sequence[str] = COMMAND

    @asynccontextmanager
    async def open_worker(self, name: str) -> AsyncIterator[RunningWorker]:
        """A process while the block runs; its output goes to the log file of *name*.

        Raises :class:`CannotSpawn` on entering, when nothing is left of the attempt. Leaving, however, kills what is
        left of its group, and waits for at most :data:`scavenge.edge.running_worker.REAPED_WITHIN_S`.
        """
        async with AsyncExitStack() as held:
            with _said_as_cannot_spawn(name):
                worker = await self._start(name, held)
            with single_error():
                async with trio.open_nursery() as minding:
                    minding.start_soon(worker.mind)
                    yield worker
                    minding.cancel_scope.cancel()

    async def _start(self, name: str, held: AsyncExitStack) -> RunningWorker:
        with await trio.to_thread.run_sync(WorkerLog.begin, self.logs, name) as log:
            ours, theirs = socket.socketpair()
            held.callback(_close_socket, ours)
            with theirs:
                ours.setblocking(False)
                life, our_life = os.pipe()
                held.callback(os.close, our_life)
                try:
                    process = await self._open_process(log.descriptor, theirs.fileno(), life)
                finally:
                    os.close(life)
        worker = RunningWorker(process, ours, log)
        held.push_async_callback(worker.end)
        return worker

    async def _open_process(self, output: int, speech: int, life: int) -> trio.Process:
        return await trio.lowlevel.open_process(
            [*self.command, "--socket", str(speech), "--life", str(life)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(speech, life),
            start_new_session=True,
            env=_environment(self.environ),
        )


def _close_socket(ours: socket.socket) -> None:
    trio.lowlevel.notify_closing(ours)
    ours.close()


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a worker is given: its clients reach the gateway on loopback, and its log has all that it printed."""
    return {**environ, **past_proxies(environ), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}


@contextmanager
def _said_as_cannot_spawn(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise CannotSpawn(f"worker {name!r} cannot be started: {_remedy(exc)}") from exc
    except RuntimeError as exc:
        if str(exc) != "can't start new thread":  # the one that waits for the program to be started
            raise
        raise CannotSpawn(f"worker {name!r} cannot be started: {_REMEDIES[errno.EAGAIN]}") from exc


def _remedy(exc: OSError) -> str:
    if exc.errno in _REMEDIES:
        return _REMEDIES[exc.errno]
    return f"{exc.filename}: {exc.strerror}" if exc.filename else str(exc.strerror or exc)
