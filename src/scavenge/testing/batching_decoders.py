"""The requests of a simulated engine, and those of them that decode: all of them on one axis of steps. Pure.

Every decoding request gets one token a step, so a request's end is a fixed point on the axis, and the tokens of context
that they have together grow by their number with each step. So nothing is counted one by one.

Invariants: ``axis`` counts the steps that are over; a decoding request has ``axis + offset`` tokens, and its live entry
in the heap is the step that ends it; ``_context`` is the sum of their contexts without the part that grows.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterator

import attrs


class Place(enum.Enum):
    """Where a request is."""

    WAITING = enum.auto()
    PREFILLING = enum.auto()
    DECODING = enum.auto()
    OVER = enum.auto()


@attrs.define(eq=False)
class BatchedRequest:
    """One request, wherever it is."""

    request_id: int
    prompt_tokens: int
    output_tokens: int
    session: str | None
    place: Place = Place.WAITING
    generated: int = 0
    """Tokens that it had when it last stopped decoding."""
    unread: int = 0
    """Tokens that are still to be prefilled."""
    offset: int = 0
    """What makes the axis of steps its number of tokens, while it is decoding."""
    cached_tokens: int = 0
    """How many of its prompt's tokens were in the prefix cache."""

    @property
    def known(self) -> int:
        """The tokens of its context when it is prefilled."""
        return self.prompt_tokens + self.generated

    @property
    def held(self) -> int:
        """The tokens of the pool that it holds while it is prefilled, its next token included."""
        return self.known + 1


@attrs.define
class Decoders:
    """The decoding requests."""

    count: int = attrs.field(default=0, init=False)
    axis: int = attrs.field(default=0, init=False)
    generated: int = attrs.field(default=0, init=False)
    """Tokens that were generated in all."""
    _context: int = attrs.field(default=0, init=False)
    _ends: list[tuple[int, int, BatchedRequest]] = attrs.field(factory=list, init=False)
    _entries: int = attrs.field(default=0, init=False)

    @property
    def context(self) -> int:
        """Tokens of all their contexts."""
        return self._context + self.count * self.axis

    def tokens(self, request: BatchedRequest) -> int:
        """How many tokens one of them has."""
        return request.offset + self.axis

    def step(self, steps: int) -> None:
        """So many steps are over."""
        self.axis += steps
        self.generated += steps * self.count

    def join(self, request: BatchedRequest) -> None:
        """Give a request that was prefilled its next token, and let it decode."""
        self._context += request.held - self.axis
        self.count += 1
        self.generated += 1
        request.place, request.offset = Place.DECODING, request.generated + 1 - self.axis
        self._entries += 1
        heapq.heappush(self._ends, (request.output_tokens - request.offset, self._entries, request))

    def leave(self, request: BatchedRequest) -> None:
        """Stop decoding one of them, and note how far it came; its place is for the caller to say."""
        request.generated = self.tokens(request)
        self._context -= request.known - self.axis
        self.count -= 1

    def steps_to_end(self) -> int:
        """After how many steps the next of them ends; there is one."""
        while not self._is_live(self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0] - self.axis

    def ended(self) -> Iterator[BatchedRequest]:
        """Those that have all their tokens; the caller has each one leave."""
        while self._ends and self._ends[0][0] <= self.axis:
            if self._is_live(entry := heapq.heappop(self._ends)):
                yield entry[2]

    def clear(self) -> None:
        """Forget them all."""
        self._ends.clear()
        self.count = self._context = 0

    def _is_live(self, entry: tuple[int, int, BatchedRequest]) -> bool:
        ends_at, _, request = entry
        return request.place is Place.DECODING and ends_at == request.output_tokens - request.offset
