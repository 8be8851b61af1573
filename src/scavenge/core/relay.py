"""The reply to a call whose client wants a stream, handed on while it comes: which events may go when. Sans-IO.

What the reply is worth, :class:`~scavenge.core.chat.ReplyReader` says, which reads it too; a reply that is no stream is
all its own. Handed on are whole events, as they came, in their order. Held back are

- an event that has not ended;
- what comes before the first piece of a reply, so that the request can be sent again until then, up to
  :data:`HELD_BYTES`; where a reply has no pieces at all, that goes when it is whole;
- a chunk with a finish reason that makes no reply whole, and what follows it, until the choice has a better one;
- an event that ends the reply: ``[DONE]``, or an error, or one that cannot be understood; and what follows it.

Where one of the last two comes in the same piece of the body as what is before it, that stays too: nobody needs it.

Chunks of a stream mostly differ in one text only. Once a chunk has been read that says something and decides nothing,
those after it that are byte by byte the same but for that text (see :mod:`scavenge.core.chunk_pattern`) are handed on
unread: they would add their text to the reply, which nobody needs, and change nothing else. Any other chunk is read.

Invariants: the outcome is what ``ReplyReader`` makes of the same bytes, but for its limits (here an event has one, and
the whole stream has none); what was handed on is the beginning of what came, blanks before the first event left out,
and ends where an event ends; neither depends on how the bytes were split, once the reply is whole. No bytes whatever
make a method raise, and the time for them is linear in their number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import attrs

from scavenge.core.chat import BLANK, ReplyReader, begins_stream
from scavenge.core.chunk_pattern import Pattern, pattern_of
from scavenge.core.errorbody import Wording
from scavenge.core.outcome import FINISHED
from scavenge.types import LostCause, Ok, Outcome, Reply

MAX_EVENT_BYTES = 16 * 2**20
HELD_BYTES = 64 * 2**10
"""How much is held back for want of a first piece."""

_READ_BYTES = 2**20  # so much of a stream is read, far more than is held at first, before what it has said is let go
_EVENT_END = re.compile(rb"(?:\r\n?+|\n)(?:\r\n?+|\n)")
_NO_WORDING = Wording()


class RelayReader:
    """Reads one reply: :meth:`start`, :meth:`feed` for each piece of the body, then :meth:`finish` or :meth:`cut`."""

    __slots__ = (
        "_after_cr", "_begun", "_held", "_held_bytes", "_http_status", "_max_event_bytes", "_misses", "_partial",
        "_partial_bytes", "_pattern", "_read_bytes", "_reader", "_streams", "_unfit", "_unread_pieces",
    )  # fmt: skip

    def __init__(self, wording: Wording = _NO_WORDING, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._reader = ReplyReader(wording)
        self._max_event_bytes = max_event_bytes
        self._http_status = 0
        self._streams: bool | None = None  # None: nothing has come that tells
        self._partial: list[bytes] = []  # the event that has not ended yet
        self._partial_bytes = 0
        self._after_cr = False  # the last event ended with \r: a \n that follows belongs to it
        self._held: list[bytes] = []  # events that have not been handed on
        self._held_bytes = 0
        self._begun = False  # there is no more waiting for a first piece
        self._unfit: set[int] = set()  # choices with a finish reason that makes no reply whole
        self._pattern: Pattern | None = None  # of the chunk that was read last
        self._misses = 0  # chunks that said something and were read, since one was not
        self._unread_pieces = 0
        self._read_bytes = 0

    @property
    def over(self) -> bool:
        """Whether nothing that may still come changes the outcome, or may be handed on."""
        return self._reader.over

    @property
    def pieces(self) -> int:
        """How many pieces of a streamed reply have come that have something in them, or tokens if it counts along."""
        return self._reader.pieces + self._unread_pieces

    def start(self, http_status: int, headers: Mapping[str, str], now_time: float = 0.0) -> None:
        """The head of the reply came; header names are in lower case, *now_time* is the Unix time."""
        self._http_status = http_status
        self._reader.start(http_status, headers, now_time)

    def feed(self, data: bytes) -> bytes:
        """A piece of the body came; returns the events that may be handed on now."""
        if self._reader.over:
            return b""
        if self._streams is None:
            text = data.lstrip(BLANK)
            if not text:
                self._reader.feed(data)
                return b""
            self._streams, data = begins_stream(self._http_status, text), text
        if not self._streams:
            self._reader.feed(data)
            return b""
        self._take(data)
        return self._let_go()

    def finish(self) -> Outcome:
        """The outcome, when the body has ended as it should.

        A stream that is whole: its reply has no text, unless nothing of it was ever handed on.
        """
        self._reader.feed(b"".join(self._partial))
        self._partial.clear()
        return self._slim(self._reader.finish())

    def cut(self, message: str, cause: LostCause = LostCause.SERVER) -> Outcome:
        """The outcome, when the connection ended or fell silent before the body did; *message* says how."""
        return self._slim(self._reader.cut(message, cause))

    def _slim(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Ok) or not self._begun:
            return outcome
        whole = outcome.reply
        slim = Reply(text="", finish_reason=whole.finish_reason, usage=whole.usage, pieces=self.pieces)
        return attrs.evolve(outcome, reply=slim)

    # --- events out of bytes

    def _take(self, data: bytes) -> None:
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == 10:
                self._hold(b"\n")
                data = data[1:]
        if not _has_event_end(self._partial[-1][-1:] + data if self._partial else data):
            self._keep(data)
            return
        buffer = data
        if self._partial:
            buffer = b"".join([*self._partial, data])
            self._partial.clear()
            self._partial_bytes = 0
        if b"\r" in buffer:
            ends = [0, *(end.end() for end in _EVENT_END.finditer(buffer))]
            rest = buffer[ends[-1] :]
            self._after_cr = not rest and buffer.endswith(b"\r")
            self._judge([buffer[start:end] for start, end in pairwise(ends)], b"")
        else:
            *events, rest = buffer.split(b"\n\n")
            self._judge(events, b"\n\n")
        self._keep(rest)

    def _keep(self, rest: bytes) -> None:
        if rest:
            self._partial.append(rest)
            self._partial_bytes += len(rest)
            if self._partial_bytes > self._max_event_bytes:
                self._reader.refuse(f"an event is longer than {self._max_event_bytes} bytes")

    # --- which of them may go

    def _judge(self, events: list[bytes], end: bytes) -> None:
        """Take in events; *end* is what each of them ends with beside what it has."""
        position = 0
        while position < len(events) and not self._reader.over:
            start, pattern = position, self._pattern
            if pattern is not None and (position := pattern.end_of_run(events, start)) > start:
                self._unread_pieces += pattern.pieces * (position - start)
                self._misses = 0
                self._hold(end.join(events[start:position]) + end)
            elif (position := _end_of_quiet(events, start)) > start:
                self._read(end.join(events[start:position]) + end)
            else:
                self._read_chunk(events[start], end)
                position = start + 1

    def _read_chunk(self, event: bytes, end: bytes) -> None:
        pieces = self._reader.pieces
        self._pattern = None
        self._read(event + end)
        said = self._reader.pieces - pieces
        if said:
            self._misses += 1
            if self._misses & (self._misses - 1) == 0:  # a stream may have no pattern: it is tried less and less often
                self._pattern = pattern_of(event, said)

    def _read(self, events: bytes) -> None:
        self._reader.feed(events)
        if self._reader.over:
            return
        self._note_endings()
        self._hold(events)
        self._read_bytes += len(events)
        if self._read_bytes > _READ_BYTES:
            self._read_bytes = 0
            self._reader.forget()

    def _note_endings(self) -> None:
        endings = self._reader.assembly.endings
        for index, reason in endings.items():
            if isinstance(reason, str) and reason in FINISHED:
                self._unfit.discard(index)
            elif reason != "":
                self._unfit.add(index)
        endings.clear()

    def _hold(self, events: bytes) -> None:
        self._held.append(events)
        self._held_bytes += len(events)
        if self._unfit:
            if self._held_bytes > self._max_event_bytes:
                self._reader.refuse(f"more than {self._max_event_bytes} bytes come after a finish reason that is none")
        elif not self._begun:
            self._begun = self.pieces > 0 or self._held_bytes > HELD_BYTES

    def _let_go(self) -> bytes:
        """All that is held, if it may go now."""
        if self._reader.over:
            self._begun = isinstance(self._reader.finish(), Ok)
        if not self._begun or self._unfit:
            return b""
        events = b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        return events


def _end_of_quiet(events: Sequence[bytes], start: int) -> int:
    """The index of the first event from *start* on that may have data."""
    return next((index for index in range(start, len(events)) if b"data" in events[index]), len(events))


def _has_event_end(data: bytes) -> bool:
    return b"\n\n" in data or (b"\r" in data and _EVENT_END.search(data) is not None)
