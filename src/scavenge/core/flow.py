"""What flows on one endpoint: the requests in flight, those that wait for their first token, the tokens that come in.

Data flow: whoever sends a request begins a :class:`Stream`, whoever reads its reply notes in it what has come, and
:meth:`FlowMeter.take` tells now and then what went on since the last time. A chunk of a reply costs two assignments;
all sums are made when they are asked for. Knows no limits, no slots and no wire format.

Invariants: ``take`` covers each instant and each token exactly once, ended streams included; a stream is in flight from
``begin`` to ``end``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from scavenge.signals import Flow

SHORTEST_WAKE_S = 0.02
"""A policy that asks to be woken sooner than this after it was told waits that long: it may not keep us busy."""
STALLED_AFTER_S = 2.0
"""A stream that is silent for less is not stalled, however fast it was."""
STALLED_GAPS = 20.0
"""Silent for so many times its mean gap between two chunks, a stream is stalled."""
_RECENT = 0.1
"""The weight of one more reply in the number of tokens that a chunk has."""
_MOST_TOKENS_A_CHUNK = 64.0


@attrs.define(eq=False)
class Stream:
    """One request in flight. Who reads its reply keeps ``chunks``, ``first_at`` and ``last_at`` up to date."""

    began_at: float
    in_flight: int
    """Requests in flight when it began, itself included."""
    streamed: bool = True
    prompt_tokens: float = 0.0
    """Tokens of its prompt that the server is taken to read anew."""
    account_in_flight: int = 0
    """The same as ``in_flight`` for the whole account that the endpoint belongs to, where it is shared with others."""
    chunks: int = 0
    """Pieces of the reply that had something in them: a token each, or a few."""
    first_at: float | None = None
    """When the first of them came."""
    last_at: float = -math.inf
    """When the last of them came."""
    refresh: Callable[[float], None] | None = None
    """Brings the figures up to date, for a reader who does not look at each chunk; it neither waits nor raises."""
    held_back: bool = attrs.field(default=False, init=False)
    """Whether nothing more of the reply is read until what has come is taken: such silence is not the server's."""
    counted_chunks: int = attrs.field(default=0, init=False)
    """Those of its chunks that the meter has counted."""
    counted_to: float = attrs.field(default=attrs.Factory(lambda self: self.began_at, takes_self=True), init=False)
    """Up to when the meter has counted it."""
    prompt_counted: bool = attrs.field(default=False, init=False)
    """Whether the meter has counted its prompt."""

    def came(self, now: float, chunks: int = 1) -> None:
        """Note that so many more chunks came."""
        self.chunks += chunks
        self.last_at = now
        if self.first_at is None:
            self.first_at = now

    def hold_back(self) -> None:
        """Note that nothing more is read for now."""
        self.held_back = True

    def read_on(self, now: float) -> None:
        """Note that what has come was taken, and the server is heard again."""
        self.held_back = False
        if self.first_at is not None:
            self.last_at = now

    def is_stalled(self, now: float) -> bool:
        """Whether it has begun and then fallen silent for long, though somebody listens."""
        if self.first_at is None or self.held_back:
            return False
        gap_s = (self.last_at - self.first_at) / (self.chunks - 1) if self.chunks > 1 else 0.0
        return now - self.last_at > max(STALLED_AFTER_S, STALLED_GAPS * gap_s)


@attrs.define
class _Sums:
    """What has been summed up since the last :meth:`FlowMeter.take`, in seconds of a request and in tokens."""

    in_flight_s: float = 0.0
    awaiting_s: float = 0.0
    stalled_s: float = 0.0
    streamed_s: float = 0.0
    chunks: int = 0
    prompt_tokens: float = 0.0


@attrs.define(eq=False)
class FlowMeter:
    """Measures one endpoint. *now* never goes back from one call to the next."""

    taken_at: float
    """Up to when everything has been told."""
    tokens_a_chunk: float = 1.0
    """How many tokens a chunk has here, learnt from replies whose tokens were counted."""
    _streams: set[Stream] = attrs.field(factory=set, init=False)
    _sums: _Sums = attrs.field(factory=_Sums, init=False)

    @property
    def in_flight(self) -> int:
        """Requests in flight now."""
        return len(self._streams)

    def begin(self, now: float, *, streamed: bool = True, prompt_tokens: float = 0.0) -> Stream:
        """A request goes out."""
        stream = Stream(now, len(self._streams) + 1, streamed, prompt_tokens)
        self._streams.add(stream)
        return stream

    def end(self, stream: Stream, now: float, output_tokens: float | None = None) -> None:
        """A request is over, however it ended; *output_tokens*: its reply was whole and had so many."""
        self._count(stream, now)
        self._streams.discard(stream)
        if output_tokens and stream.chunks > 1:
            ratio = min(output_tokens / stream.chunks, _MOST_TOKENS_A_CHUNK)
            self.tokens_a_chunk += _RECENT * (ratio - self.tokens_a_chunk)

    def take(self, now: float) -> Flow:
        """What went on since the last time; a span of no time has no means, and says what is there now."""
        for stream in self._streams:
            self._count(stream, now)
        sums, self._sums = self._sums, _Sums()
        span_s, self.taken_at = max(0.0, now - self.taken_at), max(now, self.taken_at)
        over_s = span_s or math.inf
        return Flow(
            span_s=span_s,
            in_flight=sums.in_flight_s / over_s,
            awaiting=sums.awaiting_s / over_s,
            stalled=sums.stalled_s / over_s,
            output_tokens=sums.chunks * self.tokens_a_chunk,
            prompt_tokens=sums.prompt_tokens,
            streamed=sums.streamed_s / sums.in_flight_s if sums.in_flight_s else 1.0,
            in_flight_now=len(self._streams),
        )

    def _count(self, stream: Stream, now: float) -> None:
        """Add what a stream has done since it was counted last."""
        if stream.refresh is not None:
            stream.refresh(now)
        sums, since = self._sums, stream.counted_to
        stream.counted_to = now
        sums.in_flight_s += now - since
        sums.chunks += stream.chunks - stream.counted_chunks
        stream.counted_chunks = stream.chunks
        if not stream.streamed:
            return
        sums.streamed_s += now - since
        began_at = now if stream.first_at is None else stream.first_at
        sums.awaiting_s += max(0.0, min(began_at, now) - since)
        if stream.first_at is not None and not stream.prompt_counted:
            stream.prompt_counted = True
            sums.prompt_tokens += stream.prompt_tokens
        if stream.is_stalled(now):
            sums.stalled_s += now - max(since, stream.last_at)
