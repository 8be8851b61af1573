"""Worker processes for tests: small scripts that speak frames, and what the system knows of their processes."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from scavenge.core.worker_messages import FromWorker
from scavenge.edge import running_worker
from scavenge.edge.running_worker import RunningWorker
from scavenge.edge.worker_process import ProcessLauncher

PATIENCE_S = 10.0
"""How long a test waits for what must come; what is late is no failure before."""

PRELUDE = """
import os, re, signal, socket, subprocess, sys, time
from pathlib import Path
from scavenge.core.frames import encode, reader_to_worker
from scavenge.core.worker_messages import Abort, Aborted, Beat, Load, Play, Ready, Stop
from scavenge.worker.guard import start_guard

life = int(sys.argv[sys.argv.index("--life") + 1])
line = socket.socket(fileno=int(sys.argv[sys.argv.index("--socket") + 1]))
line.set_inheritable(False)
os.set_inheritable(life, False)

def say(*messages):
    line.sendall(b"".join(map(encode, messages)))

def hear():
    reader = reader_to_worker()
    while piece := line.recv(65536):
        yield from reader.feed(piece)
"""


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that no descriptor and no process of the block is left, zombies included.

    A process has :data:`PATIENCE_S` to be gone, for it may be a busy machine.
    """
    opened, had = descriptors(), children()
    with pytest.MonkeyPatch.context() as bounds:
        bounds.setattr(running_worker, "REAPED_WITHIN_S", PATIENCE_S)
        bounds.setattr(running_worker, "GRACE_S", PATIENCE_S)
        yield
    assert descriptors() == opened
    assert children() == had


def launcher(folder: Path, script: str, environ: Mapping[str, str] = os.environ) -> ProcessLauncher:
    """What starts *script*, which has :data:`PRELUDE` before it."""
    path = folder / "script.py"
    path.write_text(PRELUDE + textwrap.dedent(script), encoding="utf-8")
    return ProcessLauncher(logs=folder / "logs", environ=environ, command=[sys.executable, str(path)])


async def hear_all(worker: RunningWorker) -> list[FromWorker]:
    """Everything that it says until it is gone."""
    heard = []
    with trio.fail_after(PATIENCE_S):
        while (message := await worker.receive()) is not None:
            heard.append(message)
    return heard


async def wait_until(so: Callable[[], bool]) -> None:
    """Wait until something has come about."""
    with trio.fail_after(PATIENCE_S):
        while not so():  # noqa: ASYNC110 - another process has no event
            await trio.sleep(0.01)


def descriptors() -> set[str]:
    """The numbers of what this process has open."""
    return set(os.listdir("/proc/self/fd"))


def children() -> set[int]:
    """The processes that are this one's to reap."""
    return {pid for pid, _, parent, _ in processes() if parent == os.getpid()}


def group_of(leader: int) -> set[int]:
    """The living members of a process group."""
    return {pid for pid, state, _, group in processes() if group == leader and state not in "ZX"}


def alive(*pids: int) -> set[int]:
    """Those of the processes that live."""
    return {pid for pid, state, _, _ in processes() if pid in pids and state not in "ZX"}


def processes() -> Iterator[tuple[int, str, int, int]]:
    """All processes: number, state, parent and group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                with (entry / "stat").open("rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it is gone
            state, parent, group = fields[:3]
            yield int(entry.name), state.decode(), int(parent), int(group)
