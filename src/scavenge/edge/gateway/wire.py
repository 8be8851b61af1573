"""One client's HTTP/1.1 as a server reads it: bytes to requests. Sans-IO.

Heads and chunked bodies are h11's to read. Decides what h11 leaves open: how much a client may send, and that nothing
it sends costs more than its length: the head goes to h11 only when it is whole and has been looked through, a chunked
body in small slices. Knows neither sockets nor what is asked.

Invariant: ``_held`` has what came and has not been read; what h11 was given of the next request comes back to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

import attrs
import h11

_HEAD_END = re.compile(rb"\n\r?\n")
_BLANKS = b" " * 64
"""More than a good head has in a row; patterns of h11 0.16 refuse long runs in a time that grows with their square."""
_SLICE_BYTES = 1024  # of a chunked body, so that runs of blanks between its chunks are seen before h11 looks for a line
_SHOWN_BYTES = 80
_TCHAR = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]")


class Refusal(Exception):
    """A request is not taken: ``status`` and a ``code`` for programs; the text says why."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.code = code
        self.headers = headers or {}
        super().__init__(message)


@attrs.frozen
class Head:
    """The head of a request; names of fields are in lower case, and of fields with the same name the first counts."""

    method: str
    path: str
    """Without the query, and without what an absolute URL has before it."""
    fields: Mapping[bytes, bytes]
    keep_alive: bool = True
    """Whether the client wants to use the connection again."""
    old: bool = False
    """Whether the client speaks HTTP/1.0, which has no chunks."""

    def field(self, name: bytes) -> bytes | None:
        """The value of a field."""
        return self.fields.get(name)


