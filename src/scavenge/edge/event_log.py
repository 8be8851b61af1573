"""Writes ``events.jsonl``, one line an event. An observer that never waits, never raises and never fails the run.

Lines gather in memory and are written once a second in a thread. When the disk does not keep up, or cannot be written,
what does not fit is dropped and a line ``EventsDropped`` says how many were; a failure is warned of once. A finished
rollout appears with its key and figures, not with its texts, which are in the results; that an attempt or a rollout
began is not written, since the line of its end says when. How images get on is written every ten seconds, and when
their state is another. The picture of a quiet run is written whole.

Invariant: at most :data:`LINES_MAX` lines are in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import trio

from scavenge.core.image_lines import LogPace
from scavenge.core.plainjson import write_json
from scavenge.core.records import iso_time
from scavenge.edge.results import JsonlLog
from scavenge.errors import ResultsError
from scavenge.events import AttemptDropped, AttemptStarted, Event, ImagesChanged, RolloutFinished, RolloutStarted
from scavenge.rollouts import RolloutRecord

LINES_MAX = 20_000
UNWRITTEN = (AttemptStarted, AttemptDropped, RolloutStarted)
TEXTS = frozenset({"message", "why", "what", "source", "trouble", "name", "reason", "policy"})
"""Fields with words of servers, plugins and users: what may hold a secret. All others are names and numbers of ours."""
FLUSH_EVERY_S = 1.0


def _unchanged(text: str) -> str:
    return text


@attrs.define(eq=False)
class EventLog:
    """Keeps the event log at *path*. ``redact`` takes secrets out of texts, ``warn`` hears of the first failure."""

    path: Path
    warn: Callable[[str], None]
    redact: Callable[[str], str] = _unchanged
    clock: Callable[[], float] = time.time
    _lines: list[bytes] = attrs.field(factory=list, init=False)
    _dropped: int = attrs.field(default=0, init=False)
    _warned: bool = attrs.field(default=False, init=False)
    _log: JsonlLog | None = attrs.field(default=None, init=False)
    _images: LogPace = attrs.field(factory=LogPace, init=False)
    _threads: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1), init=False)

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        if isinstance(event, UNWRITTEN):
            return
        if isinstance(event, ImagesChanged) and not self._images.is_due(event.status, self.clock()):
            return
        if len(self._lines) >= LINES_MAX:
            self._dropped += 1
            return
        self._lines.append(self._line(type(event).__name__, self._fields(event)))

    def _line(self, name: str, fields: dict[str, object]) -> bytes:
        document = {"time": iso_time(self.clock()), "event": name, **fields}
        return write_json(document) + b"\n"

    def _fields(self, event: Event) -> dict[str, object]:
        if isinstance(event, RolloutFinished):
            return self._clean(_rollout(event.record))
        return self._clean(_attributes(event))

    def _clean(self, fields: dict[str, object]) -> dict[str, object]:
        return {name: self._value(name, value) for name, value in fields.items()}

    def _value(self, name: str, value: object) -> object:
        if isinstance(value, str):
            return self.redact(value) if name in TEXTS else value
        if isinstance(value, tuple):
            return [self._value(name, item) for item in value]
        kind: Any = type(value)
        return self._clean(_attributes(value)) if _names(kind) else value

    async def run_event_log(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write once a second until cancelled, and then once more."""
        task_status.started()
        try:
            while True:
                await trio.sleep(FLUSH_EVERY_S)
                if batch := self._batch():
                    kept, dropped = len(self._lines), self._dropped
                    error = await trio.to_thread.run_sync(self._write, batch, limiter=self._threads)
                    self._settle(kept, dropped, error)
        finally:
            self.flush()

    def flush(self) -> None:
        """Write now what is in memory, without waiting for the disk itself."""
        if batch := self._batch():
            self._settle(len(self._lines), self._dropped, self._write(batch))

    def close(self) -> None:
        """Write what is in memory and close the file. Once is enough; more does no harm."""
        self.flush()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _batch(self) -> list[bytes]:
        """The lines to write now. They stay in memory until they are written, so that a cancellation loses none."""
        lost = [self._line("EventsDropped", {"count": self._dropped})] if self._dropped else []
        return self._lines + lost

    def _write(self, lines: list[bytes]) -> ResultsError | None:
        try:
            if self._log is None:
                self._log = JsonlLog(self.path, durable=False)
            self._log.append(lines)
        except ResultsError as exc:
            return exc
        return None

    def _settle(self, kept: int, dropped: int, error: ResultsError | None) -> None:
        """Forget the first *kept* lines and *dropped* lost ones, which were written, or could not be."""
        del self._lines[:kept]
        if error is None:
            self._dropped -= dropped
            return
        self._dropped += kept
        if not self._warned:
            self._warned = True
            self.warn(f"events are not recorded: {error}")


def _attributes(value: object) -> dict[str, object]:
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _names(kind)}


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The fields of an attrs class; of any other, none."""
    return tuple(field.name for field in attrs.fields(kind)) if attrs.has(kind) else ()


def _rollout(record: RolloutRecord) -> dict[str, object]:
    return {
        "eval": record.key.eval,
        "example_id": record.key.example_id,
        "rollout": record.key.rollout,
        "reward": record.reward,
        "error": record.error,
        "usage": record.usage,
        "timing": record.timing,
        "attempts": len(record.attempts),
    }
