"""Plays an environment with ``backend = "trio"``: each rollout is a task in a cancel scope of its own."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from functools import partial
from typing import assert_never, cast

import attrs
import trio

from scavenge.core.worker_messages import Abort, Load, Play, ReadRows, Stop, ToWorker
from scavenge.worker.gateway_client import READ_BYTES, GatewayClient
from scavenge.worker.link import note
from scavenge.worker.model import Model
from scavenge.worker.rows import RowsThread
from scavenge.worker.stage import CLOSE_WITHIN_S, DONE, TURN_EVERY_S, Stage


def serve(stage: Stage) -> int:
    """Open the environment, play what comes until :class:`Stop`, and close it; the exit status."""
    return trio.run(_Playing(stage).run)


class _Stream:
    """A connection under Trio."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError as exc:
            raise ConnectionResetError(str(exc.__cause__ or exc)) from exc

    async def receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(READ_BYTES))
        except trio.BrokenResourceError as exc:
            raise ConnectionResetError(str(exc.__cause__ or exc)) from exc

    def close(self) -> None:
        self._stream.socket.close()


async def _connect(host: str, port: int) -> _Stream:
    return _Stream(await trio.open_tcp_stream(host, port))


@attrs.define(eq=False)
class _Playing:
    """Invariant: a rollout is in ``_scopes`` until it is answered, and is answered once."""

    _stage: Stage
    _scopes: dict[int, trio.CancelScope] = attrs.field(factory=dict, init=False)
    _opening: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _client: GatewayClient[_Stream] = attrs.field(factory=partial(GatewayClient, _connect), init=False)
    _incoming: trio.MemorySendChannel[ToWorker] = attrs.field(init=False)
    _messages: trio.MemoryReceiveChannel[ToWorker] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._incoming, self._messages = trio.open_memory_channel[ToWorker](float("inf"))  # the run bounds them

    async def run(self) -> int:
        """See :func:`serve`."""
        token = trio.lowlevel.current_trio_token()
        self._stage.link.listen(lambda message: token.run_sync_soon(self._take, message))
        async with trio.open_nursery() as beside:
            beside.start_soon(self._turn)
            status = await self._host()
            beside.cancel_scope.cancel()
        return status

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Stop):
            self._opening.cancel()
        self._incoming.send_nowait(message)

    async def _turn(self) -> None:
        while True:
            self._stage.link.turned()
            await trio.sleep(TURN_EVERY_S)

    async def _host(self) -> int:
        try:
            with self._opening:
                await self._stage.environment.open()
        except BaseException as exc:  # foreign code; only the scope inside is ever cancelled
            return self._stage.not_opened(exc)
        if self._opening.cancelled_caught:
            return DONE
        rows = self._stage.opened()
        async with trio.open_nursery() as plays:
            await self._follow(plays, rows)
        await self._close()
        return DONE

    async def _follow(self, plays: trio.Nursery, rows: RowsThread) -> None:
        """Do what comes, until the end; *plays* is where rollouts are started."""
        async for message in self._messages:
            match message:
                case Play():
                    self._scopes[message.rollout] = trio.CancelScope()
                    plays.start_soon(self._play, message, name=f"rollout {message.rollout}")
                case Abort(rollout):
                    if (scope := self._scopes.get(rollout)) is not None:
                        scope.cancel()
                case ReadRows():
                    rows.ask(message)
                case Stop():
                    for scope in self._scopes.values():
                        scope.cancel()
                    return
                case Load():
                    note("asked to load again; left alone")
                case _:
                    assert_never(message)

    async def _play(self, play: Play) -> None:
        answers, scope = self._stage.answers, self._scopes[play.rollout]
        result: object = None
        error: BaseException | None = None
        try:
            with scope:
                await trio.lowlevel.checkpoint_if_cancelled()
                model = Model(play.model, self._client)
                result = await cast("Awaitable[object]", self._stage.environment.play(play.example, model))
        except BaseException as exc:  # foreign code; the scope outside is cancelled when the event loop breaks down
            if trio.current_effective_deadline() == -math.inf:
                raise  # nothing is known of this rollout: with the worker gone it is played elsewhere
            error = exc
        del self._scopes[play.rollout]
        if error is not None:
            answers.error(play.rollout, error)
        elif scope.cancelled_caught:
            answers.aborted(play.rollout)
        else:
            answers.result(play.rollout, result)

    async def _close(self) -> None:
        try:
            with trio.move_on_after(CLOSE_WITHIN_S) as patience:
                await self._stage.environment.close()
        except BaseException as exc:  # foreign code; only the scope inside is ever cancelled
            self._stage.close_failed(exc)
        if patience.cancelled_caught:
            note(f"close() took more than {CLOSE_WITHIN_S:g} s")
        self._client.close()
