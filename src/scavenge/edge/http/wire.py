"""One connection's HTTP/1.1, which is h11's: requests to bytes, bytes to replies, one after the other. Sans-IO.

Decides only what h11 leaves open: how much is held, that a reply begins like one, and what came before an error counts.
The plain chunks of a body never reach h11 (see :mod:`scavenge.edge.http.chunks`). Knows neither sockets nor outcomes.

Invariants: what comes out does not depend on how the bytes were split, limits aside; no more than ``MAX_HELD_BYTES`` of
a head, a line of a chunked body or trailers are held, and no pattern of h11's ever meets a long run of blanks.
"""

from __future__ import annotations

import re

import attrs
import h11

from scavenge.edge.http.chunks import BadFooter, PlainChunks
from scavenge.edge.http.request import Request

MAX_HELD_BYTES = 64 * 1024
MAX_INTERIM_HEADS = 1000
_SHOWN_BYTES = 2000  # messages are cut later, after secrets have been taken out
_SLICE_BYTES = 4096  # what h11 gets at once: longer runs of blanks are seen before the line that they are in is whole
_HEAD_END = re.compile(rb"\n\r?\n")  # as h11 has it
_BLANKS = b" " * 256
"""More than a good line has in a row; h11 0.16 refuses it in a time that grows with their square (64 KiB: 30 s)."""


class WireError(Exception):
    """The bytes are no HTTP/1.1 reply."""


@attrs.frozen
class Head:
    """The head of a reply; names are in lower case."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]

    def text(self) -> dict[str, str]:
        """The fields as text; of several with one name, the first."""
        found: dict[str, str] = {}
        for name, value in self.fields:
            found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
        return found


class Wire:
    """The exchanges on one connection. ``head`` is there as soon as the final (not 1xx) head has come."""

    __slots__ = ("_chunks", "_conn", "_framed_twice", "_interim_heads", "_last_bytes", "complete", "error", "head")

    def __init__(self) -> None:
        self._conn = h11.Connection(h11.CLIENT, MAX_HELD_BYTES)
        self._framed_twice = False  # by length and by chunks (RFC 9112 6.3): somebody on the way may have erred
        self._interim_heads = 0
        self._last_bytes = b""  # of a head that has not ended yet
        self._chunks: PlainChunks | None = None  # while they are plain
        self.head: Head | None = None
        self.complete = False  # the whole reply has come
        self.error: WireError | None = None  # what the next call raises: the body before it counts

    @property
    def reusable(self) -> bool:
        """Whether the connection may carry another request: the reply is complete and nothing follows it."""
        done = self._conn.our_state is h11.DONE and self._conn.their_state is h11.DONE
        return done and not self._framed_twice and self._conn.trailing_data == (b"", False)

    @property
    def tunnels(self) -> bool:
        """Whether the answer to ``CONNECT`` opened a tunnel and nothing follows it."""
        return self._conn.our_state is h11.SWITCHED_PROTOCOL and not self._conn.trailing_data[0]

    def start(self, request: Request) -> bytes:
        """The bytes of a request. The wire is fresh, or :attr:`reusable`."""
        if self.head is not None:
            self._conn.start_next_cycle()
            self.head, self.complete, self._interim_heads, self._last_bytes = None, False, 0, b""
        parts = (request.head, h11.Data(data=request.body), h11.EndOfMessage())
        return b"".join([self._conn.send(part) for part in parts])

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body in *data*; no data stand for the end of the connection.

        Raises :class:`WireError`; when body came before the error, it is returned, and the next call raises.
        """
        if self.error is not None:
            raise self.error
        body: list[bytes] = []
        try:
            if data:
                self._take(data, body)
            else:
                self._give(data, body)
        except (h11.RemoteProtocolError, BadFooter) as error:
            cut = "the connection was closed before the reply was whole"
            self.error = WireError(f"the reply breaks HTTP/1.1: {error}" if data else cut)
        except WireError as error:
            self.error = error
        if self.error is not None and not body:
            raise self.error
        return b"".join(body)

    def _take(self, data: bytes, body: list[bytes]) -> None:
        """Take in some bytes; h11 gets those of a head up to its end, so that it holds none of what follows."""
        while self.head is None and data:
            found = _HEAD_END.search(self._last_bytes + data)
            end = len(data) if found is None else found.end() - len(self._last_bytes)
            self._last_bytes = (self._last_bytes + data)[-2:] if found is None else b""
            self._give(data[:end], body)
            data = data[end:]
        if self._chunks is not None and data:
            rest = self._chunks.feed(data, body)
            if rest is None:
                return
            self._chunks, data = None, rest
        if data:
            self._give(data, body)

    def _give(self, data: bytes, body: list[bytes]) -> None:
        """Have h11 read on; no data stand for the end of the connection."""
        for start in range(0, len(data) or 1, _SLICE_BYTES):
            self._conn.receive_data(data[start : start + _SLICE_BYTES])
            self._read_events(body)

    def _read_events(self, body: list[bytes]) -> None:
        next_event = self._conn.next_event
        while not self.complete:  # what comes after that stays with h11
            event = next_event()
            if isinstance(event, h11.Data):
                body.append(event.data)
            elif event is h11.NEED_DATA:
                self._check_held()
                return
            elif isinstance(event, h11.Response):
                self._begin(Head(event.status_code, tuple(event.headers)))
            elif isinstance(event, h11.InformationalResponse):
                self._interim_heads += 1
                if self._interim_heads > MAX_INTERIM_HEADS:
                    raise WireError(f"there is no reply after {MAX_INTERIM_HEADS} interim ones")
            else:
                self.complete = True  # the end of the message, or a tunnel
                self._chunks = None

    def _begin(self, head: Head) -> None:
        names = {name for name, _ in head.fields}
        self.head = head
        self._framed_twice = names >= {b"content-length", b"transfer-encoding"}
        self._chunks = PlainChunks() if b"transfer-encoding" in names else None  # h11 lets no coding pass but chunked

    def _check_held(self) -> None:
        held = self._conn.trailing_data[0]
        if self.head is None and held[:5] != b"HTTP/"[: len(held)]:
            raise WireError(f"the reply is not HTTP/1.1, it begins with {held[:_SHOWN_BYTES]!r}")
        if _BLANKS in held.replace(b"\t", b" "):
            raise WireError(f"a line of the reply has {len(_BLANKS)} blanks in a row")
