"""A pool of real worker processes, with the real gateway in front of a scripted door, and all that may go wrong there.

The stories are about weaknesses that pools of workers are known to have, in ``test_worker_weaknesses_*.py`` here and,
for whole runs, beside ``scavenge run``. Which is told where:

=======================================================================================  ==============================
weakness                                                                                 module
=======================================================================================  ==============================
a slot whose restarts were used up never comes back, yet counts as capacity              ``recovery``
less than a second of trouble in starting processes is the end of a pool                 ``recovery``
workers that die after they were ready are started again without any pause               ``recovery``
growth that failed is only tried again when another request comes                        ``recovery``
a pool without a single worker says that it is well                                      ``recovery``
requests that come while a replacement loads fail at once                                ``loading``
one of several workers that fails to load fails the start; they load one after another   ``loading``
the backlog piles up on the worker that was ready first                                  ``loading``
the end of a log is read by reading all of it                                            ``loading``
Ctrl-C has to wait until the first worker has loaded                                     runs
the death of a worker ends the evaluation                                                ``deaths``, runs
a worker that hangs, without being dead, is never noticed; one that is busy is killed    ``hangs``
deaths are noticed by looking now and then                                               ``deaths``
what a worker had started outlives it, or is left as a zombie                            ``deaths``, runs
workers are ended one after the other                                                    ``ends``
a reply that was written at the end of a worker, or while it is retired, is lost         ``deaths``, ``ends``
a rollout that is cancelled goes on in its worker                                        ``ends``
one malformed message ends the whole pool                                                ``talk``
an id that means something to the pool itself is never answered                          ``talk``
two requests with one id overwrite each other                                            ``talk``
a process that was started is forgotten when the next step fails                         :mod:`test_worker_opening`
nobody notices that a process between run and workers is gone                            there is none
=======================================================================================  ==============================

Waits are for conditions and have a bound; no verdict depends on how long something takes, but for bounds of seconds.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random
from typing import TypeVar

import attrs
import trio
from gateway_kit import Door
from worker_process_kit import nothing_left

from scavenge.core.supervision import SupervisorSettings, Ticket
from scavenge.core.worker_messages import Load
from scavenge.edge.gateway.server import GatewayListener, open_listener, run_gateway
from scavenge.edge.threads import LimitedThreads
from scavenge.edge.worker_process import ProcessLauncher
from scavenge.errors import single_error
from scavenge.events import Event, WorkerEnded, WorkerReady, WorkerStarting
from scavenge.rollouts import Example, Failure, Rollout
from scavenge.runtime.hosting import Displaced
from scavenge.runtime.workerhost import open_workers
from scavenge.runtime.workerpool import WorkerPool

PATIENCE_S = 60.0
"""How long a whole story may take."""
SETTINGS = SupervisorSettings(
    min=1, max=1, multiplex=4, startup_timeout_s=60.0, restart_backoff_max_s=0.1, request_deadline_s=60.0
)
QUICK_BEATS = (
    "import sys; from scavenge.worker import link; link.BEAT_EVERY_S = 0.1; "
    "from scavenge.worker.__main__ import main; sys.exit(main(sys.argv[1:]))"
)
"""The worker's program, but heard of more often, where a story is about silence."""
T = TypeVar("T", bound=Event)


class Machine:
    """Where workers are started, as long as there is their program."""

    def __init__(self, folder: Path, *, quick_beats: bool) -> None:
        self.program = folder / "worker"
        self._elsewhere = folder / "no-worker"
        self.use([sys.executable, *(["-c", QUICK_BEATS] if quick_beats else ["-m", "scavenge.worker"])])

    def use(self, command: Sequence[str]) -> None:
        """Have this be the program."""
        self.program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
        self.program.chmod(0o755)

    def fail(self) -> None:
        """Start no process any more."""
        self.program.rename(self._elsewhere)

    def recover(self) -> None:
        self._elsewhere.rename(self.program)


