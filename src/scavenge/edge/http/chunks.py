"""The framing of a chunked body (RFC 9112 7.1) as far as it is plain. Sans-IO.

A stream has a chunk for each token, and h11 takes several microseconds for one. Read here are chunks whose line has a
size and nothing else; what follows the first other line (the last chunk, trailers, extensions, what is wrong) is left
to h11, which then sees a body that begins there.
"""

from __future__ import annotations

import re

_SIZE = re.compile(rb"\r\n([0-9A-Fa-f]{1,8})\r\n")
_BEGUN = re.compile(rb"(?:\r(?:\n(?:[0-9A-Fa-f]{1,8}\r?)?)?)?")
_END = b"\r\n"


class BadFooter(ValueError):
    """A chunk is longer than it says."""


class PlainChunks:
    """Takes the frames off the chunks of one body; *held* never has more than a line.

    Invariant: what comes out does not depend on how the bytes were split.
    """

    __slots__ = ("_held", "_left")

    def __init__(self) -> None:
        self._left = 0  # bytes of the present chunk that are still to come
        self._held = _END  # what has come between two chunks; before the first one, as if one had ended

    def feed(self, data: bytes, body: list[bytes]) -> bytes | None:
        """Put the bytes of the body in *data* into *body*.

        Returns what is left to h11 from here on, after which this is of no more use; ``None``: nothing yet. Raises
        :class:`BadFooter`; what came before it is in *body*.
        """
        if self._left:
            body.append(data[: self._left])
            over, self._left = self._left, max(0, self._left - len(data))
            data = data[over:]
            if self._left:
                return None
        if self._held:
            data, self._held = self._held + data, b""
        at, line, size = 0, b"", 0
        while at < len(data):
            if not (line and data.startswith(line, at)):  # tokens are often of one length
                found = _SIZE.match(data, at)
                size = 0 if found is None else int(found[1], 16)
                if found is None or not size:
                    return self._other(data[at:])
                line = found[0]
            start = at + len(line)
            at = start + size
            if start < len(data):
                body.append(data[start:at])
        self._left = at - len(data)
        return None

    def _other(self, rest: bytes) -> bytes | None:
        """What to do with bytes between two chunks that are no whole line of another one."""
        if _BEGUN.fullmatch(rest):
            self._held = rest
            return None
        if not rest.startswith(_END):
            raise BadFooter(f"a chunk is followed by {rest[:2]!r}")
        return rest[2:]
