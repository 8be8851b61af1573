"""Takes the full picture of a run: who waits, who holds what, how everything is, and where each task stands.

Only reads, at one moment. Long lists are cut, so that a picture of ten thousand requests can still be written and read;
the counts beside them are whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from types import FrameType

import trio

from scavenge.core.codeplace import code_place
from scavenge.core.naming import one_line
from scavenge.runtime.dispatcher import HeldLease, Waiting
from scavenge.runtime.fleet import Fleet
from scavenge.runtime.pool import Pool
from scavenge.status import (
    ImagesStatus,
    LeaseStatus,
    Picture,
    PoolPicture,
    PoolStatus,
    TaskStatus,
    WaitingStatus,
    WorkersStatus,
)

LEASES_MOST = WAITING_MOST = TASKS_MOST = 200
"""How many of each are told one by one, over all pools."""
STACK_MOST = 6
FRAMES_MOST = 1000
"""How deep a task's stack is followed."""
NAME_CHARACTERS = 120


def take_picture(
    fleet: Fleet, now: float, workers: Sequence[WorkersStatus] = (), images: ImagesStatus | None = None
) -> Picture:
    """The full picture of a run now, with how its *workers* and its container *images* are doing."""
    status = fleet.status(now)
    pools = []
    leases_left, waiting_left = LEASES_MOST, WAITING_MOST
    for one in status.pools:
        pool = _pool_picture(fleet.pools[one.endpoint_id], one, leases_left, waiting_left, now)
        leases_left -= len(pool.leases)
        waiting_left -= len(pool.waiting)
        pools.append(pool)
    tasks, tasks_in_all = picture_tasks()
    return Picture(tuple(pools), status.sources, status.network_down_s, tasks, tasks_in_all, tuple(workers), images)


def _pool_picture(pool: Pool, status: PoolStatus, leases_most: int, waiting_most: int, now: float) -> PoolPicture:
    held = pool.dispatcher.held()
    stalled_s = pool.stalled_s()
    return PoolPicture(
        status,
        leases=tuple(_lease_status(one, now) for one in held[:leases_most]),
        leases_in_all=len(held),
        waiting=tuple(_waiting_status(one) for one in pool.dispatcher.waiting()[:waiting_most]),
        places=pool.sessions.taken,
        places_waiting=pool.sessions.waiting,
        stalled_s=stalled_s,
        why=pool.why_waiting() if stalled_s else "",
    )


def _lease_status(held: HeldLease, now: float) -> LeaseStatus:
    return LeaseStatus(held.url, held.slots, now - held.granted_at, held.revoked)


def _waiting_status(waiting: Waiting) -> WaitingStatus:
    return WaitingStatus(waiting.ask.slots, waiting.age_s, tuple(sorted(waiting.ask.avoid)))


# --- tasks


def picture_tasks() -> tuple[tuple[TaskStatus, ...], int]:
    """Where the tasks of this Trio run stand, the outer ones first, and how many there are. Never raises."""
    shown, count = [], 0
    for task in _tasks():
        count += 1
        if count <= TASKS_MOST:
            shown.append(TaskStatus(one_line(str(task.name), NAME_CHARACTERS), _stack(task)))
    return tuple(shown), count


def _tasks() -> Iterator[trio.lowlevel.Task]:
    """Every task of the run, level by level; those of one nursery by their names."""
    root = trio.lowlevel.current_root_task()
    level = [] if root is None else [root]
    while level:
        yield from level
        nurseries = [nursery for task in level for nursery in task.child_nurseries]
        level = [task for nursery in nurseries for task in sorted(nursery.child_tasks, key=_name)]


def _name(task: trio.lowlevel.Task) -> str:
    return str(task.name)


def _stack(task: trio.lowlevel.Task) -> tuple[str, ...]:
    """The innermost places of a task's stack. Of several calls inside Trio only the outermost is told."""
    kept: deque[str] = deque(maxlen=STACK_MOST)
    in_trio = False
    try:
        for frame, line in islice(task.iter_await_frames(), FRAMES_MOST):
            module = str(frame.f_globals.get("__name__", ""))
            if not (in_trio and module.startswith("trio.")):
                kept.append(_place(frame, module, line))
            in_trio = module.startswith("trio.")
    except Exception as exc:  # a foreign awaitable that Trio cannot look into, or a coroutine that is about to end
        kept.append(f"(no further: {type(exc).__name__})")
    return tuple(kept)


def _place(frame: FrameType, module: str, line: int) -> str:
    return code_place(frame.f_code.co_filename, module, line, frame.f_code.co_qualname)