class Wire:
    """The requests on one connection, one after the other."""

    def __init__(self, max_head_bytes: int, max_body_bytes: int) -> None:
        self._max_head_bytes = max_head_bytes
        self._max_body_bytes = max_body_bytes
        self._held = bytearray()
        self._begin()

    def _begin(self) -> None:
        self._conn: h11.Connection | None = None  # there while a chunked body is read
        self._searched = 0  # of what is held, for the end of the head
        self._body = bytearray()  # of a chunked one
        self._length = 0
        self._expects = False
        self.head: Head | None = None
        """The head that was read last, of the present request."""
        self.whole = False
        """Whether the whole of a request has been read; until then the client may still be sending it."""

    @property
    def held_bytes(self) -> int:
        """How much has come that has not been read."""
        return len(self._held)

    @property
    def body_bytes(self) -> int:
        """How much memory the body takes that is being read."""
        return len(self._body) + (min(self._length, len(self._held)) if self._conn is None else 0)

    @property
    def length(self) -> int:
        """How long the body is to become, where that was told."""
        return self._length

    @property
    def begun(self) -> bool:
        """Whether something of the next request has come."""
        return bool(self._held) or self.head is not None

    @property
    def wants_continue(self) -> bool:
        """Whether the client sends its body only when it is told to go on."""
        return self._expects and not self._held and not self._body

    def receive(self, data: bytes) -> None:
        """Bytes came."""
        self._held += data

    def read_head(self) -> Head | None:
        """The head of the next request, once it is whole. Raises :class:`Refusal`."""
        if self._held.startswith((b"\r", b"\n")):  # blank lines before a request are allowed (RFC 9112, 2.2)
            del self._held[: len(self._held) - len(self._held.lstrip(b"\r\n"))]
        if not self._held:
            return None
        if _TCHAR.match(self._held) is None:
            raise Refusal(400, "bad_request", f"this is no HTTP: it begins with {bytes(self._held[:_SHOWN_BYTES])!r}")
        found = _HEAD_END.search(self._held, max(0, self._searched - 2))
        self._searched = len(self._held)
        if (len(self._held) if found is None else found.end()) > self._max_head_bytes:
            what = f"the head of the request is longer than {self._max_head_bytes} bytes"
            raise Refusal(431, "head_too_long", what)
        if found is None:
            return None
        head = bytes(self._held[: found.end()])
        del self._held[: found.end()]
        self.head = self._read_whole_head(head)
        return self.head

    def _read_whole_head(self, head: bytes) -> Head:
        if b"\n " in head or b"\n\t" in head:
            raise Refusal(400, "bad_request", "a line of the head is folded, which HTTP/1.1 has given up")
        if _BLANKS in head.replace(b"\t", b" "):
            raise Refusal(400, "bad_request", f"a line of the head has {len(_BLANKS)} blanks in a row")
        conn = h11.Connection(h11.SERVER, self._max_head_bytes)
        conn.receive_data(head)
        request = cast("h11.Request", _next_event(conn))  # a whole head is that, or refused
        given = list(request.headers)
        fields = dict(reversed(given))
        if b"transfer-encoding" in fields:
            if b"content-length" in fields:
                raise Refusal(400, "bad_request", "the body has a length and chunks: which of them counts is unclear")
            self._conn = conn
        self._length = int(fields.get(b"content-length", b"0"))
        old = request.http_version < b"1.1"
        self._expects = not old and fields.get(b"expect", b"").lower() == b"100-continue"
        keep_alive = not old and (b"connection" not in fields or not _is_last(given))
        return Head(request.method.decode("latin-1"), _path_of(request.target), fields, keep_alive, old)

    def read_body(self) -> bytes | None:
        """The body of the request whose head was read, once it is whole. Raises :class:`Refusal`."""
        if self._conn is not None:
            return self._read_chunks(self._conn)
        self._check_length(self._length)
        if len(self._held) < self._length:
            return None
        with memoryview(self._held) as view:
            body = bytes(view[: self._length])
        del self._held[: self._length]
        self._length, self.whole = 0, True
        return body

    def _read_chunks(self, conn: h11.Connection) -> bytes | None:
        while True:
            event = _next_event(conn)
            if isinstance(event, h11.Data):
                self._body += event.data
                self._check_length(len(self._body))
            elif event is not h11.NEED_DATA:
                self._held[:0] = conn.trailing_data[0]
                body, self._body = self._body, bytearray()
                self._conn, self.whole = None, True
                return bytes(body)
            elif not self._feed(conn):
                return None

    def _check_length(self, length: int) -> None:
        if length > self._max_body_bytes:
            what = f"the body of the request is longer than {self._max_body_bytes} bytes"
            raise Refusal(413, "body_too_long", what)

    def skim(self) -> None:
        """Read what has come of the body of a request that is refused by its head: it may be the whole of it."""
        if self.head is not None and not self.whole:
            with suppress(Refusal):
                self.read_body()

    def _feed(self, conn: h11.Connection) -> bool:
        """Give h11 a slice of the body, if there is any."""
        if _BLANKS in conn.trailing_data[0].replace(b"\t", b" "):
            raise Refusal(400, "bad_request", f"a line between chunks has {len(_BLANKS)} blanks in a row")
        piece = bytes(self._held[:_SLICE_BYTES])
        if piece:
            del self._held[:_SLICE_BYTES]
            conn.receive_data(piece)
        return bool(piece)

    def next_request(self) -> None:
        """The present request has been read and answered: the next one may come."""
        self._begin()


def _next_event(conn: h11.Connection) -> object:
    try:
        return conn.next_event()
    except h11.RemoteProtocolError as error:
        status, text = error.error_status_hint, str(error)[: 4 * _SHOWN_BYTES]
        raise Refusal(status, "bad_request", f"this is no HTTP request that can be read: {text}") from None


def _is_last(fields: list[tuple[bytes, bytes]]) -> bool:
    """Whether a field says that the client will send nothing more."""
    said = b",".join(value for name, value in fields if name == b"connection").lower()
    return b"close" in (token.strip() for token in said.split(b","))


def _path_of(target: bytes) -> str:
    text = target.decode("latin-1").partition("?")[0]
    if text[:7].lower() == "http://":  # the absolute form, which a server has to take (RFC 9112, 3.2.2)
        text = "/" + text[7:].partition("/")[2]
    return text