@attrs.define(eq=False)
class Story:
    """A pool that is kept running, and what came of it. ``told`` are the events, and when they came."""

    folder: Path
    pool: WorkerPool
    machine: Machine
    door: Door
    gateway: GatewayListener
    told: list[tuple[float, Event]]
    displaced: int = 0
    """How often rollouts were to be played again."""
    _ages: int = 0

    # --- playing

    async def play(self, do: str = "answer", name: str | None = None, /, **data: object) -> Rollout | Failure:
        """Play one rollout, again after a displacement, as an evaluation does."""
        self._ages += 1
        age = self._ages
        ticket = Ticket(age, name or f"r{age}")
        example = Example(name or f"r{age}", {"do": do, **data})
        address = self.gateway.address(f"session-{age}")
        while isinstance(result := await self.pool.play(ticket, example, address), Displaced):
            self.displaced += 1
        return result

    def play_soon(
        self, nursery: trio.Nursery, count: int, do: str = "answer", **data: object
    ) -> list[Rollout | Failure]:
        """Have so many played; their results, as they come."""
        results: list[Rollout | Failure] = []

        async def one() -> None:
            results.append(await self.play(do, **data))

        for _ in range(count):
            nursery.start_soon(one)
        return results

    # --- what happened

    def of(self, kind: type[T]) -> list[T]:
        return [event for _, event in self.told if isinstance(event, kind)]

    def times(self, kind: type[Event]) -> list[float]:
        return [at for at, event in self.told if isinstance(event, kind)]

    def ended(self, how: str) -> list[WorkerEnded]:
        return [event for event in self.of(WorkerEnded) if event.how == how]

    @property
    def starts(self) -> int:
        return len(self.of(WorkerStarting))

    @property
    def pids(self) -> dict[int, int]:
        """The process of each worker that is ready."""
        gone = {event.worker for event in self.of(WorkerEnded)}
        return {event.worker: event.pid for event in self.of(WorkerReady) if event.worker not in gone}

    def exhausted(self) -> int:
        """How many slots are only probed now."""
        return sum(slot.exhausted for slot in self.pool.supervisor._slots._made)

    # --- what the world does

    def kill_all(self) -> None:
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)

    def hold(self, *whats: str) -> None:
        for what in whats:
            (self.folder / f"hold-{what}").touch()

    def release(self, *whats: str) -> None:
        for what in whats:
            (self.folder / f"hold-{what}").unlink()

    def mark(self, what: str) -> None:
        (self.folder / what).touch()

    def unmark(self, what: str) -> None:
        (self.folder / what).unlink()

    def began(self, name: str = "*", life: int | str = "*") -> int:
        """How many plays of a rollout have begun, in a worker's start."""
        return len(list(self.folder.glob(f"began-{name}-{life}")))

    async def until(self, so: Callable[[], object]) -> None:
        """Wait until something has come about."""
        while not so():  # noqa: ASYNC110 - another process has no event
            await trio.sleep(0.01)

    async def until_done(self, results: list[Rollout | Failure], count: int) -> None:
        """Wait until so many have ended."""
        await self.until(lambda: len(results) == count)

    async def until_ready(self, count: int) -> None:
        await self.until(lambda: self.pool.status().ready == count)


@asynccontextmanager
async def open_story(
    tmp_path: Path,
    prepare: Callable[[Story], object] = lambda story: None,
    *,
    env: str = "Story",
    env_args: Mapping[str, object] | None = None,
    hung_after_s: float | None = None,
    **settings: float,
) -> AsyncIterator[Story]:
    """A pool that runs while the block does, and leaves nothing; *prepare* comes before its first start."""
    with nothing_left(), trio.fail_after(PATIENCE_S), single_error(), closing(open_listener("a token")) as listener:
        story = _make(tmp_path, listener, env, env_args or {}, hung_after_s, settings)
        prepare(story)
        async with trio.open_nursery() as serving:
            await serving.start(run_gateway, listener, story.door)
            async with open_workers([story.pool]):
                yield story
            serving.cancel_scope.cancel()


def _make(
    tmp_path: Path,
    listener: GatewayListener,
    env: str,
    env_args: Mapping[str, object],
    hung_after_s: float | None,
    settings: Mapping[str, float],
) -> Story:
    told: list[tuple[float, Event]] = []
    machine = Machine(tmp_path, quick_beats=hung_after_s is not None)
    (folder := tmp_path / "story").mkdir()
    arguments = {"folder": str(folder), **env_args}
    document = "".join(f"{key} = {json.dumps(value)}\n" for key, value in arguments.items())
    pool = WorkerPool(
        "story",
        Load(f"worker_story_envs:{env}", document, str(Path(__file__).parent), "eval.toml: eval[0]"),
        ProcessLauncher(logs=tmp_path / "logs", environ=os.environ, command=[str(machine.program)]),
        attrs.evolve(SETTINGS, **settings),  # type: ignore[arg-type]
        Random(3),
        LimitedThreads(2),
        lambda event: told.append((trio.current_time(), event)),
        **({} if hung_after_s is None else {"hung_after_s": hung_after_s}),
    )
    return Story(folder, pool, machine, Door(), listener, told)


def answers(results: list[Rollout | Failure]) -> list[object]:
    """What rollouts that went well came to."""
    assert all(isinstance(result, Rollout) for result in results), results
    return sorted(str(result.completion) for result in results if isinstance(result, Rollout))
