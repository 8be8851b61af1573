"""One worker from the decision to start it until its process is gone: what it hears and what it says. Decides nothing.

What a worker says is not trusted: what it cannot mean (it is ready twice, it answers what nobody asked) is a broken
protocol, and costs this worker.

Invariants: a number in ``rollouts`` was sent to the worker and has not been answered; what a worker wrote before its
death is heard before :meth:`WorkerLife.live` returns.
"""

from __future__ import annotations

import math
from typing import Protocol, assert_never

import attrs
import trio

from scavenge.core.frames import BadFrame
from scavenge.core.supervision import How, Ticket, WorkerId
from scavenge.core.worker_messages import (
    Abort,
    Aborted,
    Beat,
    Broken,
    FromWorker,
    Play,
    Played,
    PlayFailed,
    ReadRows,
    Ready,
    Rows,
    RowsFailed,
    ToWorker,
)
from scavenge.rollouts import Example
from scavenge.runtime.hosting import Displaced, PlayResult
from scavenge.runtime.ports import Threads, WorkerLauncher, WorkerProcess
from scavenge.types import ModelAddress

DROPPED = "it dropped a rollout that nobody had cancelled, as one does that is sent SIGTERM"


class Listener(Protocol):
    """Who hears what a worker says."""

    def on_sign(self, life: WorkerLife) -> None:
        """It said something."""

    def on_ready(self, life: WorkerLife, ready: Ready) -> None:
        """Its environment is loaded."""

    def on_broken(self, life: WorkerLife, broken: Broken) -> None:
        """Its environment cannot be loaded."""

    def on_beat(self, life: WorkerLife, loop_late_s: float) -> None:
        """It is alive."""

    def on_answer(self, life: WorkerLife, ticket: Ticket, result: PlayResult) -> None:
        """A rollout is over in it."""

    def settle(self) -> None:
        """All that it said at once has been told."""


@attrs.define(eq=False)
class WorkerLife:
    """A worker with what was sent to it. ``killed_why`` says why it was killed, where it was we who did."""

    worker: WorkerId
    slot: int
    started_at: float
    process: WorkerProcess | None = None
    ready: bool = False
    broken_why: str = ""
    """Why it cannot load its environment, once it has said so."""
    stopping: bool = False
    """It was told to end, or ends with the run: its end is no failure."""
    silent: bool = False
    """Nothing more will be heard of it."""
    killed_why: str | None = None
    blocked: bool = False
    """Its event loop is blocked for long, which has been told."""
    tail: str = ""
    """The end of its log, once it is gone unbidden."""
    rollouts: dict[int, Ticket] = attrs.field(factory=dict)
    _numbers: dict[Ticket, int] = attrs.field(factory=dict)
    _aborted: set[Ticket] = attrs.field(factory=set)
    _outgoing: trio.MemorySendChannel[ToWorker] = attrs.field(init=False)
    _queue: trio.MemoryReceiveChannel[ToWorker] = attrs.field(init=False)
    _reading: _Reading | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._outgoing, self._queue = trio.open_memory_channel[ToWorker](math.inf)  # bounded by its places

    @property
    def serves(self) -> bool:
        """Whether it can be asked."""
        return self.ready and not self.stopping and not self.silent

    @property
    def how(self) -> str:
        """The kind of end it has come to; see :class:`scavenge.events.WorkerEnded`."""
        if self.stopping:
            return "retired"
        if self.process is None:
            return How.NOT_SPAWNED.value
        return How.SERVING.value if self.ready else How.LOADING.value

    @property
    def log_file(self) -> str:
        """The file with what it prints; empty where there was no process."""
        return "" if self.process is None else self.process.log_file

    # --- to the worker

    def post(self, message: ToWorker) -> None:
        """Have a message sent, after those before it. Never waits."""
        self._outgoing.send_nowait(message)

    def give(self, number: int, ticket: Ticket, example: Example, model: ModelAddress) -> None:
        """Have a rollout played under a number of its own."""
        self.rollouts[number] = ticket
        self._numbers[ticket] = number
        self.post(Play(number, example, model))

    def abort(self, ticket: Ticket) -> None:
        """Have a rollout cancelled."""
        self._aborted.add(ticket)
        self.post(Abort(self._numbers[ticket]))

    def kill(self, why: str) -> None:
        """Kill the process, now or as soon as there is one. Never waits."""
        self.killed_why = self.killed_why or why
        if self.process is not None:
            self.process.kill()

    async def read(self, question: ReadRows) -> Rows | RowsFailed | None:
        """Ask for rows, one question at a time; ``None``: the worker is gone. Cancelled, its answer is ignored."""
        self._reading = reading = _Reading(question)
        self.post(question)
        await reading.done.wait()
        return reading.answer

    # --- from the worker

    async def live(self, launcher: WorkerLauncher, name: str, threads: Threads, listener: Listener) -> str:
        """Start the process, hear it to its end, and say how that went.

        Raises :class:`scavenge.errors.CannotSpawn`. Cancelled, it kills the process.
        """
        async with launcher.open_worker(name) as process:
            self.process = process
            if self.killed_why is not None:
                process.kill()
            async with trio.open_nursery() as talking:
                talking.start_soon(self._send, process)
                await self._hear_all(process, listener)
                talking.cancel_scope.cancel()
            self.silent = True
            self._on_rows(None)
            ended = await process.wait_end()
            if not self.stopping:
                self.tail = await threads.run(process.log_tail, abandon_on_cancel=True)
        return self.killed_why or self.broken_why or ended

    async def _send(self, process: WorkerProcess) -> None:
        await trio.lowlevel.checkpoint()
        async for message in self._queue:
            await process.send(message)

    async def _hear_all(self, process: WorkerProcess, listener: Listener) -> None:
        try:
            while (message := await process.receive()) is not None:
                listener.on_sign(self)
                self._hear(message, listener)
                listener.settle()
        except BadFrame as exc:
            self.kill(f"it broke the protocol: {exc}")

    def _hear(self, message: FromWorker, listener: Listener) -> None:
        match message:
            case Beat(loop_late_s):
                listener.on_beat(self, loop_late_s)
            case Ready():
                if self.ready:
                    raise BadFrame("it was ready before")
                self.ready = True
                listener.on_ready(self, message)
            case Broken(why):
                self.broken_why = why
                listener.on_broken(self, message)
            case Rows() | RowsFailed():
                self._on_rows(message)
            case Played(number, result):
                listener.on_answer(self, self._answered(number), result)
            case PlayFailed(number, failure):
                listener.on_answer(self, self._answered(number), failure)
            case Aborted(number) if self.rollouts.get(number) not in {None, *self._aborted}:
                self.kill(DROPPED)  # which counts as one that died in it
            case Aborted(number):
                listener.on_answer(self, self._answered(number), Displaced("it was cancelled"))
            case _:
                assert_never(message)

    def _answered(self, number: int) -> Ticket:
        ticket = self.rollouts.pop(number, None)
        if ticket is None:
            raise BadFrame(f"it answered rollout {number}, which it does not have")
        del self._numbers[ticket]
        self._aborted.discard(ticket)
        return ticket

    def _on_rows(self, answer: Rows | RowsFailed | None) -> None:
        reading = self._reading
        if reading is not None and (answer is None or answer.skip == reading.question.skip):
            reading.answer, self._reading = answer, None
            reading.done.set()


@attrs.define(eq=False)
class _Reading:
    question: ReadRows
    done: trio.Event = attrs.field(factory=trio.Event)
    answer: Rows | RowsFailed | None = None
