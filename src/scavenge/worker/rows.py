"""Reads the dataset of an environment, in a thread of its own: it may block, and be of a library that minds threads.

Invariant: questions are answered one after the other; the stream is where the latest answer left it, or it is dropped.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice

import attrs

from scavenge.core.codeplace import raised_line
from scavenge.core.failure import checked_rows
from scavenge.core.frames import rows_within
from scavenge.core.worker_messages import ReadRows, Rows, RowsFailed
from scavenge.rollouts import Example
from scavenge.runtime.ports import Environment
from scavenge.worker.link import Link

TEXT_CHARACTERS = 10_000
"""How much is told of what an error says."""


@attrs.define(eq=False)
class DatasetReader:
    """The dataset of one environment, read from where it is asked for."""

    environment: Environment
    _stream: Iterator[Example] | None = attrs.field(default=None, init=False)
    _at: int = attrs.field(default=0, init=False)

    def answer(self, question: ReadRows) -> Rows | RowsFailed:
        """The rows that are asked for, as many as go into one message; never raises.

        The stream goes on where it is; for another place it is begun anew.
        """
        stream, self._stream = self._stream, None
        try:
            if stream is None or self._at != question.skip:
                stream = self._begin_at(question.skip)
            rows = rows_within(stream, question.skip, question.count)
        except BaseException as exc:  # foreign code; a SystemExit of its own is no end of this process
            return RowsFailed(question.skip, raised_line(exc, self.environment, _cut))
        self._stream, self._at = stream, question.skip + len(rows.examples)
        return rows

    def _begin_at(self, skip: int) -> Iterator[Example]:
        stream = checked_rows(self.environment.examples(), self.environment)
        deque(islice(stream, skip), maxlen=0)
        return stream


def _cut(text: str) -> str:
    return text[:TEXT_CHARACTERS]


class RowsThread:
    """Answers questions for rows in a thread; one that blocks for good harms nothing else."""

    def __init__(self, environment: Environment, link: Link) -> None:
        self._reader = DatasetReader(environment)
        self._link = link
        self._questions: queue.SimpleQueue[ReadRows] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="scavenge rows", daemon=True)
        self._thread.start()

    def ask(self, question: ReadRows) -> None:
        """Have a question answered. Never waits."""
        self._questions.put(question)

    def _run(self) -> None:
        while True:
            self._link.send(self._reader.answer(self._questions.get()))
