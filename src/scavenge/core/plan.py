"""What one evaluation has still to play, in which order, and what it may not play at all. Pure; reads no dataset.

The dataset comes in as a stream: whoever reads it offers an example whenever the plan ``wants_more``, and says when it
ended. The window of waiting rollouts starts small, so that the first request goes out at once, and grows with each
rollout that is started, to 10 000 where the order looks ahead.

A row that could not be read, one whose id is no string, and the later one of two rows with the same id give an error
record for each of their rollouts instead; none counts for the circuit breaker. The last two are recorded under
``row:N``, their place in the dataset from 1: under its own id, the later one would replace the first one's result.

Memory: 18 bytes a row of the dataset for the ids that were seen; all else is bounded by the window.

Invariant: every (row, rollout) of the first ``num_examples`` rows comes out of :meth:`Plan.next` exactly once, unless
its key is in ``done``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

import attrs

from scavenge.core.digests import DigestSet, digest
from scavenge.core.order import FileOrder, LongestFirst, Order, Waiting, example_size
from scavenge.rollouts import ErrorInfo, Example, RolloutKey, RolloutRecord

FIRST_WINDOW = 64
WINDOW_GROWTH = 8
"""Rollouts by which the window grows with each one that is started."""
LONGEST_FIRST_WINDOW = 10_000


@attrs.frozen
class OrderSettings:
    """``[order]`` of an evaluation file."""

    by: Literal["longest-first", "file"] = attrs.field(
        default="longest-first", validator=attrs.validators.in_(("longest-first", "file"))
    )


def key_digest(key: RolloutKey) -> bytes:
    """16 bytes that stand for a key, as the set of those that are done holds them."""
    return digest(key.eval, key.example_id, key.rollout)


@attrs.frozen
class RolloutTask:
    """One rollout to play. ``row`` and ``size`` are for :meth:`Plan.learn`."""

    key: RolloutKey
    example: Example
    row: int
    size: int

    @property
    def rollout(self) -> int:
        """Which of the example's rollouts it is, from 0."""
        return self.key.rollout


@attrs.frozen
class Refused:
    """A rollout that cannot be played, with the record that says why."""

    record: RolloutRecord


@attrs.define(eq=False)
class Plan:
    """The rollouts of one evaluation. ``done`` holds the :func:`key_digest` of those that an earlier part finished."""

    eval: str
    env_id: str
    rollouts_per_example: int = 1
    num_examples: int = -1
    done: DigestSet = attrs.field(factory=DigestSet)
    settings: OrderSettings = OrderSettings()
    rows: int = attrs.field(default=0, init=False)
    """How many rows have been offered."""
    kept: int = attrs.field(default=0, init=False)
    """How many of the rollouts of the rows so far are in ``done``."""
    exhausted: bool = attrs.field(default=False, init=False)
    """Whether no more rows will be taken: the dataset ended, or ``num_examples`` are there."""
    _order: Order = attrs.field(init=False)
    _refused: deque[RolloutRecord] = attrs.field(factory=deque, init=False)
    _waiting: int = attrs.field(default=0, init=False)
    _window: int = attrs.field(default=FIRST_WINDOW, init=False)
    _ids: DigestSet = attrs.field(factory=DigestSet, init=False)

    def __attrs_post_init__(self) -> None:
        self._order = LongestFirst() if self.settings.by == "longest-first" else FileOrder()
        self.exhausted = self.num_examples == 0

    @property
    def wants_more(self) -> bool:
        """Whether another example should be offered now."""
        return not self.exhausted and self._waiting + len(self._refused) < self._window

    @property
    def finished(self) -> bool:
        """Whether :meth:`next` has given all there is."""
        return self.exhausted and not self._waiting and not self._refused

    @property
    def total(self) -> int | None:
        """All rollouts of the evaluation, those done in an earlier part too; ``None`` until all rows are known."""
        return self.rows * self.rollouts_per_example if self.exhausted else None

    @property
    def owed_at_start(self) -> int | None:
        """How many rollouts no earlier part has done; ``None`` until all rows are known.

        What is owed at any time is this less the rollouts that this part has done.
        """
        return None if self.total is None else self.total - self.kept

    def end(self) -> None:
        """The dataset has no more rows."""
        self.exhausted = True

    def look_far(self) -> None:
        """Let the window be as wide as it gets from now on, for what has to be prepared long before it is started."""
        self._window = LONGEST_FIRST_WINDOW

    def offer(self, example: Example) -> int:
        """Take in the dataset's next row, and say how many of its rollouts will be started.

        A row beyond ``num_examples`` is ignored.
        """
        if self.exhausted:
            return 0
        self.rows += 1
        self.exhausted = self.rows == self.num_examples
        example_id: object = example.id
        if not isinstance(example_id, str):
            self._refuse(self._name_of_row(), f"row {self.rows}: id {example_id!r} is no string")
        elif not self._ids.add(digest(example_id)):
            why = f"row {self.rows}: id {example_id!r} was there before; ids must be unique"
            self._refuse(self._name_of_row(), why)
        elif example.error is not None:
            self._refuse(example.id, example.error)
        elif owed := self._owed(example.id):
            self._waiting += len(owed)
            self._order.add(Waiting(self.rows, example, example_size(example.data), owed))
            return len(owed)
        return 0

    def _owed(self, example_id: str) -> Sequence[int]:
        rollouts = range(self.rollouts_per_example)
        if not self.done:
            return rollouts
        missing = [n for n in rollouts if key_digest(RolloutKey(self.eval, example_id, n)) not in self.done]
        self.kept += len(rollouts) - len(missing)
        return rollouts if len(missing) == len(rollouts) else missing

    def _name_of_row(self) -> str:
        name = f"row:{self.rows}"
        while not self._ids.add(digest(name)):
            name += "'"
        return name

    def _refuse(self, example_id: str, why: str) -> None:
        for rollout in self._owed(example_id):
            key = RolloutKey(self.eval, example_id, rollout)
            self._refused.append(RolloutRecord(key, self.env_id, error=ErrorInfo("BadRow", why, counts=False)))

    def next(self) -> RolloutTask | Refused | None:
        """The next rollout to start, or to record as refused; ``None``: nothing is waiting now."""
        self._window = max(self._window, min(self._window + WINDOW_GROWTH, self._widest()))
        if self._refused:
            return Refused(self._refused.popleft())
        taken = self._order.take()
        if taken is None:
            return None
        self._waiting -= 1
        waiting, rollout = taken
        key = RolloutKey(self.eval, waiting.example.id, rollout)
        return RolloutTask(key, waiting.example, waiting.row, waiting.size)

    def _widest(self) -> int:
        return LONGEST_FIRST_WINDOW if self.settings.by == "longest-first" else FIRST_WINDOW

    def learn(self, task: RolloutTask, tokens: int) -> None:
        """Hear how many tokens a rollout took that ended well, so that the order gets better."""
        self._order.learn(task.row, task.size, tokens)
