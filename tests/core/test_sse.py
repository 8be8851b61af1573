"""`SseParser`: events out of bytes, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scavenge.core.sse import ErrorEvent, EventTooLong, SseParser

SOUP = st.lists(
    st.sampled_from(
        [
            b"data",
            b":",
            b" ",
            b"\n",
            b"\r",
            b"\r\n",
            b"x",
            b"data: 1",
            b"event: e",
            b"event: error",
            b"\xe2\x80\xa8",
            b"\x85",
            b"\xef\xbb\xbf",
        ]
    ),
    max_size=30,
).map(b"".join)


def events_of(*pieces: bytes, end: bool = False) -> list[bytes]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + (parser.end() if end else [])


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"data: a\n\ndata:b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
        (b"data: a\ndata: b\ndata\n\n", [b"a\nb\n"]),
        (b": ping\n\nevent: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"datax: a\n\n", []),
        (b"data: a\n", []),
        ("data: a\u2028b\u0085c\x0cd\x1ce\n\n".encode(), ["a\u2028b\u0085c\x0cd\x1ce".encode()]),
        (b"", []),
    ],
)
def test_lines_end_where_the_format_says(text: bytes, events: list[bytes]) -> None:
    assert events_of(text) == events
    assert events_of(*(text[i : i + 1] for i in range(len(text)))) == events


@pytest.mark.parametrize(
    ("text", "are_errors"),
    [
        (b"event: error\ndata: a\n\ndata: b\n\n", [True, False]),
        (b"data: a\r\nevent:error\r\ndata: b\r\n\r\n", [True]),
        (b"event: error\n\ndata: a\n\n", [False]),
        (b"event: error\nevent: message\ndata: a\n\n", [False]),
        (b"event: error\nevent\ndata: a\n\n", [False]),
        (b"event: message\nevent: error\ndata: a\n\n", [True]),
        (b"event:  error\ndata: a\n\nevent: errors\ndata: b\n\nevents: error\ndata: c\n\n", [False, False, False]),
        (b"data: a\n\nevent: error\ndata: b", [False, True]),
    ],
)
def test_an_event_that_is_named_error_can_be_told(text: bytes, are_errors: list[bool]) -> None:
    assert are_error_events(events_of(text, end=True)) == are_errors
    assert are_error_events(events_of(*(text[i : i + 1] for i in range(len(text))), end=True)) == are_errors


def are_error_events(events: list[bytes]) -> list[bool]:
    return [isinstance(event, ErrorEvent) for event in events]


@given(SOUP, st.data())
@example(b"data: a\r\n\r\n", None)
def test_the_split_does_not_matter(text: bytes, data: st.DataObject | None) -> None:
    cuts = [6, 8] if data is None else sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole, split = events_of(text, end=True), events_of(*pieces, end=True)
    assert split == whole
    assert are_error_events(split) == are_error_events(whole)


@given(st.binary(max_size=300), st.integers(1, 7))
def test_any_bytes_are_read_alike_in_any_pieces(text: bytes, size: int) -> None:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert events_of(*pieces, end=True) == events_of(text, end=True)


def test_the_end_completes_an_event_that_lacks_its_empty_line() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\n\ndata: [DONE]") == [b"a"]
    assert parser.end() == [b"[DONE]"]
    assert parser.end() == []


def feed_bytewise(parser: SseParser, piece: bytes) -> None:
    for byte in piece:
        parser.feed(bytes([byte]))


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 200, b"data: xxxxx\n" * 20, b"data\n" * 50, b":" * 200])
def test_an_event_that_never_ends_is_refused(piece: bytes) -> None:
    parser = SseParser(max_event_bytes=100)
    with pytest.raises(EventTooLong):
        parser.feed(piece)
    parser = SseParser(max_event_bytes=100)
    with pytest.raises(EventTooLong):
        feed_bytewise(parser, piece)


def test_comments_and_finished_events_do_not_add_up() -> None:
    parser = SseParser(max_event_bytes=100)
    for _ in range(100):
        parser.feed(b": ping\n\n")
        assert parser.feed(b"data: 0123456789\n\n") == [b"0123456789"]
