"""`Wire`: how replies are delimited, what is refused, and that nothing depends on how the bytes were split."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.edge.http.request import RequestKind
from scavenge.edge.http.wire import MAX_INTERIM_HEADS, Wire, WireError


@attrs.frozen
class Seen:
    """What came of some bytes and the end of the connection. ``status`` is ``None`` without a whole head."""

    status: int | None
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes
    whole: bool
    reusable: bool


def begun(method: bytes = b"POST") -> Wire:
    wire = Wire()
    wire.start(RequestKind(method, b"/", ((b"host", b"h"),)).request())
    return wire


def seen(pieces: list[bytes], method: bytes = b"POST") -> Seen:
    """Feed all pieces, then the end of the connection, until the reply is complete or broken."""
    wire = begun(method)
    body = b""
    try:
        for piece in filter(None, pieces):
            body += wire.feed(piece)
        reusable = wire.reusable
        if not wire.complete:
            body += wire.feed(b"")
    except WireError:
        assert not wire.complete
        assert wire.error is not None
        reusable = False
    head = wire.head
    return Seen(head and head.status, head.fields if head else (), body, wire.complete, reusable)


START_LINES = [
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 204\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
    *(b"HTTP/1.1 304 x\r\n", b"HTTP/1.1 101 x\r\n\r\n", b"HTTP/2 200\r\n", b"HTTP/1.1 20\r\n", b"HTTP/1.1 200 OK\n"),
]
FIELDS = [
    *(b"content-length: 5\r\n", b"Content-Length: 5, 5\r\n", b"content-length: 6\r\n", b"content-length: +5\r\n"),
    *(b"content-length: 0\r\n", b"content-length:\r\n", b"transfer-encoding: chunked\r\n"),
    *(b"Transfer-Encoding: gzip\r\n", b"transfer-encoding: gzip, chunked\r\n", b"TRANSFER-ENCODING: Chunked\r\n"),
    *(b"connection: close\r\n", b"connection: Keep-Alive, X\r\n", b"x: y \t\r\n", b"x:\r\n", b"x : y\r\n"),
    *(b" folded\r\n", b"x\r\n", b"x: \x00\r\n", b"x: \xff\r\n", b"x: a\rb\r\n", b": y\r\n", b"\r\n", b"\n", b"\r"),
]
BODIES = [
    *(b"hello", b"5\r\nhello\r\n", b"0\r\n\r\n", b"5;x=y\r\nhello\r\n", b"5 \r\nhello\r\n", b"00005\r\nhello\r\n"),
    *(b"5\nhello\r\n", b"5\r\nhelloXX", b"-5\r\n", b"0x5\r\nhello\r\n", b"\r\n\r\n", b"0\r\nt: v\r\n\r\n", b"A\r\n"),
]
LINES = st.sampled_from([*START_LINES, *FIELDS, *BODIES])
MESSAGES = st.builds(
    lambda first, head, body: first + b"".join(head) + b"\r\n" + b"".join(body),
    st.sampled_from([b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n", b""]),
    st.lists(LINES, max_size=4),
    st.lists(LINES, max_size=5),
)
METHODS = st.sampled_from([b"POST", b"GET", b"HEAD", b"CONNECT"])


@given(st.one_of(MESSAGES, st.binary(max_size=60)), METHODS, st.lists(st.integers(0, 1000), max_size=6))
def test_the_split_does_not_matter_and_nothing_else_is_raised(data: bytes, method: bytes, cuts: list[int]) -> None:
    at = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    assert seen([data[a:b] for a, b in pairwise(at)], method) == seen([data], method)


@given(st.lists(st.binary(min_size=1, max_size=9000), max_size=5), st.integers(1, 9000))
def test_a_body_comes_out_as_it_went_in(chunks: list[bytes], size: int) -> None:
    raw = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    data = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + raw
    got = seen([data[start : start + size] for start in range(0, len(data), size)])
    assert (got.body, got.whole, got.reusable) == (b"".join(chunks), True, True)


@pytest.mark.parametrize(
    ("data", "body", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello!", b"hello", False),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello", b"hello", False),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello!", b"hello", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello", False),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", b"hello", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\ncontent-length: 1\r\n\r\nx", b"x", True),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n3;a=b\r\nyou\r\n0\r\nt: v\r\n\r\n",
            b"helloyou",
            True,
        ),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n1\r\nx\r\n0\r\n\r\n", b"x", False),
        (b"HTTP/1.1 200 OK\ncontent-length: 1\n\nx", b"x", True),
    ],
)
def test_the_ways_a_body_is_delimited(data: bytes, body: bytes, reusable: bool) -> None:
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        got = seen(pieces)
        assert (got.body, got.whole, got.reusable) == (body, True, reusable)


def test_a_reply_to_head_has_no_body() -> None:
    assert seen([b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"], b"HEAD").reusable


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 O",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000,
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;" + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"9" * 30 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
)
def test_what_is_no_whole_reply_is_refused(data: bytes) -> None:
    for size in (1_000, len(data) or 1):
        got = seen([data[start : start + size] for start in range(0, len(data), size)])
        assert not got.whole
        assert got.body == b""


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03\x03", b"<html>", b"H2"])
def test_what_begins_like_no_reply_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(WireError):
        begun().feed(data)


@pytest.mark.parametrize("data", [b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, b"HTTP/1.1 100 x\r\n\r\n" * 5_000])
def test_heads_without_end_are_refused_before_the_connection_ends(data: bytes) -> None:
    with pytest.raises(WireError):
        begun().feed(data)


@pytest.mark.parametrize("blank", [b" ", b"\t"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"HTTP/1.1 200 OK\r\nx:", b"\x00\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;", b"\nx\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx:", b"\x00\r\n\r\n"),
    ],
)
def test_hostile_white_space_is_refused_before_a_pattern_meets_it(before: bytes, after: bytes, blank: bytes) -> None:
    with pytest.raises(WireError, match="blanks in a row"):  # h11 would look at them for half a minute
        begun().feed(before + blank * 60_000 + after)


def test_blanks_in_a_body_are_nobodys_business() -> None:
    body = b" " * 10_000 + b"{}"
    assert seen([b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)]).body == body


@pytest.mark.parametrize("call", [b"", b"more"])
def test_the_body_before_an_error_counts(call: bytes) -> None:
    wire = begun()
    assert wire.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n") == b"hello"
    with pytest.raises(WireError, match=r"breaks HTTP/1\.1"):
        wire.feed(call)


def test_a_reply_that_is_cut_says_so() -> None:
    wire = begun()
    wire.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell")
    with pytest.raises(WireError, match="closed before the reply was whole"):
        wire.feed(b"")


def test_one_wire_carries_many_exchanges() -> None:
    wire = Wire()
    for number in range(3):
        request = RequestKind(b"POST", b"/%d" % number, ((b"host", b"h"),)).request(b"ask")
        assert wire.start(request) == b"POST /%d HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nask" % number
        assert (wire.head, wire.complete, wire.reusable) == (None, False, False)
        assert wire.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n%d" % number) == b"%d" % number
        assert wire.reusable


@pytest.mark.parametrize(
    ("data", "tunnels"),
    [
        (b"HTTP/1.1 200 Connection established\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\n\r\nsurplus", False),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n", False),
    ],
)
def test_a_tunnel_is_open_when_the_proxy_says_so_and_no_more(data: bytes, tunnels: bool) -> None:
    wire = begun(b"CONNECT")
    assert not wire.tunnels
    assert wire.feed(data) == b""
    assert wire.head is not None
    assert (wire.tunnels, wire.complete) == (tunnels, True)


def test_interim_heads_are_counted_anew_for_each_exchange() -> None:
    wire = Wire()
    for _ in range(3):
        wire.start(RequestKind(b"POST", b"/", ((b"host", b"h"),)).request())
        wire.feed(b"HTTP/1.1 102 Processing\r\n\r\n" * (MAX_INTERIM_HEADS // 2))
        wire.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        assert wire.reusable
