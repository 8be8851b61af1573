"""Frames from nowhere: never another exception, never a wrong message, and nothing hangs on how they are split."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import attrs
import pytest
from frame_kit import (
    FROM_WORKER,
    JSON_VALUES,
    MESSAGES_FROM,
    MESSAGES_TO,
    NUMBERS,
    TO_WORKER,
    document_of,
    framed,
    framed_json,
    only,
    pieces,
)
from hypothesis import example, given
from hypothesis import strategies as st

from scavenge.core.frames import BadFrame, FrameReader, encode, reader_from_worker, reader_to_worker
from scavenge.core.message_shapes import FROM_WORKER as KINDS
from scavenge.core.records import encode as encode_record
from scavenge.core.records import parse_line, storable
from scavenge.core.worker_messages import Played, PlayFailed
from scavenge.rollouts import Rollout, RolloutKey, RolloutRecord

CUTS = st.lists(st.integers(0, 2000), max_size=8)


def read_all(reader: FrameReader[Any], parts: list[bytes]) -> tuple[list[object], str | None]:
    """All messages, and what was wrong at last."""
    found: list[object] = []
    try:
        for part in [*parts, b""]:
            found += reader.feed(part)
    except BadFrame as exc:
        with pytest.raises(BadFrame):
            reader.feed(b"")
        return found, str(exc)
    return found, None


@given(st.lists(MESSAGES_FROM, max_size=4), CUTS)
def test_what_a_worker_says_is_heard_however_it_is_split(messages, cuts):
    stream = b"".join(map(encode, messages))
    assert read_all(reader_from_worker(), pieces(stream, cuts)) == (messages, None)


@given(st.lists(MESSAGES_TO, max_size=4), CUTS)
def test_what_a_worker_is_told_is_heard_however_it_is_split(messages, cuts):
    stream = b"".join(map(encode, messages))
    assert read_all(reader_to_worker(), pieces(stream, cuts)) == (messages, None)


@given(st.binary(max_size=300) | st.lists(st.binary(max_size=60).map(framed)).map(b"".join), CUTS)
@example(b"\x01\x00\x00\x00\x02{}", [3])
def test_bytes_from_nowhere_are_no_messages(stream, cuts):
    for reader in (reader_from_worker, reader_to_worker):
        found, fault = read_all(reader(), [stream])
        assert found == []
        assert read_all(reader(), pieces(stream, cuts)) == ([], fault)


@given(st.lists(st.sampled_from(FROM_WORKER), min_size=1, max_size=4), st.data(), CUTS)
def test_a_stream_with_some_bytes_changed_gives_only_messages_that_could_have_been_sent(messages, data, cuts):
    stream = bytearray(b"".join(map(encode, messages)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(stream) - 1))
        stream[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    whole, fault = read_all(reader_from_worker(), [bytes(stream)])
    assert read_all(reader_from_worker(), pieces(bytes(stream), cuts)) == (whole, fault)
    for message in whole:
        assert type(message) in KINDS.values()
        assert only(reader_from_worker(), encode(message)) == message  # type: ignore[arg-type] # by the line above


def places(document: object) -> list[list[Any]]:
    """The way to every value in a document."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [[], *([key, *rest] for key, value in items for rest in places(value))]


def alike(one: object, other: object) -> bool:
    """Equal as JSON: true is not 1, but 2.0 is 2."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and (one == other or one is other)


@given(st.sampled_from([*TO_WORKER, *FROM_WORKER]), st.data())
def test_a_document_with_something_else_in_it_is_refused_or_is_exactly_what_it_says(message, data):
    document = document_of(encode(message))
    *way, last = data.draw(st.sampled_from(places(document)[1:]))
    changed: Any = copy.deepcopy(document)
    inner = changed
    for step in way:
        inner = inner[step]
    inner[last] = data.draw(JSON_VALUES | st.sampled_from([math.nan, math.inf, -1, "", [], {}, True]))
    for reader in (reader_from_worker, reader_to_worker):
        found, fault = read_all(reader(), [framed_json(changed)])
        assert (fault is None) == (len(found) == 1)
        for message in found:
            assert alike(json.loads(encode(message)[5:]), changed)


@pytest.mark.parametrize("levels", [97, 98, 99, 100, 101, 251, 252, 253, 254, 255, 256, 2000])
@pytest.mark.parametrize("inside", [0, (1, 2**70), b"x"])
def test_a_result_is_the_same_at_the_depth_where_writers_give_up(levels, inside):
    for _ in range(levels):
        inside = [inside]
    same_line(Rollout(inside, 1.0))
    same_line(Rollout("x", 1.0, info={"deep": inside}))


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __float__(self) -> float:
        raise RuntimeError("no number")


ODDITIES = st.sampled_from(
    [math.nan, -math.inf, b"\xff", {1}, 1j, Odd(), Odd, (1, 2), range(3), {None: 1, "None": 2}, NotImplemented]
) | st.sampled_from([4299, 4300, 5000]).map(lambda digits: -(10**digits))
ANYTHING = st.recursive(
    JSON_VALUES | ODDITIES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
METRICS = st.dictionaries(st.text(max_size=3) | st.integers(), ANYTHING, max_size=3)


REWARDS = st.none() | st.booleans() | NUMBERS | ANYTHING


@given(st.builds(Rollout, ANYTHING, REWARDS, METRICS | ANYTHING, ANYTHING, METRICS | ANYTHING))
@example(Rollout(b"a", 1.0, {"x": "y", "z": 1}, {2}, {"scavenge_note": 3j, 4: "four"}))
@example(Rollout([{1}] * 12, True, (), Odd(), "info"))
@example(Rollout(None, 0.5, {}, None, [Odd]))
def test_a_result_is_the_same_line_of_results_wherever_it_was_played(rollout):
    same_line(rollout)


def same_line(rollout: Rollout) -> None:
    """Check a rollout's line in ``results.jsonl``, as played here and as played in a worker."""
    here = storable(record_of(rollout))
    answer = only(reader_from_worker(), encode(Played(1, rollout)))
    if isinstance(answer, PlayFailed):
        assert answer.failure.error == here.error
        return
    assert isinstance(answer, Played)
    assert parse_line(encode_record(storable(record_of(answer.result)))) == parse_line(encode_record(here))


def record_of(rollout: Rollout) -> RolloutRecord:
    values = {field.name: getattr(rollout, field.name) for field in attrs.fields(Rollout)}
    return RolloutRecord(RolloutKey("math", "q1", 0), "guess", **values)
