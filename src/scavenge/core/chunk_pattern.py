"""What the chunks of one stream have in common: all bytes but those of one text. Pure.

A pattern is made of a chunk that was read, by its bytes: the text is taken out, and two others put in its place come
out at the place in the chunk where a reply's text is, so that any text put there does. A chunk that follows the pattern
is thus known without being read: its text is there and is right as JSON and as UTF-8, and the rest is what was read
before.

:class:`Pattern` is for a stream that is handed on. Invariant: every chunk that follows one would be read without an
error, and say as many pieces as the one that it was made of; it brings no usage, no error and no finish reason, and its
text is not empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import attrs

from scavenge.core.plainjson import read_json_fast
from scavenge.core.sse import SseParser
from scavenge.types import Json

_LONGEST_BYTES = 16 * 2**10
"""A chunk that is longer is likely to be the only one of its kind."""
_PLACES = 4
"""How many texts in a chunk are tried."""
WORDS = ("a", "b")
"""What is put in the place of a text."""
_LETTERS = rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))++'  # RFC 8259, section 7, without the quotes
_TEXT = re.compile(_LETTERS)
_PLACE = re.compile(rb'"(content|reasoning_content|reasoning|refusal|text|arguments)"\s*+:\s*+"(' + _LETTERS + rb')"')


@attrs.frozen
class Pattern:
    """What stands before the text and after it, and how many pieces a chunk says."""

    prefix: bytes
    suffix: bytes
    pieces: int

    def end_of_run(self, events: Sequence[bytes], start: int) -> int:
        """The index of the first event from *start* on that does not follow the pattern."""
        prefix, suffix, fits = self.prefix, self.suffix, _TEXT.fullmatch
        before, after = len(prefix), len(suffix)
        for position in range(start, len(events)):
            event = events[position]
            if not (
                event.startswith(prefix)
                and event.endswith(suffix)
                and fits(event, before, len(event) - after)
                and (event.isascii() or _is_utf8(event))
            ):
                return position
        return len(events)


def pattern_of(event: bytes, pieces: int) -> Pattern | None:
    """The pattern of an event that was read and has said so many pieces, as far as it has one."""
    for key, prefix, suffix in frames_of(event):
        if all(_says(prefix + word.encode() + suffix, key, word) for word in WORDS):
            return Pattern(prefix, suffix, pieces)
    return None


def frames_of(event: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    """What may be a text of a reply that is not empty: its key, and what stands before and after it in the event."""
    if len(event) <= _LONGEST_BYTES:
        for place in islice(_PLACE.finditer(event), _PLACES):
            yield place[1].decode(), event[: place.start(2)], event[place.end(2) :]


def _says(event: bytes, key: str, word: str) -> bool:
    """Whether an event is a chunk that says *word* under *key*, and nothing that decides anything."""
    try:
        chunk = read_json_fast(SseParser().feed(event + b"\n\n")[0])
    except ValueError:  # it was read before, but with more room on the stack
        return False
    if not isinstance(chunk, dict) or "error" in chunk or chunk.get("usage") is not None:
        return False
    choices: list[Json] = chunk["choices"]
    return _text_in(choices[0], key) == word and not any(choice.get("finish_reason") for choice in choices)


def _text_in(choice: Json, key: str) -> object:
    match key, choice:
        case ("text", {"text": text}) | (
            "arguments",
            {"delta": {"tool_calls": [{"function": {"arguments": text}}, *_]}},
        ):
            return text
        case _, {"delta": dict(delta)} if key not in ("text", "arguments"):
            return delta.get(key)
        case _:
            return None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
