"""Plays an environment with ``backend = "asyncio"``: each rollout is a task.

A ``SystemExit`` or ``KeyboardInterrupt`` in a task that foreign code made is that task's; asyncio would end the loop
for it, and the loop goes on here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import assert_never, cast

import attrs

from scavenge.core.worker_messages import Abort, Load, Play, ReadRows, Stop, ToWorker
from scavenge.worker.gateway_client import READ_BYTES, GatewayClient
from scavenge.worker.link import Link, note
from scavenge.worker.model import Model
from scavenge.worker.rows import RowsThread
from scavenge.worker.stage import CLOSE_WITHIN_S, DONE, TURN_EVERY_S, Stage, print_traceback


def serve(stage: Stage) -> int:
    """Open the environment, play what comes until :class:`Stop`, and close it; the exit status."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        whole = loop.create_task(_Playing(stage).run())
        while True:
            try:
                return loop.run_until_complete(whole)
            except (SystemExit, KeyboardInterrupt) as exc:
                if whole.done():
                    raise
                print_traceback(exc)
                note(f"{type(exc).__name__} in a task: the task has ended, the worker goes on")


class _Stream:
    """A connection under asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        return await self._reader.read(READ_BYTES)

    def close(self) -> None:
        self._writer.transport.abort()


async def _connect(host: str, port: int) -> _Stream:
    return _Stream(*await asyncio.open_connection(host, port))


@attrs.frozen
class _Raised:
    """What foreign code raised that asyncio would end the loop for."""

    error: BaseException


async def _contained(step: Callable[[], Awaitable[object]], link: Link) -> object:
    try:
        return await step()
    except (SystemExit, KeyboardInterrupt) as exc:
        return _Raised(exc)
    finally:
        link.end_copy()  # before its event loop, which shares the descriptors of this one, does anything


def _error_of(task: asyncio.Task[object]) -> BaseException | None:
    """What a task that is done has raised."""
    if task.cancelled():
        return asyncio.CancelledError("cancelled, but not by the run")
    if (error := task.exception()) is not None:
        return error
    result = task.result()
    return result.error if isinstance(result, _Raised) else None


@attrs.define(eq=False)
class _Playing:
    """Invariant: a rollout is in ``_tasks`` until it is answered, and is answered once."""

    _stage: Stage
    _tasks: dict[int, asyncio.Task[object]] = attrs.field(factory=dict, init=False)
    _aborted: set[int] = attrs.field(factory=set, init=False)
    _client: GatewayClient[_Stream] = attrs.field(factory=partial(GatewayClient, _connect), init=False)
    _messages: asyncio.Queue[ToWorker] = attrs.field(factory=asyncio.Queue, init=False)
    _opening: asyncio.Task[object] | None = attrs.field(default=None, init=False)
    _whole: asyncio.Task[object] | None = attrs.field(default=None, init=False)

    async def run(self) -> int:
        """See :func:`serve`."""
        loop = asyncio.get_running_loop()
        self._whole = asyncio.current_task()
        self._opening = asyncio.create_task(_contained(self._stage.environment.open, self._stage.link))

        def listener(message: ToWorker) -> None:
            loop.call_soon_threadsafe(self._take, message)

        self._stage.link.listen(listener)
        turning = asyncio.create_task(self._turn())
        try:
            return await self._host(self._opening)
        finally:
            turning.cancel()

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Stop) and self._opening is not None:
            self._opening.cancel()
        self._messages.put_nowait(message)

    async def _turn(self) -> None:
        while True:
            self._stage.link.turned()
            await asyncio.sleep(TURN_EVERY_S)

    async def _host(self, opening: asyncio.Task[object]) -> int:
        await asyncio.wait([opening])
        if opening.cancelled() and not self._messages.empty():
            return DONE  # a stop is all that can have come
        if (error := _error_of(opening)) is not None:
            return self._stage.not_opened(error)
        await self._follow(self._stage.opened())
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))
            await asyncio.sleep(0)
        await self._close()
        return DONE

    async def _follow(self, rows: RowsThread) -> None:
        """Do what comes, until the end."""
        while True:
            message = await self._messages.get()
            match message:
                case Play():
                    self._start(message)
                case Abort(rollout):
                    self._abort(rollout)
                case ReadRows():
                    rows.ask(message)
                case Stop():
                    for rollout in list(self._tasks):
                        self._abort(rollout)
                    return
                case Load():
                    note("asked to load again; left alone")
                case _:
                    assert_never(message)

    def _start(self, play: Play) -> None:
        step = partial(self._stage.environment.play, play.example, Model(play.model, self._client))
        contained = _contained(cast("Callable[[], Awaitable[object]]", step), self._stage.link)
        task = asyncio.create_task(contained, name=f"rollout {play.rollout}")
        self._tasks[play.rollout] = task
        task.add_done_callback(partial(self._answer, play.rollout))

    def _abort(self, rollout: int) -> None:
        if (task := self._tasks.get(rollout)) is not None:
            self._aborted.add(rollout)
            task.cancel()

    def _answer(self, rollout: int, task: asyncio.Task[object]) -> None:
        answers = self._stage.answers
        del self._tasks[rollout]
        aborted = rollout in self._aborted
        self._aborted.discard(rollout)
        if task.cancelled() and aborted:
            answers.aborted(rollout)
        elif task.cancelled() and self._breaks_down:
            pass  # nothing is known of it: with the worker gone it is played elsewhere
        elif (error := _error_of(task)) is not None:
            answers.error(rollout, error)
        else:
            answers.result(rollout, task.result())

    @property
    def _breaks_down(self) -> bool:
        """Whether the event loop ends, and not by the run's will: foreign code may cancel every task that there is."""
        return self._whole is not None and (self._whole.done() or self._whole.cancelling() > 0)

    async def _close(self) -> None:
        closing = asyncio.create_task(_contained(self._stage.environment.close, self._stage.link))
        await asyncio.wait([closing], timeout=CLOSE_WITHIN_S)
        if not closing.done():
            note(f"close() took more than {CLOSE_WITHIN_S:g} s")
        elif (error := _error_of(closing)) is not None:
            self._stage.close_failed(error)
        self._client.close()
