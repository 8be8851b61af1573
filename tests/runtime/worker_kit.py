"""Worker processes in memory: what they do is a coroutine of the test, on the test's clock."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

import attrs
import trio
from in_place import InPlace

from scavenge.core.frames import BadFrame
from scavenge.core.supervision import SupervisorSettings, Ticket
from scavenge.core.worker_messages import (
    Abort,
    Aborted,
    FromWorker,
    Load,
    Play,
    Played,
    ReadRows,
    Ready,
    Rows,
    Stop,
    ToWorker,
)
from scavenge.errors import CannotSpawn
from scavenge.events import Event
from scavenge.rollouts import Example, Rollout
from scavenge.runtime.hosting import Displaced, PlayResult
from scavenge.runtime.workerhost import open_workers
from scavenge.runtime.workerpool import WorkerPool
from scavenge.types import ModelAddress

MODEL = ModelAddress("http://127.0.0.1:1/session/s/v1", "token")
SETTINGS = SupervisorSettings(1, 4, 2, 60.0, 30.0, 60.0)

E = TypeVar("E", bound=Event)
Channel = tuple[trio.MemorySendChannel[Any], trio.MemoryReceiveChannel[Any]]


@attrs.define(eq=False)
class FakeProcess:
    """A process that says what the test has it say."""

    pid: int
    name: str
    killed: bool = False
    ended: str | None = None
    processor_s: float | None = 0.0
    printed: str = ""
    heard: list[ToWorker] = attrs.field(factory=list)
    _told: Channel = attrs.field(factory=lambda: trio.open_memory_channel[Any](1000))
    _says: Channel = attrs.field(factory=lambda: trio.open_memory_channel[Any](1000))
    _gone: trio.Event = attrs.field(factory=trio.Event)

    @property
    def log_file(self) -> str:
        return f"logs/{self.name}.log"

    # --- what the run does with it

    async def send(self, message: ToWorker) -> None:
        await trio.lowlevel.checkpoint()
        if self.ended is None:
            self.heard.append(message)
            self._told[0].send_nowait(message)

    async def receive(self) -> FromWorker | None:
        try:
            message = await self._says[1].receive()
        except trio.EndOfChannel:
            return None
        if isinstance(message, BadFrame):
            raise message
        return message

    async def wait_end(self) -> str:
        await self._gone.wait()
        assert self.ended is not None
        return self.ended

    def kill(self) -> None:
        self.killed = True
        self.die("SIGKILL")

    def cpu_s(self) -> float | None:
        return self.processor_s

    def log_tail(self) -> str:
        return self.printed

    # --- what the test does with it

    async def next(self) -> ToWorker:
        """What it is told next."""
        return await self._told[1].receive()

    def say(self, message: FromWorker | BadFrame) -> None:
        if self.ended is None:
            self._says[0].send_nowait(message)

    def die(self, how: str) -> None:
        """End; what it said before is still to be heard."""
        if self.ended is None:
            self.ended = how
            self._says[0].close()
            self._gone.set()


Script = Callable[[FakeProcess], Awaitable[None]]


async def serve(process: FakeProcess) -> None:
    """Be ready at once, and leave the rest to the test."""
    assert isinstance(await process.next(), Load)
    process.say(Ready("trio", multi_turn=True))


@attrs.define(eq=False)
class FakeLauncher:
    """Starts fake processes that follow *script*. ``refuse`` has what goes wrong with the next starts."""

    script: Script
    processes: list[FakeProcess] = attrs.field(factory=list)
    refuse: list[str] = attrs.field(factory=list)
    _pids: itertools.count[int] = attrs.field(factory=lambda: itertools.count(100))

    @property
    def live(self) -> list[FakeProcess]:
        return [process for process in self.processes if process.ended is None]

    @asynccontextmanager
    async def open_worker(self, name: str) -> AsyncIterator[FakeProcess]:
        await trio.lowlevel.checkpoint()
        if self.refuse:
            raise CannotSpawn(self.refuse.pop(0))
        process = FakeProcess(next(self._pids), name)
        self.processes.append(process)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, process)
            try:
                yield process
            finally:
                process.kill()
                nursery.cancel_scope.cancel()

    async def _follow(self, process: FakeProcess) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_with, process, scope)
                await self.script(process)
                await process._gone.wait()

    async def _stop_with(self, process: FakeProcess, scope: trio.CancelScope) -> None:
        await process._gone.wait()
        scope.cancel()


@attrs.define(eq=False)
class Diligent:
    """The script of a worker that does its work: it loads for a while, and plays each rollout for a while."""

    loading_s: float = 1.0
    playing_s: float = 1.0
    rows: tuple[Example, ...] = ()
    backend: str = "trio"
    played: list[tuple[int, str]] = attrs.field(factory=list)
    """The number of the process and the example, of what was played to its end."""
    most: dict[int, int] = attrs.field(factory=dict)
    """How many rollouts each process had at once at most."""

    async def __call__(self, process: FakeProcess) -> None:
        assert isinstance(await process.next(), Load)
        await trio.sleep(self.loading_s)
        process.say(Ready(self.backend, multi_turn=True, identity={"data": "1"}))
        playing: dict[int, trio.CancelScope] = {}
        async with trio.open_nursery() as nursery:
            while True:
                match await process.next():
                    case Play(number, example):
                        playing[number] = trio.CancelScope()
                        self.most[process.pid] = max(self.most.get(process.pid, 0), len(playing))
                        nursery.start_soon(self._play, process, number, example, playing)
                    case Abort(number) if number in playing:
                        playing[number].cancel()
                    case ReadRows(skip, count):
                        some = self.rows[skip : skip + count]
                        process.say(Rows(skip, some, last=skip + len(some) >= len(self.rows)))
                    case Stop():
                        nursery.cancel_scope.cancel()
                        break
        process.die("exit code 0")

    async def _play(
        self, process: FakeProcess, number: int, example: Example, playing: dict[int, trio.CancelScope]
    ) -> None:
        with playing[number] as scope:
            await trio.sleep(self.playing_s)
        del playing[number]
        if scope.cancelled_caught:
            process.say(Aborted(number))
        else:
            self.played.append((process.pid, example.id))
            process.say(Played(number, Rollout(example.id, 1.0)))


@attrs.define(eq=False)
class WorkersKit:
    """A pool of fake workers that is kept running."""

    pool: WorkerPool
    launcher: FakeLauncher
    events: list[Event]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


def settings(**changes: float):
    """:data:`SETTINGS` but for *changes*."""
    return attrs.evolve(SETTINGS, **changes)  # type: ignore[arg-type]


def make_pool(script: Script, settings: SupervisorSettings = SETTINGS) -> WorkersKit:
    launcher, events = FakeLauncher(script), []
    load = Load("mine:Env", "", "/", "eval.toml: eval[0]")
    return WorkersKit(
        WorkerPool("test", load, launcher, settings, Random(3), InPlace(), events.append), launcher, events
    )


@asynccontextmanager
async def open_kit(script: Script, settings: SupervisorSettings = SETTINGS) -> AsyncIterator[WorkersKit]:
    kit = make_pool(script, settings)
    async with open_workers([kit.pool]):
        yield kit


async def play(kit: WorkersKit, number: int, results: dict[int, list[PlayResult]] | None = None) -> PlayResult:
    """Play one rollout, again after a displacement, as the runner does."""
    ticket = Ticket(number, f"{number} (rollout 0)")
    while isinstance(result := await kit.pool.play(ticket, Example(str(number), {}), MODEL), Displaced):
        if results is not None:
            results.setdefault(number, []).append(result)
    if results is not None:
        results.setdefault(number, []).append(result)
    return result


async def play_many(kit: WorkersKit, count: int, at_once: int) -> dict[int, list[PlayResult]]:
    """Play so many rollouts, so many at once; all that came of each."""
    results: dict[int, list[PlayResult]] = {}
    room = trio.Semaphore(at_once)

    async def one(number: int) -> None:
        await play(kit, number, results)
        room.release()

    async with trio.open_nursery() as nursery:
        for number in range(count):
            await room.acquire()
            nursery.start_soon(one, number)
    return results
