"""What a process holds that a source may leave behind: tasks, file descriptors, threads and child processes.

Decides what is left over. Reads ``/proc``, so it needs Linux; a thread that Trio keeps for its next job is none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import attrs
import trio

_IDLE = "Trio thread "
"""The name of a thread of Trio's without a job."""


@attrs.frozen
class Belongings:
    """What there is at one moment, each named for people."""

    tasks: frozenset[trio.lowlevel.Task]
    descriptors: frozenset[str]
    threads: frozenset[threading.Thread]
    children: frozenset[str]

    def beyond(self, before: Belongings) -> list[str]:
        """What was not there before."""
        return [
            *(f"the task {task.name}" for task in self.tasks - before.tasks),
            *(f"the file descriptor {one}" for one in sorted(self.descriptors - before.descriptors)),
            *(f"the thread {thread.name}" for thread in self.threads - before.threads),
            *(f"the child process {child}" for child in sorted(self.children - before.children)),
        ]

    def of_tasks(self, tasks: frozenset[trio.lowlevel.Task]) -> Belongings:
        """The same with other tasks."""
        return attrs.evolve(self, tasks=tasks)


def belongings(tasks: Collection[trio.lowlevel.Task]) -> Belongings:
    """What there is now."""
    running = (thread for thread in threading.enumerate() if not thread.name.startswith(_IDLE))
    return Belongings(frozenset(tasks), _descriptors(), frozenset(running), _children())


def _descriptors() -> frozenset[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that lists the folder, or one that was closed meanwhile
            found.append(f"{number} ({os.readlink(f'/proc/self/fd/{number}')})")
    return frozenset(found)


def _children() -> frozenset[str]:
    found: set[str] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # that thread has ended
            found.update(path.read_text().split())
    return frozenset(found)
