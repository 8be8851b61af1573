"""`RelayReader`: which events of a stream are handed on when, and that the outcome is `ReplyReader`'s."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scavenge.core.assembly import Assembly
from scavenge.core.chat import BLANK, ReplyReader
from scavenge.core.chunk_pattern import Pattern, pattern_of
from scavenge.core.errorbody import Wording
from scavenge.core.relay import HELD_BYTES, RelayReader
from scavenge.core.sse import ErrorEvent, SseParser
from scavenge.types import Busy, Failed, Lost, LostCause, Ok, Outcome, Rejected, Usage

USAGE = {"prompt_tokens": 5, "completion_tokens": 9}
DONE = b"data: [DONE]\n\n"


def sse(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def chunk(*choices: object, **more: object) -> dict[str, object]:
    return {"id": "1", "object": "chat.completion.chunk", "choices": list(choices), **more}


def choice(index: int = 0, finish: object = None, **delta: object) -> dict[str, object]:
    return {"index": index, "delta": delta, "finish_reason": finish}


def said(text: object, index: int = 0) -> bytes:
    return sse(chunk(choice(index, content=text)))


ROLE = sse(chunk(choice(role="assistant", content="")))
STOP = sse(chunk(choice(finish="stop")))
ABORT = sse(chunk(choice(finish="abort")))
ODD = sse(chunk(choice(finish="sudden")))
DIED = sse({"error": {"message": "EngineCore died", "code": 500}})
COUNTED = sse(chunk(usage=USAGE))
PING = b": ping\n\n"


def reader(status: int = 200, **headers: str) -> RelayReader:
    made = RelayReader(Wording())
    made.start(status, {name.replace("_", "-"): value for name, value in headers.items()})
    return made


def handed(*pieces: bytes) -> list[bytes]:
    """What each piece of the body lets go."""
    relay = reader()
    return [relay.feed(piece) for piece in pieces]


def outcome(*pieces: bytes, cut: bool = False) -> Outcome:
    relay = reader()
    for piece in pieces:
        relay.feed(piece)
    return relay.cut("cut off") if cut else relay.finish()


# --- what goes when


def test_events_go_as_they_came_and_the_last_one_stays() -> None:
    pieces = [said("a"), b"id: 7\nevent: message\n" + said("b"), PING, said("c") + said("d"), STOP, COUNTED]
    assert handed(*pieces, DONE) == [*pieces, b""]
    found = outcome(*pieces, DONE)
    assert isinstance(found, Ok)
    assert (found.reply.text, found.reply.raw, found.reply.body) == ("", {}, None)
    assert (found.reply.finish_reason, found.reply.pieces, found.reply.usage) == ("stop", 4, Usage(5, 9))


def test_an_event_that_has_not_ended_stays() -> None:
    whole = said("abc")
    for end in range(1, len(whole)):
        assert handed(said("x"), whole[:end], whole[end:]) == [said("x"), b"", whole]
    assert handed(said("x") + whole[:20], whole[20:] + whole[:9], whole[9:]) == [said("x"), whole, whole]


def test_nothing_goes_before_the_first_piece() -> None:
    quiet = [PING, ROLE, b"event: x\n\n", sse(chunk(choice(content=None, tool_calls=[])))]
    assert handed(*quiet, said("a")) == [b"", b"", b"", b"", b"".join(quiet) + said("a")]


@pytest.mark.parametrize(
    "first",
    [
        choice(content="a"),
        choice(reasoning_content="a", content=None),
        choice(reasoning="a"),
        choice(refusal="no"),
        choice(content=[{"type": "text", "text": "a"}]),
        choice(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]),
        choice(function_call={"arguments": "{"}),
        choice(1, content="b"),
        {"index": 0, "text": "a", "finish_reason": None},
        choice(content="a", finish="stop"),
    ],
)
def test_any_kind_of_piece_is_one(first: object) -> None:
    assert handed(ROLE, sse(chunk(first))) == [b"", ROLE + sse(chunk(first))]


def test_what_comes_before_the_first_piece_goes_when_there_is_too_much_of_it() -> None:
    ping = b":" + b" " * 1000 + b"\n\n"
    times = HELD_BYTES // len(ping)
    gone = handed(*[ping] * times, ROLE, *[ping] * 3)
    assert gone == [*[b""] * times, b"", ping * times + ROLE + ping, ping, ping]
    assert isinstance(outcome(*[ping] * times, ROLE, STOP, DONE), Ok)


def test_a_reply_that_says_nothing_goes_when_it_is_whole() -> None:
    assert handed(PING, ROLE, STOP, COUNTED, DONE) == [b"", b"", b"", b"", PING + ROLE + STOP + COUNTED]
    found = outcome(ROLE, STOP, COUNTED, DONE)
    assert isinstance(found, Ok)
    assert (found.reply.raw, found.reply.pieces, found.reply.usage) == ({}, 0, Usage(5, 9))


def test_a_reply_of_which_nothing_could_go_is_all_in_its_outcome() -> None:
    relay = reader()
    assert relay.feed(ROLE + STOP + b"data: [DONE]") == b""
    found = relay.finish()
    assert isinstance(found, Ok)
    assert found.reply.raw["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}
    ]
    assert relay.over
    assert relay.finish() == found


def test_an_end_without_an_empty_line_is_one() -> None:
    for end in (b"data: [DONE]", b"data: [DONE]\n", b"data:[DONE]\r\n"):
        assert handed(said("a") + STOP + end) == [said("a") + STOP]
        assert isinstance(outcome(said("a") + STOP + end), Ok)
        assert isinstance(outcome(said("a") + STOP + end, cut=True), Lost)


@pytest.mark.parametrize("bad", [DIED, b"event: error\ndata: {}\n\n", b"data: {\n\n", sse({"choices": [7]}), sse([])])
def test_an_error_and_what_follows_it_stay(bad: bytes) -> None:
    assert handed(said("a"), bad, said("b"), DONE) == [said("a"), b"", b"", b""]
    relay = reader()
    assert relay.feed(said("a") + bad + said("b") + DONE) == b""
    assert relay.over
    assert not isinstance(relay.finish(), Ok)


@pytest.mark.parametrize("bad", [ABORT, ODD, sse(chunk(choice(finish=["stop"]))), sse(chunk(choice(finish={"a": 1})))])
def test_an_aborted_reply_stops_before_the_chunk_that_says_so(bad: bytes) -> None:
    assert handed(said("a"), bad, COUNTED, said("b"), DONE) == [said("a"), b"", b"", b"", b""]
    assert handed(said("a") + bad, COUNTED + DONE) == [b"", b""]
    assert not isinstance(outcome(said("a"), bad, DONE), Ok)


def test_a_finish_reason_that_is_put_right_lets_go_what_was_held_for_it() -> None:
    assert handed(said("a"), ABORT, said("b"), STOP, DONE) == [said("a"), b"", b"", ABORT + said("b") + STOP, b""]
    assert isinstance(outcome(said("a"), ABORT, said("b"), STOP, DONE), Ok)
    assert handed(ABORT, said("b"), STOP, DONE) == [b"", b"", ABORT + said("b") + STOP, b""]


def test_an_empty_finish_reason_is_none() -> None:
    empty = [sse(chunk(choice(content="a", finish=""))), sse(chunk(choice(content="", finish="")))]
    assert handed(*empty, STOP, DONE) == [*empty, STOP, b""]
    assert handed(said("a"), ABORT, empty[0], STOP) == [said("a"), b"", b"", ABORT + empty[0] + STOP]


def test_another_choice_puts_nothing_right() -> None:
    other = sse(chunk(choice(1, finish="stop")))
    assert handed(said("a"), ABORT, other, DONE) == [said("a"), b"", b"", b""]


def test_each_choice_must_have_finished() -> None:
    both = [said("a"), said("b", 1), said("c", 1), said("d")]
    assert isinstance(outcome(*both, STOP, DONE), Lost)
    assert handed(*both, STOP, DONE) == [*both, STOP, b""]
    assert isinstance(outcome(*both, STOP, sse(chunk(choice(1, finish="length"))), DONE), Ok)


def test_a_choice_that_is_seen_once_amid_many_chunks_of_another_is_not_missed() -> None:
    usual = [said(f"w{number}") for number in range(200)]
    assert isinstance(outcome(b"".join([*usual, STOP, DONE])), Ok)
    assert isinstance(outcome(b"".join([*usual[:150], said("x", 1), *usual[150:], STOP, DONE])), Lost)


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_other_line_ends_are_handed_on_as_they_came(end: bytes) -> None:
    events = [event.replace(b"\n", end) for event in (said("a"), said("b") + said("c"), PING, STOP, DONE)]
    assert handed(*events) == [*events[:-1], b""]
    stream = b"".join(events)
    singly = handed(*(stream[at : at + 1] for at in range(len(stream))))
    assert b"".join(singly) == b"".join(events[:-1])
    assert isinstance(outcome(*(stream[at : at + 1] for at in range(len(stream)))), Ok)


def test_a_line_end_that_is_cut_in_two_is_no_empty_line() -> None:
    assert handed(said("a"), b"data: 7\r", b"\n") == [said("a"), b"", b""]
    assert handed(b"\r", b"data: [DONE]\r\n\r", b"\n") == [b"", b"", b""]
    assert handed(b": x\r\n\r", b"\n", said("a")) == [b"", b"", b": x\r\n\r\n" + said("a")]
    assert handed(said("a").replace(b"\n", b"\r\n")[:-1], b"", b"\n") == [
        said("a").replace(b"\n", b"\r\n")[:-1],
        b"",
        b"\n",
    ]


def test_blanks_before_the_first_event_are_left_out() -> None:
    assert handed(b"\xef\xbb\xbf", b" \n", b"\r\n\n" + said("a")) == [b"", b"", said("a")]


def test_there_is_nothing_after_the_end() -> None:
    relay = reader()
    relay.feed(said("a") + STOP + DONE + said("b"))
    assert relay.over
    assert relay.feed(said("c")) == b""
    assert isinstance(relay.cut("x"), Ok)


# --- what is no stream, and what ends before it should


def test_a_reply_that_is_no_stream_is_read_whole() -> None:
    body = json.dumps({"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]}).encode()
    relay = reader(content_type="text/event-stream")
    assert [relay.feed(b" "), relay.feed(body[:9]), relay.feed(body[9:])] == [b"", b"", b""]
    found = relay.finish()
    assert isinstance(found, Ok)
    assert (found.reply.text, found.reply.body, found.reply.pieces) == ("hi", body, 0)
    assert found.reply.raw == json.loads(body)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"<html><title>welcome</title></html>", Failed),
        (200, b"", Lost),
        (200, b'{"error": {"message": "no"}}', Failed),
        (500, b"data: x\n\n", Failed),
        (429, said("a"), Busy),
        (400, b'{"error": {"message": "bad"}}', Rejected),
    ],
)
def test_a_failure_hands_on_nothing(status: int, body: bytes, kind: type) -> None:
    relay = reader(status, content_type="text/event-stream")
    assert relay.feed(body) == b""
    assert type(relay.finish()) is kind
    assert relay.pieces == 0


def test_a_stream_that_is_cut_is_lost() -> None:
    relay = reader()
    relay.feed(said("a") + STOP + b"data: {")
    assert relay.cut("cut off", LostCause.LOCAL) == Lost("cut off", LostCause.LOCAL, 200)
    assert isinstance(outcome(said("a") + STOP), Lost)
    assert isinstance(outcome(said("a"), cut=True), Lost)


def test_an_event_has_a_limit_however_it_comes() -> None:
    for piece in (b"x" * 500, b": x\n" * 100, b"data: x\r\n" * 100):
        relay = RelayReader(Wording(), max_event_bytes=5_000)
        relay.start(200, {})
        assert relay.feed(said("a")) == said("a")
        relay.feed(b"data: ")
        fed = 0
        while not relay.over:
            assert relay.feed(piece) == b""
            fed += len(piece)
        assert fed < 7_000
        assert relay.finish() == Failed("HTTP 200 with a broken reply: an event is longer than 5000 bytes", 200)
        assert relay.cut("x") == relay.finish()


def test_events_that_end_do_not_add_up_to_the_limit() -> None:
    relay = RelayReader(Wording(), max_event_bytes=500)
    relay.start(200, {})
    stream = b"".join(said(f"{number}") for number in range(200))
    assert b"".join(relay.feed(stream[at : at + 70]) for at in range(0, len(stream), 70)) == stream
    assert not relay.over


def test_what_comes_after_the_end_has_no_limit() -> None:
    relay = RelayReader(Wording(), max_event_bytes=500)
    relay.start(200, {})
    assert relay.feed(said("a") + STOP + DONE + b"x" * 1_000) == said("a") + STOP
    assert isinstance(relay.finish(), Ok)


def test_blanks_without_end_are_a_fault() -> None:
    relay = reader()
    for _ in range(65):
        assert relay.feed(b" " * 2**20) == b""
    assert relay.over
    assert isinstance(relay.finish(), Failed)


def test_what_came_before_an_aborted_chunk_does_not_count_against_it() -> None:
    relay = RelayReader(Wording(), max_event_bytes=1_000)
    relay.start(200, {})
    for _ in range(20):
        relay.feed(said("a"))
    assert [relay.feed(ABORT), relay.feed(STOP)] == [b"", ABORT + STOP]


def test_what_follows_an_aborted_chunk_has_a_limit() -> None:
    relay = RelayReader(Wording(), max_event_bytes=5_000)
    relay.start(200, {})
    relay.feed(ABORT)
    fed = 0
    while not relay.over:
        assert relay.feed(said("a")) == b""
        fed += len(said("a"))
    assert fed < 6_000
    assert isinstance(relay.finish(), Failed)


def test_a_stream_may_be_longer_than_a_body_that_is_kept() -> None:
    read = [sse(chunk(choice(content="x" * 50_000), number=number, logprobs=[0])) for number in range(4)]
    relay = reader()
    fed = 0
    while fed < 80 * 2**20:
        for piece in read:
            assert relay.feed(piece) == piece
            fed += len(piece)
    relay.feed(COUNTED + STOP + DONE)
    found = relay.finish()
    assert isinstance(found, Ok)
    assert found.reply.usage == Usage(5, 9)


def test_choices_without_end_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scavenge.core.assembly.MOST_CHOICES", 50)
    many = b"".join(said("a", index) for index in range(50))
    assert handed(many, said("b", 49), said("a", 50), DONE) == [many, said("b", 49), b"", b""]
    assert "it has more than 50 choices" in str(outcome(many, said("a", 50)))


# --- chunks that are handed on unread


USUAL = said("word").removesuffix(b"\n\n")


def follow(event: bytes, *others: bytes) -> list[bool]:
    pattern = pattern_of(event, 1)
    assert pattern is not None
    return [pattern.end_of_run([other], 0) == 1 for other in others]


def test_chunks_that_differ_in_their_text_follow_one_pattern() -> None:
    texts = ["a", " ", '"', "\\", "\n", "\u00e9", "\u2028", "\x7f", "}]}", "data: [DONE]", "\ud800"]
    assert all(follow(USUAL, *(said(text).strip() for text in texts)))
    assert all(follow(USUAL, USUAL.replace(b"word", "\u4f60\u597d".encode()), USUAL.replace(b"word", b"\\u00e9\\/")))


@pytest.mark.parametrize(
    "other",
    [
        said("").strip(),
        said(None).strip(),
        said("word", 1).strip(),
        STOP.strip(),
        USUAL.replace(b"word", b'a","content":"b'),
        USUAL.replace(b"word", b'a"}, "finish_reason": "abort", "x": {"a":"'),
        USUAL.replace(b"word", b"a\nb"),
        USUAL.replace(b"word", b"a\rb"),
        USUAL.replace(b"word", b"a\tb"),
        USUAL.replace(b"word", b"a\x00b"),
        USUAL.replace(b"word", b"a\x1fb"),
        USUAL.replace(b"word", b"\\"),
        USUAL.replace(b"word", b"\\x"),
        USUAL.replace(b"word", b"\\u12"),
        USUAL.replace(b"word", b"\\u123"),
        USUAL.replace(b"word", b"\\u12g4"),
        USUAL.replace(b"word", b"\xff"),
        USUAL.replace(b"word", b"\xed\xa0\x80"),
        USUAL[:-1],
        USUAL + b"\n: x",
        b"event: error\n" + USUAL,
        USUAL.partition(b"word")[0][:-3] + USUAL.partition(b"word")[2],
        b"",
    ],
)
def test_a_chunk_that_differs_in_anything_else_does_not_follow(other: bytes) -> None:
    assert follow(USUAL, other) == [False]


@pytest.mark.parametrize(
    "event",
    [
        sse(chunk(choice(content="a"))),
        sse(chunk(choice(role="assistant", content="a", reasoning_content=None))),
        sse(chunk(choice(reasoning_content="a", content=""))),
        sse(chunk(choice(reasoning="a", content=None))),
        sse(chunk(choice(refusal="a"))),
        sse(chunk({"index": 0, "text": "a", "logprobs": None})),
        sse(chunk(choice(tool_calls=[{"index": 0, "function": {"arguments": "a"}}]))),
        sse(chunk(choice(content="a", finish=""))),
        sse(chunk(choice(content="a"), choice(1, content="b"))),
        sse(chunk({"text": ""}, more={"text": "z"}, model='"content":"q"')).replace(b'"text": ""', b'"text": "a"'),
        b'data: {"content": "z", "choices": [{"delta": {"content": "a"}}]}\n\n',
        b"id: 5\nevent: message\n" + sse(chunk(choice(content="a"))),
        b'data: {"choices": [{"delta":\ndata: {"content": "a"}}]}\n\n',
        b'data:{"choices":[{"delta":{"content":"b","content":"a"}}]}\n\n',
    ],
)
def test_each_kind_of_text_makes_a_pattern(event: bytes) -> None:
    pattern = pattern_of(event.strip(), 3)
    assert pattern is not None
    assert pattern.pieces == 3
    at = len(pattern.prefix)
    assert event[at : at + 1] == b"a"


@pytest.mark.parametrize(
    "event",
    [
        sse(chunk(choice(content="a"), usage=USAGE)),
        sse(chunk(choice(content="a"), error=None)),
        sse(chunk(choice(content="a", finish="stop"))),
        sse(chunk(choice(content="a"), choice(1, content="", finish="stop"))),
        sse(chunk(choice(content=""), choice(1, content="b"))),
        sse(chunk(choice(content=[{"type": "text", "text": "a"}]))),
        sse(chunk(choice(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]))),
        sse(chunk(choice(tool_calls=[7, {"function": {"arguments": "a"}}]))),
        sse(chunk(choice(function_call={"arguments": "a"}))),
        sse(chunk({"index": 0, "message": {"content": "a"}})),
        sse(chunk({"index": 0, "delta": {"text": "a"}})),
        sse(chunk(choice(content="a" * 20_000))),
        b': "content":"a"\n' + sse(chunk(choice(content=["a"]))),
        b'data: {"choices": [{"delta": {"a\\"content":"a"}}]}\n\n',
        b'data: {"choices": [{"delta": {"content":"a","content":"","content":""}}]}\n\n',
        b'data: {"choices": [{"delta": {"content":"z","content":"b","cont\\u0065nt":"a"}}]}\n\n',
        b'data: ["content", {"content":"a"}]\n\n',
        b'data: {"content":"a"\n\n',
    ],
)
def test_what_may_decide_something_makes_none(event: bytes) -> None:
    assert pattern_of(event.strip(), 1) is None


def test_a_run_ends_where_a_chunk_does_not_follow() -> None:
    pattern = pattern_of(USUAL, 2)
    assert pattern == Pattern(USUAL.partition(b"word")[0], USUAL.partition(b"word")[2], 2)
    events = [USUAL, USUAL, b": ping", USUAL]
    assert [pattern.end_of_run(events, start) for start in range(5)] == [2, 2, 2, 4, 4]


def test_the_usual_chunks_of_a_stream_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    monkeypatch.setattr(
        ReplyReader, "feed", lambda self, data, feed=ReplyReader.feed: (read.append(data), feed(self, data))[1]
    )
    usual = [said(f"w{number}") for number in range(100)]
    relay = reader()
    assert relay.feed(b"".join([ROLE, *usual])) == b"".join([ROLE, *usual])
    assert b"".join(relay.feed(event) for event in usual) == b"".join(usual)
    assert read == [ROLE, usual[0]]
    assert relay.pieces == 200
    relay.feed(PING + usual[0] + PING + PING + ROLE + usual[1] + usual[2])
    assert read[2:] == [PING, PING + PING, ROLE, usual[1]]


def test_a_stream_without_a_pattern_is_not_searched_for_one_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []
    monkeypatch.setattr("scavenge.core.relay.pattern_of", lambda event, pieces: tried.append(event))
    relay = reader()
    for number in range(1000):
        relay.feed(sse(chunk(choice(content="a"), number=number)))
    assert len(tried) == 10


def test_what_a_long_stream_has_said_is_let_go() -> None:
    assembly = Assembly()
    function = {"name": "f", "arguments": "{}"}
    assembly.add(
        chunk(
            choice(content="a", name="x", tool_calls=[{"index": 0, "function": function}], function_call=function),
            {"index": 1, "text": "b", "logprobs": {"content": [1]}, "finish_reason": "stop"},
            usage=USAGE,
            timings={"cache_n": 1},
        )
    )
    assembly.forget()
    assert assembly.document() == {
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": None},
            {"index": 1, "text": "", "finish_reason": "stop"},
        ],
        "usage": USAGE,
        "timings": {"cache_n": 1},
    }


def test_a_pattern_that_changes_now_and_then_is_found_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []
    monkeypatch.setattr(
        "scavenge.core.relay.pattern_of", lambda event, pieces: (tried.append(event), pattern_of(event, pieces))[1]
    )
    stream = [sse(chunk(choice(content=f"{number}"), created=number // 10)) for number in range(1000)]
    assert handed(*stream) == stream
    assert len(tried) == 100


def test_a_chunk_that_is_not_read_has_as_many_pieces_as_one_that_is() -> None:
    both = [sse(chunk(choice(content=text), choice(1, content="b"))) for text in ("a", "c", "d")]
    relay = reader()
    for number, event in enumerate(both, start=1):
        assert relay.feed(event) == event
        assert relay.pieces == 2 * number


def test_a_chunk_that_calls_itself_an_error_is_one() -> None:
    error = sse({**chunk(choice(content="x")), "object": "error", "message": "died"})
    for stream in (error + STOP, said("a") + said("b") + error + said("c") + STOP):
        assert outcome(stream + DONE) == Lost("HTTP 200 with an error: died", http_status=200)


# --- any bytes, in any pieces


def completion(text: object, finish: object = None) -> bytes:
    return sse({"choices": [{"index": 0, "text": text, "finish_reason": finish}]})


def call(arguments: str, **more: object) -> bytes:
    return sse(chunk(choice(tool_calls=[{"index": 0, "function": {"arguments": arguments, **more}}])))


PARTS = st.sampled_from(
    [
        *(said("a"), said("b"), said('"\\\n\u00e9'), said(""), said("c", 1), said(7), ROLE, PING, b"\n"),
        *(
            said("a").replace(b'"a"', text)
            for text in (b'"\xc3\xa9"', b'"\xff"', b'"a', b'"\\"', b'"a", "content": "b"')
        ),
        *(STOP, STOP, DONE, DONE, ABORT, ODD, DIED, COUNTED, sse(chunk(choice(1, finish="length")))),
        *(completion("a"), completion("b"), completion("", "stop"), call("{"), call("}"), call("", name="f")),
        *(said("a").replace(b"\n", b"\r\n"), said("b").replace(b"\n", b"\r\n"), said("a").replace(b"\n", b"\r")),
        *(STOP.replace(b"\n", b"\r\n"), DONE.replace(b"\n", b"\r\n"), PING.replace(b"\n", b"\r")),
        *(b"event: error\n", b"event: x\n", b"id: 1\n", b": ", b"data: ", b"data", b"data: {", b"data: null\n\n"),
        *(b"\n\n", b"\r", b"\r\n", b" ", b"}", b"{", b"<html>", b"\xff", b"\xef\xbb\xbf", b'{"choices":[{}]}', b"{}"),
        sse({**chunk(choice(content="x")), "object": "error"}),
        sse(chunk(choice(content="a"), usage={"completion_tokens": 5})),
        sse(chunk(choice(content="a", finish=""))),
        sse(chunk({"index": 0, "finish_reason": "stop"})),
        sse(chunk(choice(finish=["stop"]))),
    ]
)
STREAMS = st.one_of(
    st.lists(PARTS, max_size=10).map(b"".join),
    st.lists(PARTS, max_size=8).map(lambda parts: b"".join([said("x"), *parts, STOP, DONE])),
    st.binary(max_size=40),
)
CUTS = st.lists(st.integers(0, 10_000), max_size=8)
EVENT_END = re.compile(rb"(?:\r\n?+|\n)(?:\r\n?+|\n)")


def pieces_of(body: bytes, cuts: Iterable[int]) -> list[bytes]:
    at = sorted(cut % (len(body) + 1) for cut in cuts)
    return [body[start:end] for start, end in zip([0, *at], [*at, len(body)], strict=True)]


@given(STREAMS, CUTS, st.sampled_from([200, 200, 200, 400, 503]), st.booleans())
@example(said("a") + said("b") + STOP + DONE, range(300), 200, False)
@example((said("a") + STOP + DONE).replace(b"\n", b"\r"), range(300), 200, False)
@example(ROLE + STOP + b"data: [DONE]", [], 200, False)
@example(said("a") + ABORT + said("b") + STOP + DONE, [7], 200, True)
def test_whatever_comes_the_outcome_is_that_of_a_reply_that_is_kept(
    stream: bytes, cuts: Iterable[int], status: int, cut: bool
) -> None:
    relay = RelayReader(Wording())
    relay.start(status, {"content-type": "text/event-stream"})
    whole = ReplyReader(Wording())
    whole.start(status, {"content-type": "text/event-stream"})
    gone = b""
    for piece in pieces_of(stream, cuts):
        gone += relay.feed(piece)
        whole.feed(piece)
        assert (relay.over, relay.pieces) == (whole.over, whole.pieces)
        check_handed(stream, gone)
    found, expected = (relay.cut("x"), whole.cut("x")) if cut else (relay.finish(), whole.finish())
    assert facts(found) == facts(expected)
    if isinstance(found, Ok) and isinstance(expected, Ok) and relay.pieces + len(gone):
        assert gone == before_done(stream)
        assert (found.reply.text, found.reply.raw, found.reply.pieces) == ("", {}, whole.pieces)
    elif isinstance(found, Ok) and isinstance(expected, Ok):
        assert (found.reply.raw, found.reply.body) == (expected.reply.raw, expected.reply.body)


def facts(outcome: Outcome) -> object:
    if isinstance(outcome, Ok):
        return outcome.http_status, outcome.reply.finish_reason, outcome.reply.usage
    return outcome


def check_handed(stream: bytes, gone: bytes) -> None:
    """What has gone is the beginning of what came, up to the end of an event, and nothing that ends a reply."""
    assert stream.lstrip(BLANK).startswith(gone)
    assert not gone or re.search(rb"(?:\r\n|\r|\n){2}\Z", gone)
    events = SseParser().feed(gone)
    assert not any(isinstance(event, ErrorEvent) or event.startswith(b"[DONE]") for event in events)


def before_done(stream: bytes) -> bytes:
    """All events before the one that says that the reply is over."""
    gone = b""
    rest = stream.lstrip(BLANK)
    parser = SseParser()
    while True:
        end = EVENT_END.search(rest)
        event = rest[: end.end()] if end else rest + b"\n\n"
        if any(data.startswith(b"[DONE]") for data in parser.feed(event)):
            return gone
        gone += event
        rest = rest[len(event) :]
