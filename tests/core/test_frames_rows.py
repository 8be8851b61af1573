"""Rows of a dataset on their way from a worker: never changed, but refused, and as many as go into a frame."""

from __future__ import annotations

import enum
import math
import uuid
from collections import UserDict
from collections.abc import Iterator
from datetime import date

import pytest
from frame_kit import ADDRESS, EXAMPLES, only
from hypothesis import given

from scavenge.core import frames
from scavenge.core.frames import encode, reader_from_worker, reader_to_worker, rows_within
from scavenge.core.worker_messages import Play, Rows
from scavenge.rollouts import Example


class Colour(enum.Enum):
    RED = "red"


class Level(enum.StrEnum):
    LOW = "low"


class Word(str):
    __slots__ = ()


class Scalar:
    """As NumPy's, which compares with everything and is no truth value."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    def __hash__(self) -> int:
        return 1

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Broken(UserDict[str, object]):
    def items(self):
        raise RuntimeError("no items")


class Proxy:
    @property
    def __class__(self):
        raise RuntimeError("unbound")

    def __str__(self) -> str:
        return "unbound"


def nested(levels: int, inside: object = 0) -> object:
    for _ in range(levels):
        inside = [inside]
    return inside


def plain_example(example: Example, row: int) -> Example:
    """The example as it is in the message, where it is number *row* of its dataset."""
    (plain,) = rows_within([example], row - 1, 1).examples
    return plain


def sent(example: Example) -> Example:
    """The example as the run reads it, and as a worker that plays it reads it back."""
    rows = only(reader_from_worker(), encode(Rows(0, (example,), False)))
    assert isinstance(rows, Rows)
    play = only(reader_to_worker(), encode(Play(0, rows.examples[0], ADDRESS)))
    assert isinstance(play, Play)
    assert play.example == rows.examples[0]
    return play.example


@given(EXAMPLES)
def test_an_example_of_json_is_sent_as_it_is(example):
    plain = plain_example(example, 1)
    assert plain == (example if example.error is None else Example(example.id, {}, example.error))
    assert sent(plain) == plain


def test_an_example_that_is_plain_is_not_copied():
    example = Example("a", {"prompt": "2+2?", "big": 2**80, "half": "\ud800", "low": Level.LOW, "word": Word("x")})
    assert plain_example(example, 1) is example


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ((1, (2,)), [1, [2]]),
        (UserDict({"a": (1,)}), {"a": [1]}),
        ((Level.LOW, Word("x"), 2**80, True, None, 0.5), ["low", "x", 2**80, True, None, 0.5]),
        (nested(90, (1,)), nested(90, [1])),
        (nested(200), nested(200)),
    ],
)
def test_tuples_and_mappings_of_any_kind_come_as_lists_and_objects(value, read):
    plain = plain_example(Example("a", {"value": value}), 1)
    assert plain == Example("a", {"value": read})
    assert sent(plain) == plain


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"q"}, "value (set)"),
        (b"x", "value (bytes)"),
        (date(2025, 1, 31), "value (date)"),
        (uuid.UUID(int=1), "value (UUID)"),
        (Colour.RED, "value (Colour)"),
        (Scalar(), "value (Scalar)"),
        (Broken(), "value (Broken)"),
        ([Proxy()], "value[0] (Proxy)"),
        (math.nan, "value (nan)"),
        ([1, -math.inf], "value[1] (-inf)"),
        ([10**5000], "value[0] (int)"),
        ({"deep": ({"x": {1}},)}, "value.deep[0].x (set)"),
        ({5: "five"}, "a key of data.value (int)"),
        (list(map(complex, range(12))), "value[9] (complex) and 2 more"),
    ],
)
def test_an_example_whose_data_is_no_json_is_refused_by_the_name_of_the_field(value, place):
    plain = plain_example(Example("a", {"prompt": "?", "value": value}), 1)
    assert (plain.id, plain.data) == ("a", {})
    assert plain.error is not None
    assert plain.error.startswith("its data cannot be written as JSON: ")
    assert plain.error.endswith(place)
    assert sent(plain) == plain


@pytest.mark.parametrize("levels", [100, 252, 300, 5000])
def test_data_that_is_nested_too_deep_is_refused(levels):
    plain = plain_example(Example("a", {"value": nested(levels, (1,))}), 1)
    assert plain.error is not None
    assert "value[0][0]" in plain.error


@pytest.mark.parametrize("levels", range(245, 260))
def test_data_is_refused_or_comes_through_at_the_depth_where_the_fast_writer_gives_up(levels):
    plain = plain_example(Example("a", {"value": nested(levels)}), 1)
    assert sent(plain) == plain
    assert plain.error is not None or plain.data == {"value": nested(levels)}


@pytest.mark.parametrize(
    ("data", "said"),
    [([1], "got [1] (list)"), (None, "got None (NoneType)"), (Broken, "(ABCMeta)"), (Scalar(), "Scalar")],
)
def test_data_that_is_no_mapping_is_refused(data, said):
    plain = plain_example(Example("a", data), 1)
    assert plain.error is not None
    assert plain.error.startswith("its data must be a mapping, got")
    assert said in plain.error
    assert sent(plain) == plain


@pytest.mark.parametrize("odd", [Scalar, Broken, Proxy])
def test_an_example_of_objects_that_cannot_be_looked_at_is_refused(odd):
    for plain in (plain_example(Example("a", odd()), 1), plain_example(Example("a", {}, odd()), 1)):
        assert (plain.id, plain.data) == ("a", {})
        assert plain.error
        assert sent(plain) == plain
    assert plain_example(Example(odd(), {}), 1).id == "row:1"


def test_an_example_whose_id_is_no_text_has_the_name_of_its_place():
    assert plain_example(Example(5, {}), 3) == Example("row:3", {}, "row 3: id 5 (int) is no string")  # type: ignore[arg-type]
    odd = plain_example(Example(Scalar(), {}), 3)  # type: ignore[arg-type]
    assert odd.error == "row 3: id a value of type Scalar is no string"


def test_an_example_that_could_not_be_read_keeps_its_reason_and_loses_its_data():
    assert plain_example(Example("a", {"x": {1}}, "no prompt"), 3) == Example("a", {}, "no prompt")
    odd = Example("a", {}, KeyError("x"))  # type: ignore[arg-type]
    assert plain_example(odd, 3) == Example("a", {}, "'x' (KeyError)")


@pytest.mark.parametrize(
    "example", [Example("a", {"x": "y" * 1000}), Example("a" * 1000, {}), Example("a", {}, "e" * 1000)]
)
def test_a_row_that_is_too_long_is_refused_under_the_name_of_its_place(example, monkeypatch):
    monkeypatch.setattr(frames, "MAX_ROW_BYTES", 1000)
    plain = plain_example(example, 4)
    assert (plain.id, plain.data) == ("row:4", {})
    assert plain.error is not None
    assert plain.error.startswith("row 4: 10")


# --- as many as go into a frame


def numbered(start: int = 0) -> Iterator[Example]:
    while True:
        yield Example(str(start), {"text": "x" * 100})
        start += 1


def test_rows_are_taken_up_to_the_count_and_no_further():
    stream = numbered(7)
    rows = rows_within(stream, 7, 3)
    assert (rows.skip, [row.id for row in rows.examples], rows.last) == (7, ["7", "8", "9"], False)
    assert next(stream).id == "10"


def test_rows_are_taken_until_the_bytes_are_full_but_at_least_one():
    size_bytes = len(encode(Rows(0, (next(numbered()),), False))) - len(encode(Rows(0, (), False)))
    for most_bytes, taken in ((1, 1), (size_bytes, 1), (size_bytes + 1, 2), (10 * size_bytes, 10)):
        stream = numbered()
        rows = rows_within(stream, 0, 100, most_bytes)
        assert (len(rows.examples), rows.last) == (taken, False)
        assert next(stream).id == str(taken)


def test_the_last_rows_are_told_where_that_is_known():
    def some(number: int) -> Iterator[Example]:
        return (Example(str(n), {}) for n in range(number))

    assert rows_within(some(2), 0, 3).last
    assert not rows_within(some(3), 0, 3).last
    assert not rows_within(some(1), 0, 3, most_bytes=1).last
    assert rows_within(some(0), 9, 3) == Rows(9, (), True)


def test_rows_that_cannot_be_sent_are_refused_by_their_place_in_the_dataset():
    stream = iter([Example("a", {}), Example(None, {}), Example("b", {"x": {1}})])  # type: ignore[arg-type]
    rows = rows_within(stream, 10, 5)
    assert [row.id for row in rows.examples] == ["a", "row:12", "b"]
    assert rows.examples[2].error == "its data cannot be written as JSON: x (set)"


def test_what_the_dataset_raises_is_raised():
    def failing() -> Iterator[Example]:
        yield Example("a", {})
        raise KeyError("q")

    with pytest.raises(KeyError):
        rows_within(failing(), 0, 5)
