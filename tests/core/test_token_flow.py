"""What flows of a streamed reply: how many of its pieces have something in them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.chat import ReplyReader


def choice(index: int = 0, finish: str | None = None, **delta: object) -> dict[str, object]:
    return {"index": index, "delta": delta, "finish_reason": finish}


def chunk(*choices: object, **more: object) -> dict[str, object]:
    return {"choices": list(choices), **more}


def said(content: str, tokens: object = None) -> dict[str, object]:
    return chunk(choice(content=content), usage={"completion_tokens": tokens})


def pieces_of(*chunks: object) -> int:
    reader = ReplyReader()
    reader.start(200, {})
    for value in chunks:
        reader.feed(b"data: " + json.dumps(value).encode() + b"\n\n")
    return reader.pieces


def called(**function: object) -> object:
    return choice(tool_calls=[{"index": 0, "function": function}])


@pytest.mark.parametrize(
    "one",
    [
        choice(content="a"),
        choice(reasoning_content="a", content=None),
        choice(reasoning="a"),
        choice(refusal="no"),
        choice(content="a", reasoning="b"),
        choice(content=[{"type": "text", "text": "a"}]),
        choice(content=[{"type": "thinking", "thinking": "a"}]),
        called(name="f", arguments=""),
        called(arguments="{"),
        choice(tool_calls=[{"index": 0, "function": {"arguments": "{"}}, {"index": 1, "id": "call-2"}]),
        choice(function_call={"arguments": "{"}),
        {"index": 0, "text": "a", "finish_reason": None},
        {"index": 0, "message": {"content": "a"}},
    ],
)
def test_a_piece_that_says_something_counts_once(one: object) -> None:
    assert pieces_of(chunk(one)) == 1


@pytest.mark.parametrize(
    "empty",
    [
        chunk(choice(role="assistant", content="")),
        chunk(choice(role="assistant", content=None)),
        chunk(choice(finish="stop")),
        chunk(choice(content="", finish="stop"), usage={"completion_tokens": 9}),
        chunk(usage={"completion_tokens": 9}),
        chunk(called(arguments="")),
        chunk(called(name=None)),
        chunk(choice(tool_calls=[{"index": 0, "id": "call-1", "type": "function"}])),
        chunk(choice(tool_calls=[])),
        chunk(choice(function_call={})),
        chunk(choice(content=[])),
        chunk({"index": 0, "text": ""}),
        chunk({"index": 0, "logprobs": {"content": []}}),
        {"error": {"message": "died"}},
        {"prompt_progress": {"total": 100}},
    ],
)
def test_what_says_nothing_does_not_count(empty: object) -> None:
    assert pieces_of(empty) == 0
    assert pieces_of(chunk(choice(content="a")), empty) == 1


def test_each_choice_counts_and_so_does_each_chunk() -> None:
    both = chunk(choice(content="a"), choice(1, content="b"))
    assert pieces_of(both, chunk(choice(content="c"), choice(1, content="")), both) == 5


def test_where_the_server_counts_along_its_tokens_count() -> None:
    assert pieces_of(said("a", 1), said("bcd", 4), said("e", 5)) == 5
    role = chunk(choice(role="assistant", content=""), usage={"completion_tokens": 0})
    assert pieces_of(role, said("a", 3), said("b", 5)) == 3
    assert pieces_of(said("a", 7), said("b", 8), chunk(usage={"completion_tokens": 8})) == 2


def test_a_usage_that_is_no_count_is_as_if_it_were_not_there() -> None:
    for tokens in (None, "9", 9.5, True):
        assert pieces_of(said("a", tokens), said("b", tokens)) == 2
    assert pieces_of(chunk(choice(content="a"), usage=7), chunk(choice(content="b"), usage=None)) == 2


def test_a_count_that_falls_or_leaps_moves_nothing_far() -> None:
    assert pieces_of(said("a", 5), said("b", 2), said("c", 3)) == 2
    assert pieces_of(said("a", 1), said("b", 10**9), said("c", 10**9 + 1)) == 66


CHUNKS = st.builds(
    lambda content, tokens: said(content, tokens),
    st.sampled_from(["", "a", "bc"]),
    st.one_of(st.none(), st.integers(-(10**20), 10**20), st.text(max_size=2)),
)


@given(st.lists(CHUNKS, max_size=8))
def test_pieces_never_become_fewer_and_never_leap(chunks: list[object]) -> None:
    counts = [pieces_of(*chunks[:end]) for end in range(len(chunks) + 1)]
    assert all(0 <= later - earlier <= 64 for earlier, later in pairwise(counts))
