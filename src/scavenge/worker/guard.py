"""Sees to it that nothing of a worker outlives the run. Knows nothing of what a worker does.

The guard is a process in the worker's own process group that waits for the end of the run, and then kills the whole
group. Being another process it does so while the worker holds the interpreter's lock, is stopped or hangs in a system
call. It knows the end of the run in two ways: the life pipe, whose only writing end the run holds and which the kernel
closes, also when the run is killed; and the death of the process that started the worker, in case something that the
run forked holds that end as well.

When the worker ends while the run goes on, the run kills the group, and the guard with it.

Limits: a process that has left the group (``setsid``) lives on. A guard that is stopped together with its group, by
SIGSTOP to the whole of it, sees nothing.

Nothing heavy is imported, so that the guard stands before anything of the environment can go wrong.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import NoReturn


def start_guard(life_fd: int) -> None:
    """Start the guard of this process's group, and close the reading end *life_fd* here.

    To be called first thing, while there is one thread. The process is made the leader of a group of its own if it is
    none, for the guard must kill nobody else.

    Raises :class:`OSError` when the system has no room for two processes more; the worker must end then.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as it may be inherited, it hides how children end
    run = _watch_parent()
    # blocked in the guard from its first moment on: what is sent to the whole group is not meant for it
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        _fork_away(life_fd, run)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(life_fd)
        if run is not None:
            os.close(run)


def _watch_parent() -> int | None:
    """What tells of the death of the process that started this one; ``None`` where the system has no such thing."""
    try:
        return os.pidfd_open(os.getppid())
    except (AttributeError, OSError):  # no Linux; an old kernel; it is gone, which the pipe tells as well
        return None


def _fork_away(life_fd: int, run: int | None) -> None:
    # through a process in between: the guard is no child of the worker, whose code may wait for all of its children
    between = os.fork()
    if between == 0:
        _fork_guard(life_fd, run)
    _, status = os.waitpid(between, 0)
    if status:
        error = os.waitstatus_to_exitcode(status)
        raise OSError(error, f"the guard process cannot be started: {os.strerror(error)}")


def _fork_guard(life_fd: int, run: int | None) -> NoReturn:  # pragma: no cover - not measured: it is killed
    status = 1
    try:
        if os.fork() == 0:
            _stand_guard(life_fd, run)
        status = 0
    except OSError as exc:
        status = exc.errno or 1
    finally:
        os._exit(status)


def _stand_guard(life_fd: int, run: int | None) -> NoReturn:  # pragma: no cover - not measured: it is killed
    try:
        _close_all_but(life_fd, run)
        _wait_for_end(life_fd, run)
    finally:  # also if something goes wrong here: no worker without its guard
        os.killpg(0, signal.SIGKILL)
        os._exit(1)


def _close_all_but(*kept: int | None) -> None:  # pragma: no cover - not measured: it is killed
    opened: Iterable[int]
    try:
        opened = map(int, os.listdir("/dev/fd"))
    except OSError:
        opened = range(os.sysconf("SC_OPEN_MAX"))
    for descriptor in opened:
        if descriptor not in kept:
            with suppress(OSError):  # the one that listed them
                os.close(descriptor)


def _wait_for_end(life_fd: int, run: int | None) -> None:  # pragma: no cover - not measured: it is killed
    ends = select.poll()
    for descriptor in (life_fd, run):
        if descriptor is not None:
            ends.register(descriptor, select.POLLIN)
    ends.poll()  # nobody ever writes to the pipe: whatever comes of it is its end
