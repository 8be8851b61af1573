"""How long an engine's steps take: a run of steps between two changes, and the arithmetic of it. Pure.

While nothing changes, each step reads one token more of each decoding stream's context than the step before, so that
the times of a run's steps are an arithmetic progression. A run can be told how many of its steps are done, and be cut.
The formulas are those of :mod:`scavenge.testing.batching`.
Knows nothing of who runs next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import attrs

from scavenge.testing.batching_decoders import BatchedRequest, Decoders
from scavenge.testing.batching_settings import BatchingSettings

_ROUNDING = 1e-9  # of a step; what a sum of floats may be off by


@attrs.frozen
class StepRun:
    """Steps on the engine's own axis of time: ``steps`` of them from ``began_at``, the first one ``first_s`` long."""

    began_at: float
    steps: int
    first_s: float
    more_s: float = 0.0
    """How much longer than the one before each step takes."""
    chunks: tuple[tuple[BatchedRequest, int], ...] = ()
    """What is prefilled, and how many tokens of it; only in a run of one step."""

    @property
    def ends_at(self) -> float:
        """When its last step is over."""
        return self.began_at + self.after_s(self.steps)

    def after_s(self, steps: int) -> float:
        """How long its first *steps* take."""
        return steps * self.first_s + self.more_s * steps * (steps - 1) / 2

    def done(self, at: float) -> int:
        """How many whole steps are over at an instant before its end; never all of them."""
        spent_s = at - self.began_at
        if self.more_s * self.steps <= _ROUNDING * self.first_s:
            steps = spent_s / self.first_s
        else:
            half = self.first_s - self.more_s / 2  # after_s(k) = half * k + more / 2 * k * k
            steps = 2 * spent_s / (half + math.sqrt(half * half + 2 * self.more_s * spent_s))
        return max(0, min(int(steps + _ROUNDING), self.steps - 1))

    def cut(self, done: int) -> StepRun:
        """The step that is under way after *done* of them: it ends as it would have."""
        return StepRun(self.began_at + self.after_s(done), 1, self.first_s + done * self.more_s, 0.0, self.chunks)


def decoding_run(settings: BatchingSettings, steps: int, decoders: Decoders, clock: float, jitter: float) -> StepRun:
    """So many steps in which everybody who runs decodes."""
    first_s = _step_s(settings, decoders.count, decoders.context, decoders.count)
    return StepRun(clock, steps, first_s * jitter, settings.kv_read_s * decoders.count * jitter)


def prefill_step(
    settings: BatchingSettings,
    queue: Iterable[BatchedRequest],
    decoders: Decoders,
    running: int,
    clock: float,
    jitter: float,
) -> StepRun:
    """One step that prefills the requests of the *queue* in their order, as far as the budget goes."""
    left, chunks, read, pairs = max(1, settings.prefill_tokens - decoders.count), [], decoders.context, 0.0
    in_step = decoders.count
    for request in queue:
        tokens = min(request.unread, left)
        if request.unread and not tokens:
            break
        before = request.known - request.unread
        chunks.append((request, tokens))
        left, in_step = left - tokens, in_step + tokens
        read += before + tokens
        pairs += tokens * (before + tokens / 2)
    step_s = _step_s(settings, in_step, read, running) + settings.attention_s * pairs
    return StepRun(clock, 1, step_s * jitter, 0.0, tuple(chunks))


def _step_s(settings: BatchingSettings, tokens: int, read: int, running: int) -> float:
    overhead_s = settings.overhead_s + settings.stream_s * running
    return max(settings.weights_s, settings.gemm_s * tokens) + settings.kv_read_s * read + overhead_s
