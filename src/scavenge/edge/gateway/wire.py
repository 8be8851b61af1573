"""One client's HTTP/1.1 as a server reads and writes it: bytes to requests, answers to bytes. h11's, and sans-IO.

Decides what h11 leaves open: how much a client may send, and that nothing it sends costs more than its length: the head
goes to h11 only when it is whole and has been looked through, a chunked body in small slices. Knows neither sockets
nor what is asked.

Invariant: ``_held`` has what came and has not been read; h11 has nothing of the next request.
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
_PIECE_BYTES = 65536
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
    """The head of a request; names of fields are in lower case."""

    method: str
    path: str
    """Without the query, and without what an absolute URL has before it."""
    fields: tuple[tuple[bytes, bytes], ...]

    def field(self, name: bytes) -> bytes | None:
        """The value of the first field with this name."""
        return next((value for key, value in self.fields if key == name), None)


class Wire:
    """The requests on one connection, one after the other."""

    def __init__(self, max_head_bytes: int, max_body_bytes: int) -> None:
        self._max_head_bytes = max_head_bytes
        self._max_body_bytes = max_body_bytes
        self._held = bytearray()
        self._begin()

    def _begin(self) -> None:
        self._conn = h11.Connection(h11.SERVER, self._max_head_bytes)
        self._searched = 0  # of what is held, for the end of the head
        self._body = bytearray()
        self._length: int | None = None  # of the body, where it was told
        self._method = ""
        self.whole = False
        """Whether the whole of a request has been read; until then the client may still be sending it."""

    @property
    def held_bytes(self) -> int:
        """How much has come that has not been read."""
        return len(self._held)

    @property
    def begun(self) -> bool:
        """Whether something of the next request has come."""
        return bool(self._held or self._method)

    @property
    def wants_continue(self) -> bool:
        """Whether the client sends its body only when it is told to go on."""
        return self._conn.they_are_waiting_for_100_continue

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
        return self._read_whole_head(head)

    def _read_whole_head(self, head: bytes) -> Head:
        if b"\n " in head or b"\n\t" in head:
            raise Refusal(400, "bad_request", "a line of the head is folded, which HTTP/1.1 has given up")
        if _BLANKS in head.replace(b"\t", b" "):
            raise Refusal(400, "bad_request", f"a line of the head has {len(_BLANKS)} blanks in a row")
        self._conn.receive_data(head)
        request = cast("h11.Request", self._next_event())  # a whole head is that, or refused
        fields = tuple(request.headers)
        names = {name for name, _ in fields}
        if names >= {b"content-length", b"transfer-encoding"}:
            raise Refusal(400, "bad_request", "the body has a length and chunks: which of them counts is unclear")
        self._method = request.method.decode("latin-1")
        read = Head(self._method, _path_of(request.target), fields)
        length = read.field(b"content-length")
        self._length = None if length is None else int(length)
        return read

    def read_body(self) -> bytes | None:
        """The body of the request whose head was read, once it is whole. Raises :class:`Refusal`."""
        while True:
            if max(len(self._body), self._length or 0) > self._max_body_bytes:
                what = f"the body of the request is longer than {self._max_body_bytes} bytes"
                raise Refusal(413, "body_too_long", what)
            event = self._next_event()
            if isinstance(event, h11.Data):
                self._body += event.data
            elif event is not h11.NEED_DATA:
                self._held[:0] = self._conn.trailing_data[0]
                self.whole = True
                body, self._body = self._body, bytearray()
                return bytes(body)
            elif not self._feed():
                return None

    def skim(self) -> None:
        """Read what has come of the body of a request that is refused by its head: it may be the whole of it."""
        if self._method and not self.whole:
            with suppress(Refusal):
                self.read_body()

    def _feed(self) -> bool:
        """Give h11 a piece of the body, if there is any."""
        if self._length is not None:
            size = min(_PIECE_BYTES, self._length - len(self._body))  # never a byte of the next request
        elif _BLANKS in self._conn.trailing_data[0].replace(b"\t", b" "):
            raise Refusal(400, "bad_request", f"a line between chunks has {len(_BLANKS)} blanks in a row")
        else:
            size = _SLICE_BYTES
        piece = bytes(self._held[:size])
        if piece:
            del self._held[:size]
            self._conn.receive_data(piece)
        return bool(piece)

    def _next_event(self) -> object:
        try:
            return self._conn.next_event()
        except h11.RemoteProtocolError as error:
            status, text = error.error_status_hint, str(error)[: 4 * _SHOWN_BYTES]
            raise Refusal(status, "bad_request", f"this is no HTTP request that can be read: {text}") from None

    # --- answers

    def go_on(self) -> bytes:
        """What tells the client to send its body."""
        return self._send(h11.InformationalResponse(status_code=100, headers=[]))

    def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
        """A whole answer of JSON."""
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        data = b"" if self._method == "HEAD" else body
        head = h11.Response(status_code=status, headers=list(fields.items()))
        return self._send(head) + self._send(h11.Data(data=data)) + self._send(h11.EndOfMessage())

    def stream_head(self) -> bytes:
        """The head of an answer that is a stream of events."""
        headers = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")]
        return self._send(h11.Response(status_code=200, headers=headers))

    def stream_data(self, events: bytes) -> bytes:
        """A piece of a stream."""
        return self._send(h11.Data(data=events))

    def stream_end(self) -> bytes:
        """The proper end of a stream."""
        return self._send(h11.EndOfMessage())

    def next_cycle(self) -> bool:
        """Make ready for the next request, if the connection may carry one."""
        if self._conn.our_state is not h11.DONE or self._conn.their_state is not h11.DONE:
            return False
        self._begin()
        return True

    def _send(self, event: h11.Event) -> bytes:
        return self._conn.send(event) or b""


def _path_of(target: bytes) -> str:
    text = target.decode("latin-1").partition("?")[0]
    if text[:7].lower() == "http://":  # the absolute form, which a server has to take (RFC 9112, 3.2.2)
        text = "/" + text[7:].partition("/")[2]
    return text
