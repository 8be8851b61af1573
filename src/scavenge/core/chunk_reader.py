"""The chunks of a stream, taken into an assembly; most of them without being read whole. Pure.

Most chunks are the one before them with another text. Of those that were read one is looked at now and then, whether it
is such a chunk: it has a single choice, one text of it grows, and all else that :class:`Assembly` makes of it is the
same when it comes again. Lists are extended each time, so it has none where that happens; it brings no usage and no
finish reason. Where such a chunk has a frame (see :mod:`scavenge.core.chunk_pattern`), of those that follow it without
a gap and have the same one only the text is read, and put where it belongs.

Invariant: the assembly is what it would be if each chunk had been read whole. That holds as long as nobody else changes
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import orjson

from scavenge.core.assembly import TEXTS, Assembly
from scavenge.core.chunk_pattern import WORDS, frames_of
from scavenge.core.errorbody import ErrorFacts, error_in
from scavenge.core.plainjson import read_json_fast
from scavenge.core.sse import ErrorEvent

_Growth = tuple[int, str, int | None, object]
"""The number of a choice, the key of a text in it, for arguments the index of the call, and what is added to it."""


@attrs.frozen
class _Frame:
    prefix: bytes
    """What stands before the text, up to its first quote."""
    suffix: bytes
    """What stands behind it, from its last quote on."""
    pieces: list[str]


@attrs.define
class ChunkReader:
    """Takes chunks into an assembly: :meth:`end_of_run` those that are like the last one, :meth:`read` any other."""

    _assembly: Assembly
    known: _Frame | None = attrs.field(default=None, init=False)
    """What chunks like the last one have in common, if that is known; without it :meth:`end_of_run` finds none."""
    _misses: int = attrs.field(default=0, init=False)
    """How many chunks that say something were read since one was not."""
    _former: bytes = attrs.field(default=b"", init=False)
    """The event of the last of them; a frame that it does not have is not worth the proof."""

    def end_of_run(self, events: Sequence[bytes], start: int) -> int:
        """Take in the events from *start* on that are like the last one; returns the index of the first that is not."""
        if (frame := self.known) is None:
            return start
        prefix, suffix, append = frame.prefix, frame.suffix, frame.pieces.append
        first, last = len(prefix) - 1, 1 - len(suffix)
        said = 0
        position = start
        for position in range(start, len(events)):
            event = events[position]
            if not (event.startswith(prefix) and event.endswith(suffix)) or isinstance(event, ErrorEvent):
                break
            try:
                text = orjson.loads(event[first:last])
            except ValueError:
                break
            append(text)
            said += text != ""
        else:
            position = len(events)
        if position > start:  # what was looked for was found
            self._misses = 0
            self._assembly.pieces += said
        return position

    def read(self, event: bytes) -> ErrorFacts | None:
        """Take in any chunk, or tell the error that it is.

        Raises :class:`ValueError` or :class:`RecursionError` for one that cannot be understood.
        """
        self.known = None
        chunk = read_json_fast(event)
        if not isinstance(chunk, dict):
            raise ValueError("an event is no object")
        odd = "error" in chunk or "choices" not in chunk or chunk.get("object") == "error"
        if odd and (facts := error_in(chunk)) is not None:
            return facts
        if self._assembly.add(chunk):
            self._misses = misses = self._misses + 1
            if misses & (misses - 1) == 0:  # a stream may have no frame: it is looked for less and less often
                self.known = self._frame_of(event)
            self._former = event
        return None

    def forget(self) -> None:
        """Let go of what has been said so far, as :meth:`Assembly.forget` does."""
        self.known = None
        self._assembly.forget()

    def _frame_of(self, event: bytes) -> _Frame | None:
        former = self._former
        for _, prefix, suffix in frames_of(event):
            if former.startswith(prefix) and former.endswith(suffix) and (grown := _growth_in(event)):
                place = grown[:3]
                variants = ((prefix + word.encode() + suffix, (*place, word)) for word in WORDS)
                if all(_growth_in(variant) == growth for variant, growth in variants):
                    return _Frame(prefix, suffix, self._assembly.pieces_at(*place))
        return None


def _growth_in(event: bytes) -> _Growth | None:
    """The text by which a reply grows with an event, if that is all and the event is read in the usual way."""
    try:
        return _growth_of(orjson.loads(event))
    except ValueError:
        return None


def _growth_of(chunk: Mapping[str, object]) -> _Growth | None:
    """The text by which a reply grows with each further chunk like this one, if all else then stays as it is.

    The chunk itself was no error, and no text makes it one.
    """
    choices = chunk.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return None
    if chunk.get("usage") is not None:
        return None
    grown = list(_grown(choices[0]))
    return grown[0] if len(grown) == 1 else None


def _grown(choice: Mapping[str, object]) -> Iterator[_Growth | None]:
    """What of a choice grows or may do so; ``None`` for what is no text."""
    index = choice.get("index")
    number = index if type(index) is int else 0
    for key, value in choice.items():
        if key == "delta" and isinstance(value, dict):
            yield from _grown_of_delta(number, value)
        elif key == "text" and isinstance(value, str):
            if value:
                yield number, key, None, value
        elif key in ("message", "finish_reason"):
            if value is not None:
                yield None
        elif _extends(value):
            yield None


def _grown_of_delta(number: int, delta: Mapping[str, object]) -> Iterator[_Growth | None]:
    for key, value in delta.items():
        if key in TEXTS:
            if value:
                yield number, key, None, value
        elif key == "tool_calls":
            if value:
                yield _arguments(number, value)
        elif (key == "function_call" and value is not None) or _extends(value):
            yield None


def _arguments(number: int, calls: object) -> _Growth | None:
    """The arguments in a list of one call, if nothing else is told of its function."""
    match calls:
        case [{"index": index, "function": {"arguments": str(text)} as function}] if type(index) is int and text:
            told = sum(value not in (None, "") for value in function.values())
            return (number, "arguments", index, text) if told == 1 else None
        case _:
            return None


def _extends(value: object) -> bool:
    """Whether a field grows where the same value comes again: a list does, also one step within an object."""
    if isinstance(value, dict):
        return any(isinstance(inner, list) and inner for inner in value.values())
    return isinstance(value, list) and bool(value)
