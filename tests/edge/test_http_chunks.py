"""Chunked bodies: what is read by hand comes out as h11 alone reads it, however it is split."""

from __future__ import annotations

from itertools import pairwise

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scavenge.edge.http.chunks import BadFooter, PlainChunks
from scavenge.edge.http.request import RequestKind
from scavenge.edge.http.wire import Wire, WireError

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
POST = RequestKind(b"POST", b"/", ((b"host", b"h"),))
LINES = [
    *(b"5\r\nhello\r\n", b"A\r\n0123456789\r\n", b"5\r\n0\r\n\r\n\r\n", b"5;x=y\r\nhello\r\n", b"5 \r\nhello\r\n"),
    *(b"3\r\nhello\r\n", b"5\r\nhello", b"5\r\nhelloXX", b"5\r\nhello\rX", b"1_0\r\n0123456789abcdef\r\n"),
    *(
        b"0\r\n\r\n",
        b"0\r\nt: v\r\n\r\n",
        b"00\r\n\r\n",
        b"\r\n",
        b"\r",
        b"\n5\r\n",
        b"5\nhello\r\n",
        b"0x5\r\nhello\r\n",
    ),
    *(b"000000005\r\nhello\r\n", b"fffffffff\r\n", b"+5\r\nhello\r\n", b"-1\r\n", b"zz\r\n", b"0;a\r\n\r\n"),
]
PARTS = st.one_of(
    st.sampled_from(LINES),
    st.binary(min_size=1, max_size=300).map(lambda data: b"%x\r\n%s\r\n" % (len(data), data)),
    st.binary(max_size=4),
)


def by_h11(data: bytes) -> tuple[bytes, str]:
    """The body as h11 alone has it, and how it ended."""
    conn = h11.Connection(h11.CLIENT)
    conn.send(POST.request().head)
    conn.send(h11.EndOfMessage())
    body, ended = b"", False
    conn.receive_data(data)
    try:
        while True:
            event = conn.next_event()
            if isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return body, f"whole, {conn.trailing_data[0]!r} follows"
            elif event is h11.NEED_DATA:
                ended = True
                conn.receive_data(b"")
    except h11.RemoteProtocolError:
        return body, "cut" if ended else "broken"


def by_wire(pieces: list[bytes]) -> tuple[bytes, str]:
    wire = Wire()
    wire.start(POST.request())
    body = b""
    try:
        for piece in filter(None, pieces):
            body += wire.feed(piece)
        if wire.complete:
            return body, f"whole, {wire._conn.trailing_data[0]!r} follows"
        body += wire.feed(b"")
        body += wire.feed(b"")  # where a body came before the error
    except WireError as error:
        return body, "cut" if "closed before" in str(error) else "broken"
    pytest.fail("the end of the connection ends nothing")


@pytest.mark.parametrize("line", LINES)
def test_each_kind_of_line_is_what_h11_says_it_is_wherever_it_is_cut(line: bytes) -> None:
    data = HEAD + b"2\r\nab\r\n" + line + b"3\r\nyou\r\n0\r\n\r\n"
    expected = by_h11(data)
    assert by_wire([data]) == expected
    for at in range(len(data)):
        assert by_wire([data[:at], data[at:]]) == expected, at


@given(st.lists(PARTS, max_size=8), st.lists(st.integers(0, 3000), max_size=8))
@example([b"5\r\nhello\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"more"], [])
def test_a_chunked_body_comes_out_as_h11_alone_has_it(parts: list[bytes], cuts: list[int]) -> None:
    data = HEAD + b"".join(parts)
    at = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    assert by_wire([data[a:b] for a, b in pairwise(at)]) == by_h11(data)


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=6))
def test_byte_by_byte_it_is_the_same(chunks: list[bytes]) -> None:
    data = HEAD + b"".join(b"%X\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\nmore"
    assert by_wire([data[at : at + 1] for at in range(len(data))]) == by_h11(data)


def test_plain_chunks_never_reach_h11(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()
    wire.start(POST.request())
    given: list[bytes] = []
    receive_data = wire._conn.receive_data
    monkeypatch.setattr(wire._conn, "receive_data", lambda data: (given.append(data), receive_data(data)))
    wire.feed(HEAD + b"5\r\nhel")
    for _ in range(1000):
        assert wire.feed(b"lo\r\n5\r\nhel") == b"lohel"
    assert given == [HEAD]
    assert wire.feed(b"lo\r\n0\r\n\r\n") == b"lo"
    assert wire.reusable


def test_what_stands_between_two_chunks_is_held_only_as_long_as_it_may_become_one() -> None:
    chunks, body = PlainChunks(), []
    for piece in (b"5", b"\r", b"\nhell", b"o", b"\r", b"\n0000000", b"2\r", b"\nab\r\n"):
        assert chunks.feed(piece, body) is None
    assert b"".join(body) == b"helloab"
    assert chunks.feed(b"1;", body) == b"1;"


def test_a_chunk_that_is_longer_than_it_says_is_none() -> None:
    chunks, body = PlainChunks(), []
    with pytest.raises(BadFooter, match="followed by b'!!'"):
        chunks.feed(b"5\r\nhello!!", body)
    assert body == [b"hello"]
