"""`ChunkReader`: what comes of a stream is the same whether its chunks are read whole or not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scavenge.core.assembly import Assembly
from scavenge.core.chat import ReplyReader
from scavenge.core.chunk_reader import ChunkReader
from scavenge.core.plainjson import read_json_fast
from scavenge.core.sse import SseParser
from scavenge.types import Ok

WORD = b"TEXT"
"""What stands in a template for the text that differs."""
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
DONE = b"data: [DONE]\n\n"


def template(choice: object, **more: object) -> bytes:
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 5, "choices": [choice], **more}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def delta(**fields: object) -> dict[str, object]:
    return {"index": 0, "delta": fields, "finish_reason": None}


def called(**piece: object) -> dict[str, object]:
    return delta(tool_calls=[{"index": 0, **piece}])


USUAL = template(delta(content="TEXT"))
ARGUMENTS = template(called(function={"arguments": "TEXT"}))
ALIKE = [
    USUAL,
    template({"delta": {"role": "assistant", "content": "TEXT", "reasoning_content": None}, "logprobs": None}),
    template(delta(reasoning_content="TEXT", content=""), usage=None),
    template(delta(reasoning="TEXT", content=None, tool_calls=None, function_call=None)),
    template(delta(refusal="TEXT", tool_calls=[])),
    template({"index": 1, "text": "TEXT", "logprobs": None, "finish_reason": None}),
    template({"index": 0, "text": "TEXT", "delta": None, "message": None}),
    template({**delta(content="TEXT"), "text": ""}),
    template({**delta(content="TEXT"), "token_ids": [], "logprobs": {"content": [], "more": {"a": [1]}, "x": None}}),
    template(delta(content="TEXT"), prompt_token_ids=[1], timings={"a": [1]}, error=None),
    ARGUMENTS,
    template(called(id="c", type="function", function={"name": "", "arguments": "TEXT", "x": None})),
    template(delta(content="", tool_calls=[{"index": 3, "id": "d", "function": {"arguments": "TEXT"}}])),
]
"""Chunks that differ in their text only and add nothing else, however often they come."""
DIFFERENT = [
    template({**delta(content="TEXT"), "logprobs": {"content": [{"token": "a"}]}}),
    template({**delta(content="TEXT"), "token_ids": [7]}),
    template(delta(content="TEXT", parts=[1])),
    template(delta(content="TEXT", reasoning="b")),
    template(delta(content="TEXT", reasoning=["b"])),
    template({**delta(content="TEXT"), "text": "b"}),
    template({**delta(content="TEXT"), "finish_reason": ""}),
    template({**delta(content="TEXT"), "finish_reason": "stop"}),
    template({**delta(content="TEXT"), "message": {"content": "b"}}),
    template({"index": 0, "message": {"content": "TEXT"}}),
    template(delta(content=[{"type": "text", "text": "TEXT"}])),
    template(delta(content=[{"type": "thinking", "text": "TEXT"}])),
    template(delta(content="TEXT"), usage={"completion_tokens": 5}),
    template(delta(content="TEXT"), object="error"),
    template(delta(content="TEXT", tool_calls=[{"index": 0, "function": {"arguments": "b"}}])),
    template(called(function={"name": "f", "arguments": "TEXT"})),
    template(called(function={"arguments": "TEXT", "x": 0})),
    template(called(id="c", index=None, function={"arguments": "TEXT"})),
    template(called(index=True, function={"arguments": "TEXT"})),
    template(delta(tool_calls=[{"index": 0, "function": {"arguments": part}} for part in ("TEXT", "b")])),
    template(delta(tool_calls=[{"index": 0, "text": "TEXT", "function": "f"}])),
    template(delta(content="b", function_call={"arguments": "TEXT"})),
    template(delta(content="TEXT", function_call={"arguments": "b"})),
    template(delta(content="b"), text="TEXT"),
    template(delta(content="TEXT"), choices=[delta(content="TEXT"), delta(content="b")]),
    template(delta(content="TEXT"), choices=[delta(content="TEXT"), {"index": 1, "delta": {"content": "b"}}]),
    b'data: {"choices":[{"delta":{"content":"TEXT","content":"b"}}]}\n\n',
    b'data: {"content":"TEXT","choices":[{"delta":{"content":"b"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"b","cont\\u0065nt":"TEXT"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"TEXT","x":"\\ud800"}}],"id":123456789012345678901234567890}\n\n',
    b"event: error\n" + template(delta(content="TEXT")),
]
"""Chunks that must be read whole each time."""


def with_text(chunk: bytes, *texts: bytes) -> bytes:
    return b"".join(chunk.replace(WORD, text) for text in texts)


def whole(stream: bytes) -> Assembly:
    """What each chunk adds, one after the other."""
    assembly = Assembly()
    for event in SseParser().feed(stream):
        chunk = read_json_fast(event)
        assert isinstance(chunk, dict)
        assembly.add(chunk)
    return assembly


def read_of(stream: Iterable[bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[ReplyReader, list[bytes]]:
    """A reader that has had a stream, and which events it read whole."""
    read: list[bytes] = []
    read_whole = ChunkReader.read

    def note(self: ChunkReader, event: bytes) -> object:
        read.append(event)
        return read_whole(self, event)

    monkeypatch.setattr(ChunkReader, "read", note)
    reader = ReplyReader()
    reader.start(200, {})
    for data in stream:
        reader.feed(data)
    return reader, read


WORDS = [b"a", b" b", b"\xe4\xbd\xa0", b'\\"\\n\\u00e9', b"", b"}]}", b"data: [DONE]", b"c"]


@pytest.mark.parametrize("chunk", ALIKE)
@pytest.mark.parametrize("at_once", [True, False])
def test_of_chunks_that_are_alike_two_are_read_whole(
    chunk: bytes, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = [with_text(chunk, word) for word in WORDS]
    reader, read = read_of([b"".join(stream)] if at_once else stream, monkeypatch)
    assert len(read) == 2
    expected = whole(b"".join(stream))
    assert repr(reader.assembly.document()) == repr(expected.document())
    assert reader.pieces == expected.pieces == len(WORDS) - 1


@pytest.mark.parametrize("chunk", DIFFERENT)
def test_any_other_chunk_is_read_whole_each_time(chunk: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = with_text(chunk, *WORDS)
    reader, read = read_of([stream], monkeypatch)
    assert reader.over or read == SseParser().feed(stream)


def test_nothing_is_like_the_last_chunk_before_that_is_known() -> None:
    assert ChunkReader(Assembly()).end_of_run(SseParser().feed(USUAL), 0) == 0


@pytest.mark.parametrize("function", ["f", ["f"]])
def test_arguments_that_go_nowhere_stay_away(function: object, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = template(called(function=function)) + with_text(ARGUMENTS, *WORDS)
    reader, read = read_of([stream], monkeypatch)
    assert read == SseParser().feed(stream)
    assert repr(reader.assembly.document()) == repr(whole(stream).document())


@pytest.mark.parametrize(
    "text", [b"\\ud800", b"\xff", b"\xed\xa0\x80", b"\\x", b"\\", b"\t", b'a","content":"b', b'a" ', b'a"', b'"']
)
def test_a_text_that_is_none_in_the_usual_way_is_read_whole(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = with_text(USUAL, b"a", b"b", b"c", text, b"d")
    _, read = read_of([stream], monkeypatch)
    assert SseParser().feed(with_text(USUAL, text))[0] in read


def test_a_chunk_whose_text_has_no_end_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    unended = with_text(USUAL, b"").replace(b'""', b'"')
    reader, read = read_of([with_text(USUAL, b"a", b"b", b"c"), unended], monkeypatch)
    assert len(read) == 3
    assert "broken reply" in str(reader.finish())


def test_an_error_is_one_whatever_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = with_text(USUAL, b"a", b"b", b"c")
    reader, _ = read_of([usual, b"event: error\n" + with_text(USUAL, b"d"), STOP, DONE], monkeypatch)
    assert reader.over
    assert not isinstance(reader.finish(), Ok)


def test_what_was_seen_before_another_chunk_is_added_again_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    other = template(delta(name="x", content=""), id="2", created=6)
    stream = with_text(USUAL, b"a", b"b", b"c") + other + with_text(USUAL, b"d", b"e")
    reader, read = read_of([stream], monkeypatch)
    assert len(read) == 4
    assert repr(reader.assembly.document()) == repr(whole(stream).document())


@pytest.mark.parametrize("key", ["before", "zafter"])
def test_a_chunk_that_differs_in_one_letter_elsewhere_is_read_whole(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (
        b"data: " + json.dumps({"choices": [delta(content="TEXT")], key: value}, sort_keys=True).encode() + b"\n\n"
        for value in (1, 2)
    )
    stream = with_text(first, b"a", b"b", b"c") + with_text(second, b"d")
    reader, read = read_of([stream], monkeypatch)
    assert len(read) == 3
    assert repr(reader.assembly.document()) == repr(whole(stream).document())


def test_after_a_stream_has_been_forgotten_the_next_chunk_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, read = read_of([with_text(USUAL, b"a", b"b", b"c")], monkeypatch)
    reader.forget()
    reader.feed(with_text(USUAL, b"d", b"e"))
    assert len(read) == 3
    assert repr(reader.assembly.document()["choices"]) == repr(whole(with_text(USUAL, b"de")).document()["choices"])
    assert reader.assembly.document()["id"] == "1"


def test_a_stream_without_a_frame_is_not_searched_for_one_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[bytes] = []

    def search(event: bytes) -> Iterator[tuple[str, bytes, bytes]]:
        searched.append(event)
        return iter(())

    monkeypatch.setattr("scavenge.core.chunk_reader.frames_of", search)
    reader, read = read_of([ROLE, with_text(USUAL, *[b"a"] * 1000)], monkeypatch)
    assert (len(read), len(searched), reader.pieces) == (1001, 10, 1000)


def test_a_frame_that_changes_now_and_then_is_found_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = [with_text(template(delta(content="TEXT"), created=number // 10), b"a") for number in range(1000)]
    reader, read = read_of(stream, monkeypatch)
    assert (len(read), reader.pieces) == (200, 1000)


# --- any chunks, in any pieces

TEXTS = st.one_of(
    st.sampled_from([b"a", b"b", b"", b"\xc3\xa9", b"\\n", b'\\"', b"\\ud83d\\ude00", b"\\u0000", b"[DONE]"]),
    st.sampled_from([b"\\ud800", b"\xff", b"\xed\xa0\x80", b"\\", b"\n", b"\r", b'a","content":"b', b'"', b"\x7f"]),
    st.text('ab\\" ,:{}[]\u2028\ud7ff', max_size=4).map(str.encode),
)
CHANGES = st.sampled_from(
    [
        *[lambda chunk: chunk] * 3,
        *(lambda chunk, end=end: chunk.replace(b"\n", end) for end in (b"\r\n", b"\r")),
        lambda chunk: b": ping\n\nid: 4\nevent: x\n" + chunk,
        lambda chunk: chunk.replace(b'"choices"', b'\ndata: "choices"'),
        lambda chunk: chunk.replace(b"data: ", b"data:"),
        lambda chunk: chunk.replace(b"\n", b"\n: x\n", 1),
        lambda chunk: b"event: error\n" + chunk,
        lambda chunk: chunk.replace(b": ", b":"),
    ]
)
OTHERS = st.sampled_from(
    [
        *(STOP, ROLE, ROLE, DONE, b": ping\n\n", b"data: ", b"\n", b"{", b'data: {"error": {"message": "died"}}\n\n'),
        template(delta(), usage={"completion_tokens": 9}),
        template(delta(content="x", name="y"), id="2"),
        template({"index": 0, "token_ids": [1], "logprobs": {"content": [1]}}),
        template(called(id="other", function={"name": "f", "arguments": "{"})),
        template(called(function="f")),
    ]
)
RUNS = st.builds(
    lambda chunk, texts, change: b"".join(change(chunk.replace(WORD, text)) for text in texts),
    st.one_of(st.sampled_from(ALIKE), st.sampled_from(ALIKE + DIFFERENT)),
    st.lists(TEXTS, min_size=1, max_size=6).map(lambda texts: [b"w", *texts]),
    CHANGES,
)
STREAMS = st.lists(st.one_of(RUNS, RUNS, OTHERS), max_size=6).map(lambda parts: b"".join([*parts, STOP, DONE]))
CUTS = st.lists(st.integers(0, 10_000), max_size=8)


def told(pieces: Iterable[bytes], forget_after: int, max_body_bytes: int) -> list[str]:
    """All that a reader tells while a stream comes and when it has come."""
    reader = ReplyReader(max_body_bytes=max_body_bytes)
    reader.start(200, {"content-type": "text/event-stream"})
    found = []
    for number, piece in enumerate(pieces):
        reader.feed(piece)
        assembly = reader.assembly
        found.append(repr((reader.over, reader.pieces, assembly.document(), assembly.endings, reader.cut("x"))))
        if number == forget_after:
            reader.forget()
    return [*found, repr(reader.finish())]


@given(STREAMS, CUTS, st.integers(-8, 4), st.sampled_from([10**6, 10**6, 700]))
@example(with_text(USUAL, *WORDS) + STOP + DONE, range(1500), -1, 10**6)
@example(with_text(ARGUMENTS, *WORDS) + STOP + DONE, range(1500), 700, 10**6)
def test_whatever_comes_it_is_as_if_each_chunk_had_been_read_whole(
    stream: bytes, cuts: Iterable[int], forget_after: int, max_body_bytes: int
) -> None:
    at = sorted(cut % (len(stream) + 1) for cut in cuts)
    pieces = [stream[start:end] for start, end in zip([0, *at], [*at, len(stream)], strict=True)]
    found = told(pieces, forget_after, max_body_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scavenge.core.chunk_reader.frames_of", lambda event: iter(()))
        assert found == told(pieces, forget_after, max_body_bytes)
