"""Plays an environment with ``backend = "sync"``: one rollout at a time, in the main thread.

What its code computes cannot be interrupted: a rollout that is cancelled ends at its next request to the model, or
never, and then the run ends the process.
"""

from __future__ import annotations

import inspect
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import assert_never

import attrs

from scavenge.core.worker_messages import Abort, Load, Play, ReadRows, Stop, ToWorker
from scavenge.worker.gateway_client import GatewayClient
from scavenge.worker.link import SIGNALS_EVERY_S, note
from scavenge.worker.model import BlockingStream, SyncModel, connect_blocking
from scavenge.worker.rows import RowsThread
from scavenge.worker.stage import CLOSE_WITHIN_S, DONE, Stage


def serve(stage: Stage) -> int:
    """Open the environment, play what comes until :class:`Stop`, and close it; the exit status."""
    try:
        _call(stage.environment.open)
    except BaseException as exc:  # foreign code; a SystemExit of its own is told as what it is
        return stage.not_opened(exc)
    playing = _Playing(stage, stage.opened())
    stage.link.listen(playing.take)
    playing.run()
    _close(stage)
    return DONE


def _call(function: Callable[[], object]) -> None:
    """Call ``open`` or ``close``; those of the base class are coroutine functions that do nothing."""
    pending = function()
    if inspect.iscoroutine(pending):
        pending.close()


def _close(stage: Stage) -> None:
    """Close the environment in this thread; one that takes too long is left where it is."""
    patience = threading.Timer(CLOSE_WITHIN_S, _leave_behind, [stage])
    patience.daemon = True
    patience.start()
    try:
        _call(stage.environment.close)
    except BaseException as exc:  # foreign code; the results are there
        stage.close_failed(exc)
    patience.cancel()


def _leave_behind(stage: Stage) -> None:
    note(f"close() took more than {CLOSE_WITHIN_S:g} s")
    stage.link.end(DONE)


@attrs.define(eq=False)
class _Playing:
    """Invariant: a rollout is in ``_models`` from when it comes until it is answered, and is answered once."""

    _stage: Stage
    _rows: RowsThread
    _models: dict[int, SyncModel] = attrs.field(factory=dict, init=False)
    _plays: queue.SimpleQueue[Play | None] = attrs.field(factory=queue.SimpleQueue, init=False)
    _client: GatewayClient[BlockingStream] = attrs.field(factory=partial(GatewayClient, connect_blocking), init=False)

    def take(self, message: ToWorker) -> None:
        """Do what comes, or have it done. From any thread."""
        match message:
            case Play():
                self._models[message.rollout] = SyncModel(message.model, self._client)
                self._plays.put(message)
            case Abort(rollout):
                if (model := self._models.get(rollout)) is not None:
                    model.abort()
            case ReadRows():
                self._rows.ask(message)
            case Stop():
                for model in list(self._models.values()):
                    model.abort()
                self._plays.put(None)
            case Load():
                note("asked to load again; left alone")
            case _:
                assert_never(message)

    def run(self) -> None:
        """Play what comes, until the end."""
        while (play := self._next()) is not None:
            self._play(play, self._models[play.rollout])

    def _next(self) -> Play | None:
        while True:
            with suppress(queue.Empty):
                return self._plays.get(timeout=SIGNALS_EVERY_S)

    def _play(self, play: Play, model: SyncModel) -> None:
        answers = self._stage.answers
        result: object = None
        error: BaseException | None = None
        try:
            if not model.aborted:
                result = self._stage.environment.play(play.example, model)
        except BaseException as exc:  # foreign code; a SystemExit of its own is the rollout's failure
            error = exc
        del self._models[play.rollout]
        if model.aborted:
            answers.aborted(play.rollout)
        elif error is not None:
            answers.error(play.rollout, error)
        else:
            answers.result(play.rollout, result)
