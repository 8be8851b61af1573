"""Server-sent events out of a stream of bytes, however it is cut. Pure; knows nothing of JSON or an event's meaning.

A line ends at ``\\n``, ``\\r\\n`` or ``\\r`` and nowhere else: U+2028 and its like are text. Only ``data`` fields are
kept, and whether ``event`` names an error, since the servers we talk to use no others for what they say. An event ends
at an empty line.

Invariant: what comes out does not depend on how the bytes were split, and from one call to the next no more than
``max_event_bytes`` are held.
"""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"
_ERROR_NAMES = (b"event: error", b"event:error")


class EventTooLong(ValueError):
    """One event is longer than the parser was told to hold."""


class ErrorEvent(bytes):
    """The data of an event with the name ``error``; all others are plain bytes."""

    __slots__ = ()


class SseParser:
    """Collects bytes and gives the data of each event that is complete."""

    __slots__ = (
        "_after_cr", "_at_start", "_data", "_data_bytes", "_is_error", "_max_event_bytes", "_partial", "_partial_bytes",
    )  # fmt: skip

    def __init__(self, max_event_bytes: int = 16 * 2**20) -> None:
        self._max_event_bytes = max_event_bytes
        self._partial: list[bytes] = []  # the last line, which has not ended yet
        self._partial_bytes = 0
        self._data: list[bytes] = []  # the data fields of the event that has not ended yet
        self._data_bytes = 0  # with the names of the fields, so that empty ones count too
        self._is_error = False  # the event that has not ended yet is named error
        self._after_cr = False  # the last byte was \r: a \n that follows belongs to it
        self._at_start = True

    def feed(self, data: bytes) -> list[bytes]:
        """The data of the events that end within *data*.

        Raises :class:`EventTooLong`, after which the parser is of no more use.
        """
        if self._after_cr and data:
            self._after_cr = False
            data = data[1:] if data[0] == 10 else data
        if b"\n" not in data and b"\r" not in data:
            self._hold(data)
            return []
        if self._partial:
            data = b"".join(self._partial) + data
            self._partial.clear()
            self._partial_bytes = 0
        self._after_cr = data[-1] == 13
        lines = data.splitlines()  # of bytes: at \n, \r\n and \r only
        rest = b"" if data[-1] in b"\r\n" else lines.pop()
        events = self._events(lines)
        self._hold(rest)
        return events

    def end(self) -> list[bytes]:
        """The data of an event that the end of the stream completes, though no empty line follows it."""
        lines = [b"".join(self._partial)] if self._partial else []
        self._partial.clear()
        return self._events([*lines, b""])

    def _hold(self, rest: bytes) -> None:
        if rest:
            self._partial.append(rest)
            self._partial_bytes += len(rest)
        if self._partial_bytes + self._data_bytes > self._max_event_bytes:
            raise EventTooLong(f"an event is longer than {self._max_event_bytes} bytes")

    def _events(self, lines: list[bytes]) -> list[bytes]:
        if self._at_start and lines:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._data_bytes += len(line)
            elif not line:
                if data:
                    event = data[0] if len(data) == 1 else b"\n".join(data)
                    events.append(ErrorEvent(event) if self._is_error else event)
                    data.clear()
                    self._data_bytes = 0
                self._is_error = False
            elif line == b"data":
                data.append(b"")
                self._data_bytes += len(line)
            elif line.startswith(b"event:") or line == b"event":
                self._is_error = line in _ERROR_NAMES
        return events
